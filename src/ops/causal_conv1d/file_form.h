#pragma once

#include "model/operation.h"

namespace ssmbench {

/// How the operations are kept in interchange files.
FileForm conv_fwd_file_form();
FileForm conv_bwd_file_form();
FileForm conv_update_file_form();

}  // namespace ssmbench
