#pragma once

#include "model/operation.h"

namespace ssmbench {

/// sums[b][t][c] = Σ over s ≤ t of x[b][s][c], times gain[c] where there is a gain.
/// x and sums: (sequences, steps, lanes) in the io dtype; gain: (lanes,) in f32. Lanes are at most 64.
const OpSpec& running_sum();

}  // namespace ssmbench
