#pragma once

#include "model/problem.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "support/axes.h"

namespace ssmbench::test {

/// A small causal_conv1d_fwd or _bwd problem; every size is 1 and every option off unless `axes` says
/// otherwise, but for the width of 4.
inline Problem conv_problem(Axes axes, const OpSpec& op = causal_conv1d_fwd()) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", size(1)},
                  {"dim", size(1)},
                  {"seqlen", size(1)},
                  {"bias", false},
                  {"silu", false}});
  return {op, axes};
}

/// The same of causal_conv1d_update.
inline Problem conv_update_problem(Axes axes) {
  axes.merge(Axes{{"dtype", "f32"}, {"batch", size(1)}, {"dim", size(1)}, {"bias", false}, {"silu", false}});
  return {causal_conv1d_update(), std::move(axes)};
}

}  // namespace ssmbench::test
