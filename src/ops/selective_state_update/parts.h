#pragma once

#include "model/parts.h"

namespace ssmbench {

/// Form mamba2 as form mamba1, with dt, A, D and dt_bias repeated over the head.
PartwiseComputation heads_as_channels();

}  // namespace ssmbench
