#pragma once

#include <string>
#include <vector>

#include "catch.h"
#include "support/axes.h"
#include "support/gpu.h"
#include "support/verdicts.h"

// What the tests of cuda-hopper, forward and backward, have in common.

namespace ssmbench::test {

/// Every option, on and off; `problem_of` makes a problem of axes.
template <class ProblemOf>
std::vector<Problem> option_problems(const ProblemOf& problem_of) {
  std::vector<Problem> all;
  const char* skips[] = {"none", "head", "headdim"};
  for (int bits = 0; bits < 64; ++bits)
    all.push_back(problem_of({{"D", skips[bits % 3]},
                              {"z", (bits & 1) != 0},
                              {"dt_bias", (bits & 2) != 0},
                              {"dt_softplus", (bits & 4) != 0},
                              {"initial_states", (bits & 8) != 0},
                              {"seq_idx", (bits & 16) != 0},
                              {"dt_limit", (bits & 32) != 0 ? "0.01..0.05" : "0..inf"},
                              {"final_states", bits % 5 != 0},
                              {"dstate", size(bits % 7 < 3 ? 64 : 128)}}));
  return all;
}

/// One for each dtype, dstate and z that there is a kernel of.
template <class ProblemOf>
std::vector<Problem> of_every_kernel(const ProblemOf& problem_of) {
  std::vector<Problem> all;
  for (const char* dtype : {"bf16", "f16"})
    for (const std::int64_t dstate : {64, 128})
      for (const bool z : {false, true})
        all.push_back(problem_of({{"dtype", dtype},
                                  {"seqlen", size(300)},
                                  {"nheads", size(4)},
                                  {"dstate", size(dstate)},
                                  {"z", z}}));
  return all;
}

/// The same in f16, or in f32.
inline std::vector<Problem> in_f16(std::vector<Problem> problems) {
  for (Problem& problem : problems) problem = problem.with({{"dtype", "f16"}});
  return problems;
}
inline std::vector<Problem> in_f32(std::vector<Problem> problems) {
  for (Problem& problem : problems) problem = problem.with({{"dtype", "f32"}});
  return problems;
}

/// On GPUs that it runs on, cuda-hopper passes all of the cases.
inline void check_all(const std::vector<Case>& cases) {
  Selection selection;
  selection.impl = "cuda-hopper";
  for (const auto& gpu : gpus()) {
    if (gpu.details.at("compute_capability") != "9.0") continue;
    for (const auto& result : run_cases(cases, selection, gpu)) {
      INFO(result.the_case.id() << ": " << result.reason);
      CHECK(result.status == Status::pass);
    }
  }
}
inline void check_all(const std::vector<Problem>& problems, const std::string& distribution) {
  std::vector<Case> cases;
  for (const auto& problem : problems) cases.push_back(make_case(problem, distribution));
  check_all(cases);
}

}  // namespace ssmbench::test
