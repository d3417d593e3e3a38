#pragma once

#include "model/operation.h"

namespace ssmbench {

/// How selective_scan_fwd and _bwd are kept in interchange files.
FileForm scan_file_form();
FileForm scan_bwd_file_form();

}  // namespace ssmbench
