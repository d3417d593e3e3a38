#pragma once

#include "model/problem.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "support/axes.h"
#include "support/scan_problem.h"

namespace ssmbench::test {

/// A small selective_state_update problem; every option is off and every size 1 unless `axes` says otherwise.
inline Problem step_problem(Axes axes) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", size(1)},
                  {"dstate", size(1)},
                  {"D", false},
                  {"z", false},
                  {"dt_bias", false},
                  {"dt_softplus", false}});
  return {selective_state_update(), axes};
}

inline Problem mamba1_step(Axes axes) {
  axes.merge(Axes{{"form", "mamba1"}, {"dim", size(1)}});
  return step_problem(std::move(axes));
}

inline Problem mamba2_step(Axes axes) {
  axes.merge(Axes{{"form", "mamba2"}, {"nheads", size(1)}, {"headdim", size(1)}});
  return step_problem(std::move(axes));
}

}  // namespace ssmbench::test
