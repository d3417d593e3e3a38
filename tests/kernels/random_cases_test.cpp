// Random problems of every operation that has CPU implementations, on random inputs, against the fp64
// reference: always the same ones, which have every option. tests/random_cases draws others each time.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "support/random_cases.h"
#include "support/run_plan.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Cases of an operation: most of them of the scans and their gradients, 3800 together.
constexpr std::size_t kCasesOfScan = 950;
constexpr std::size_t kCasesOfOther = 300;

std::size_t cases_of(const OpSpec& op) {
  return op.name.starts_with("selective_scan") || op.name.starts_with("ssd") ? kCasesOfScan : kCasesOfOther;
}

std::vector<Case> draw_cases() {
  std::vector<Case> cases;
  for (const auto* op : ops_on(DeviceKind::cpu)) {
    // Of its own, so that one operation more does not change the cases of the others.
    CaseDraw draw(20240611);
    for (std::size_t i = 0; i < cases_of(*op); ++i) cases.push_back(draw.draw(*op));
  }
  return cases;
}

using Counts = std::map<std::string, int>;  // of problems that have "axis value", or what else it says

/// By operation; of those problems that have the axis.
std::map<std::string, Counts> count_what_problems_have(const std::vector<std::string>& axes) {
  std::map<std::string, Counts> counts;
  for (const auto& drawn : draw_cases()) {
    const Problem& problem = drawn.problem;
    if (!std::ranges::all_of(axes, [&](const auto& axis) { return problem.has(axis); })) continue;
    auto& of_op = counts[problem.op().name];
    for (const auto& [name, value] : problem.axes())
      if (const auto* size = std::get_if<std::int64_t>(&value)) {
        if (*size == 1) ++of_op[name + " 1"];
        if (*size > 128) ++of_op[name + " large"];
      } else {
        ++of_op[name + " " + to_string(value)];
      }
    const std::int64_t groups = problem.size("groups");
    const bool per_head = problem.has("nheads") && groups == problem.size("nheads");
    if (groups > 1) ++of_op[per_head ? "a group per head" : "groups"];
  }
  return counts;
}

void check_all_are_there(const std::string& op, const Counts& counts,
                         const std::vector<std::string>& wanted) {
  for (const auto& what : wanted) {
    INFO(op << " " << what);
    CHECK(counts.contains(what));
  }
}

}  // namespace

TEST_CASE("random problems of Mamba-2 have every option, sizes up to the limits and a group per head") {
  const auto counts = count_what_problems_have({"headdim", "dt_bias"});
  CHECK(counts.size() == 4);
  for (const auto& [op, of_op] : counts) {
    std::vector<std::string> wanted{"headdim 1",    "headdim large",    "dstate 1", "dstate large",
                                    "nheads 1",     "a group per head", "groups",   "dtype f16",
                                    "dtype bf16",   "z true",           "z false",  "dt_bias true",
                                    "dt_bias false"};
    for (const auto& axis : find_op(op)->axes)
      for (const auto& choice : axis.choices)
        if (choice != "mamba1") wanted.push_back(axis.name + " " + choice);
    if (op.starts_with("ssd"))
      wanted.insert(wanted.end(), {"seqlen 1", "seqlen large", "seq_idx true", "initial_states true",
                                   "initial_states false", "final_states true", "dt_limit 0.02..0.03"});
    check_all_are_there(op, of_op, wanted);
  }
}

TEST_CASE("random problems of Mamba-3 have every option, and sizes from 1") {
  const auto counts = count_what_problems_have({"rope_angles"});
  CHECK(counts.size() == 5);
  for (const auto& [op, of_op] : counts) {
    std::vector<std::string> wanted{"batch 1", "nheads 1", "headdim 1", "rope_angles 1", "groups"};
    for (const auto& axis : find_op(op)->axes) {
      for (const auto& choice : axis.choices) wanted.push_back(axis.name + " " + choice);
      if (axis.kind == AxisKind::flag)
        wanted.insert(wanted.end(), {axis.name + " true", axis.name + " false"});
    }
    check_all_are_there(op, of_op, wanted);
  }
}

TEST_CASE("random problems of the selective scan have every method and option, and sizes up to the limits") {
  const auto counts = count_what_problems_have({"delta_bias"});
  CHECK(counts.size() == 2);
  for (const auto& [op, of_op] : counts) {
    std::vector<std::string> wanted{"batch 1",  "dim 1",        "seqlen 1", "seqlen large",
                                    "dstate 1", "dstate large", "groups"};
    for (const auto& axis : find_op(op)->axes) {
      for (const auto& choice : axis.choices) {
        const bool elsewhere = op == "selective_scan_bwd" && choice == "dense";
        if (!elsewhere) wanted.push_back(axis.name + " " + choice);
      }
      if (axis.kind == AxisKind::flag)
        wanted.insert(wanted.end(), {axis.name + " true", axis.name + " false"});
    }
    check_all_are_there(op, of_op, wanted);
  }
}

TEST_CASE("CPU implementations agree with the reference on random problems") {
  std::map<std::string, int> passed;
  int overflowed = 0;
  std::string failures;
  for (const auto& result : run_cases(draw_cases())) {
    if (result.status == Status::skip) continue;
    if (result.status == Status::pass)
      ++passed[result.the_case.problem.op().name + " " + result.impl];
    else if (result.status == Status::unverified)  // an unstable method that may overflow everywhere
      ++overflowed;
    else
      failures += fmt::format("{} {}: {}\n", result.impl, result.the_case.id(), result.reason);
  }
  CHECK(failures == "");

  int pairs = 0;
  for (const auto& [implementation, count] : passed) {
    INFO(implementation);
    CHECK(count >= 10);  // the narrowest one has two methods of dense A
    pairs += count;
  }
  CHECK(pairs >= 3000);
  CHECK(overflowed <= pairs / 50);
}
