#pragma once

#include <cstdint>

namespace ssmbench {

class Problem;

// x, the states on the way, which the forward pass may hand to the gradients: (B, ⌈L/8⌉, D, N), f32, or c64
// for complex A. x[:, k] is the state before step 8·k; x[:, 0] is initial_state, or zeros.
//
// selective_scan_fwd leaves x where its axis x says so. selective_scan_bwd takes it as an input, so that
// nothing before a step has to be computed again: h before step 8·k is x[:, k], whatever the scan would give,
// and h of the steps from there to 8·k + 7 follows from it. It takes 4·N/8 bytes an element of u, four times
// the tensor in 16 bits with 16 states.

/// Steps from one state in x to the next.
inline constexpr std::int64_t kStepsOfX = 8;

/// Whether the problem has x.
bool has_x(const Problem& scan);

}  // namespace ssmbench
