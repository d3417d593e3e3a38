#pragma once

#include "model/operation.h"

namespace ssmbench {

/// How selective_state_update is kept in interchange files.
FileForm state_update_file_form();

}  // namespace ssmbench
