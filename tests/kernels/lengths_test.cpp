// No honest implementation fails at any length: every CPU implementation at the lengths around powers of two
// that kernels are cut at, up to 65536, in every dtype and on every distribution.

#include <fmt/format.h>

#include "catch.h"
#include "inputs/distributions.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::vector<std::int64_t> lengths_up_to(std::int64_t most) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 1; length <= 17; ++length) lengths.push_back(length);
  for (std::int64_t power = 32; power <= most; power *= 2)
    for (const std::int64_t length : {power - 1, power, power + 1}) lengths.push_back(length);
  std::erase_if(lengths, [&](std::int64_t length) { return length > most; });
  return lengths;
}

void check_cases(std::vector<Case> cases) {
  std::string failures;
  int passed = 0;
  for (const auto& result : run_cases(std::move(cases))) {
    passed += result.status == Status::pass ? 1 : 0;
    if (result.status != Status::pass && result.status != Status::skip)
      failures += fmt::format("{} {}: {}\n", result.impl, result.the_case.id(), result.reason);
  }
  CHECK(failures == "");
  CHECK(passed > 0);
}

/// The first and the last lengths in every dtype on every distribution, the others on a fifth of these in
/// turn.
void check_lengths(const OpSpec& op, const Axes& axes, std::int64_t most) {
  std::vector<Case> cases;
  std::size_t turn = 0;
  for (const std::int64_t length : lengths_up_to(most))
    for (const char* dtype : {"f32", "f16", "bf16"})
      for (const auto& distribution : distributions()) {
        if (length > 2 && length < most && turn++ % 5 != 0) continue;
        Axes all{{"seqlen", size(length)}, {"dtype", dtype}, {"batch", size(1)}};
        all.insert(axes.begin(), axes.end());
        if (op.name == "linear_scan" && dtype != std::string("f32")) continue;
        cases.push_back(make_case(Problem(op, all), distribution.name));
        cases.back().inputs.seed = length;
      }
  check_cases(std::move(cases));
}

}  // namespace

TEST_CASE("the CPU's scans pass at every length, in every dtype, on every distribution") {
  check_lengths(selective_scan_fwd(), {{"dim", size(2)}, {"dstate", size(2)}, {"initial_state", true}},
                65536);
}

TEST_CASE("the CPU's gradients pass at every length, in every dtype, on every distribution") {
  check_lengths(selective_scan_bwd(), {{"dim", size(2)}, {"dstate", size(2)}, {"initial_state", true}}, 1025);
}

TEST_CASE("the CPU's linear scans pass at every length, on every distribution") {
  check_lengths(*find_op("linear_scan"), {{"dim", size(3)}}, 65536);
}

TEST_CASE("the CPU's SSD passes at every length, in every dtype, on every distribution") {
  const Axes axes{{"nheads", size(2)}, {"headdim", size(3)}, {"dstate", size(4)}};
  check_lengths(*find_op("ssd_chunk_scan_fwd"), axes, 4097);
  check_lengths(*find_op("ssd_chunk_scan_bwd"), axes, 1025);
}

TEST_CASE("few steps of many states pass: all of them share the errors of one step size") {
  std::vector<Case> cases;
  for (const std::int64_t length : {1, 2, 3, 9})
    for (const std::int64_t dim : {1, 3, 40})
      for (const auto& distribution : distributions())
        for (std::int64_t seed = 0; seed < 2; ++seed) {
          cases.push_back(make_case(Problem(selective_scan_fwd(), {{"batch", size(1)},
                                                                   {"dim", size(dim)},
                                                                   {"seqlen", size(length)},
                                                                   {"dstate", size(256)},
                                                                   {"dtype", "f32"},
                                                                   {"initial_state", true}}),
                                    distribution.name));
          cases.back().inputs.seed = seed;
        }
  check_cases(std::move(cases));
}
