#pragma once

#include "model/problem.h"
#include "ops/selective_state_replay/selective_state_replay.h"
#include "support/axes.h"
#include "support/scan_problem.h"

namespace ssmbench::test {

/// A small selective_state_replay problem; every option is off and every size 1 unless `axes` says otherwise,
/// the window is 4.
inline Problem replay_problem(Axes axes) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", size(1)},
                  {"nheads", size(1)},
                  {"headdim", size(1)},
                  {"dstate", size(1)},
                  {"window", size(4)},
                  {"D", false},
                  {"z", false},
                  {"dt_bias", false},
                  {"dt_softplus", false}});
  return {selective_state_replay(), axes};
}

}  // namespace ssmbench::test
