#pragma once

#include "model/operation.h"

namespace ssmbench {

/// How Mamba-3's operations are kept in interchange files. Outputs, states and their cotangents may have any
/// float type.
FileForm mamba3_siso_fwd_file_form();
FileForm mamba3_mimo_fwd_file_form();
FileForm mamba3_siso_bwd_file_form();
FileForm mamba3_mimo_bwd_file_form();
FileForm mamba3_step_file_form();

}  // namespace ssmbench
