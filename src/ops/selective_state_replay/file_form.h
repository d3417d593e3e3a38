#pragma once

#include "model/operation.h"

namespace ssmbench {

/// How selective_state_replay is kept in interchange files.
FileForm state_replay_file_form();

}  // namespace ssmbench
