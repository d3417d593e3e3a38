#pragma once

#include "model/operation.h"

namespace ssmbench {

/// How ssd_chunk_scan_fwd and _bwd are kept in interchange files.
FileForm ssd_file_form();
FileForm ssd_bwd_file_form();

}  // namespace ssmbench
