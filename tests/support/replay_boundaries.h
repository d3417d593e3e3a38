#pragma once

#include <vector>

#include "support/replay_problem.h"

namespace ssmbench::test {

/// States around vectors; one token and several, more and fewer than the window; every way to flush, with
/// slots and padding and without, options in turn.
inline std::vector<Problem> replay_boundaries() {
  const char* const dtypes[] = {"f32", "f16", "bf16"};
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t dstate : {1, 16, 33, 256})
    for (const std::int64_t tokens : {1, 3})
      for (const char* flush : {"mixed", "none", "all"})
        for (const bool has_slots : {false, true}) {
          ++turn;
          Axes axes{{"dtype", dtypes[turn % 3]},
                    {"state_dtype", turn % 2 == 0 ? "f32" : dtypes[turn % 3]},
                    {"dt_dtype", turn % 4 < 2 ? "io" : "f32"},
                    {"batch", size(5)},
                    {"nheads", size(2)},
                    {"headdim", size(5)},
                    {"dstate", dstate},
                    {"groups", size(2)},
                    {"tokens", tokens},
                    {"window", turn % 5 == 0 ? size(16) : size(4)},
                    {"flush", flush},
                    {"D", turn % 2 == 0},
                    {"z", turn % 3 == 0},
                    {"dt_bias", true},
                    {"dt_softplus", true}};
          if (has_slots) axes.merge(Axes{{"slots", size(11)}, {"pads", turn % 3 == 0 ? size(4) : size(0)}});
          all.push_back(replay_problem(axes));
        }
  return all;
}

}  // namespace ssmbench::test
