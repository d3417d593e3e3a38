#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "model/dtype.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "reference/selective_state_update/recurrence.h"

namespace ssmbench {

/// Of what nothing can be asked.
inline constexpr auto kNoBound = std::numeric_limits<float>::infinity();

/// How a row is stored in units of a scale.
struct ScaledRow {
  double scale;
  float scale_bound;                              ///< in roundoffs; infinite where nothing can be asked
  std::array<float, kMaxStepDState> step, bound;  ///< of the numbers as ReferenceOutput has them
};

/// Distance of the neighbours of h when it is stored as `dtype` in units of `scale`. `error`: of h, in
/// roundoffs: what is computed in f32 may be in the next binade.
float step_around(double h, double error, double scale, DType dtype);

/// The first `dstate` states of a row in units of its scale a/Q, a the largest of them. A scale is off by
/// what a is off by, over Q, and by two divisions; with it, h/scale by four roundings of its own. A row of
/// zeros has the scale 1 exactly, and one whose sum cancels to less than its error, as large as in bf16, has
/// any.
ScaledRow scaled_row(const StateRow& row, std::int64_t dstate, DType dtype);

}  // namespace ssmbench
