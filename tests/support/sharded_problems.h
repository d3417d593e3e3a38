#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "support/scan_problem.h"
#include "support/ssd_problem.h"

namespace ssmbench::test {

/// Problems of so many steps, whose options take turns.
using ProblemAt = std::function<Problem(std::int64_t seqlen, std::size_t turn)>;

/// A scan with options that take turns: dtypes, layouts, real and complex A, constant and variable B and C,
/// states.
inline Problem scan_at(std::int64_t seqlen, std::size_t turn, const OpSpec& op) {
  const char* const dtypes[] = {"f32", "f16", "bf16"};
  const char* const methods[] = {"zoh", "zoh", "foh", "bilinear", "rk4"};
  return scan_problem({{"seqlen", size(seqlen)},
                       {"batch", size(2)},
                       {"dim", size(6)},
                       {"dstate", size(3)},
                       {"dtype", dtypes[turn % 3]},
                       {"layout", turn % 2 == 0 ? "bdl" : "bld"},
                       {"method", methods[turn % 5]},
                       {"A", turn % 7 == 2 || turn % 7 == 5 ? "complex" : "real"},
                       {"B", turn % 4 == 3 ? "constant" : "variable"},
                       {"C", turn % 6 == 4 ? "constant" : "variable"},
                       {"groups", size(turn % 4 == 3 ? 1 : 2)},
                       {"D", turn % 3 != 1},
                       {"z", turn % 2 == 1},
                       {"delta_bias", turn % 5 != 0},
                       {"delta_softplus", turn % 3 != 2},
                       {"initial_state", turn % 2 == 1}},
                      op);
}

inline Problem ssd_at(std::int64_t seqlen, std::size_t turn, const OpSpec& op) {
  const char* const dtypes[] = {"f32", "bf16", "f16"};
  const char* const skips[] = {"head", "headdim", "none"};
  return ssd_problem({{"seqlen", size(seqlen)},
                      {"batch", size(2)},
                      {"nheads", size(4)},
                      {"headdim", size(5)},
                      {"dstate", size(3)},
                      {"groups", size(turn % 2 == 0 ? 2 : 1)},
                      {"dtype", dtypes[turn % 3]},
                      {"D", skips[turn % 3]},
                      {"z", turn % 2 == 1},
                      {"dt_bias", turn % 3 != 0},
                      {"dt_softplus", turn % 4 != 1},
                      {"dt_limit", turn % 5 == 2 ? "0.002..0.05" : "0..inf"},
                      {"initial_states", turn % 3 != 2},
                      {"final_states", turn % 4 != 3},
                      {"seq_idx", turn % 2 == 1}},
                     op);
}

}  // namespace ssmbench::test
