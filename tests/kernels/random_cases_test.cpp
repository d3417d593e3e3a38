// Random problems of every operation that has CPU implementations, on random inputs, against the fp64
// reference. Drawn from what the operation says of itself (OpSpec), so that one that is added later is
// covered without a line here. The draws are the same on every machine.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/errors.h"
#include "catch.h"
#include "inputs/distributions.h"
#include "support/run_plan.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Cases of an operation: most of them of the scans and their gradients, 3800 together.
constexpr std::size_t kCasesOfScan = 950;
constexpr std::size_t kCasesOfOther = 200;
/// Product of the sizes that make the work of a case. Keeps the whole test within seconds.
constexpr std::int64_t kMostWork = 10000;

class Draw {
 public:
  /// Not std::uniform_int_distribution, which every library implements its own way.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(bits_() % count); }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  std::mt19937_64 bits_{20240611};
};

/// Half of the time a size at which something may end: a vector, a warp, a tile, a thread's states.
std::int64_t draw_size(const std::string& axis, Draw& draw) {
  static const std::vector<std::int64_t> kBoundaries{1,  2,  3,  4,  7,  8,  9,  15,  16,  17,
                                                     31, 32, 33, 63, 64, 65, 96, 127, 128, 129};
  static const std::vector<std::int64_t> kLarge{64, 65, 127, 128, 129, 255, 256};
  static const std::map<std::string, std::size_t> kMost{
      {"batch", 5},       {"dim", 40},      {"seqlen", 130}, {"dstate", 40},
      {"groups", 4},      {"nheads", 12},   {"headdim", 40}, {"chunk_size", 130},
      {"rope_angles", 8}, {"mimo_rank", 8}, {"sequences", 3}};
  if (axis == "dstate" && draw.one_in(12)) return draw.of(kLarge);
  if (axis == "headdim" && draw.one_in(6)) return draw.of(kLarge);
  const auto found = kMost.find(axis);
  const std::size_t most = found == kMost.end() ? 20 : found->second;
  if (draw.one_in(2)) return static_cast<std::int64_t>(1 + draw.below(most));
  const auto end = std::ranges::upper_bound(kBoundaries, static_cast<std::int64_t>(most));
  return kBoundaries[draw.below(static_cast<std::size_t>(end - kBoundaries.begin()))];
}

/// Time steps, the only axis that has intervals.
const std::vector<std::string> kIntervals{"0..inf", "0.001..0.1", "0.02..0.03"};

/// The axes that make the work of a case.
std::int64_t work_of(const std::map<std::string, AxisValue>& axes) {
  std::int64_t product = 1;
  for (const auto& [name, value] : axes)
    if (const auto* size = std::get_if<std::int64_t>(&value))
      if (name != "groups" && name != "chunk_size" && name != "rope_angles" && name != "sequences")
        product *= *size;
  return product;
}

/// Axes with a fallback are left out at times, and those without too: they may belong to one form of the
/// operation only. What makes no problem is drawn again.
Problem draw_problem(const OpSpec& op, Draw& draw) {
  for (int attempt = 0; attempt < 5000; ++attempt) {
    std::map<std::string, AxisValue> axes;
    for (const auto& axis : op.axes) {
      if (draw.one_in(axis.fallback ? 4 : 8)) continue;
      if (axis.kind == AxisKind::size) axes[axis.name] = draw_size(axis.name, draw);
      if (axis.kind == AxisKind::flag) axes[axis.name] = draw.one_in(2);
      if (axis.kind == AxisKind::choice) axes[axis.name] = draw.of(axis.choices);
      if (axis.kind == AxisKind::interval) axes[axis.name] = draw.of(kIntervals);
    }
    if (work_of(axes) > kMostWork) continue;
    try {
      return {op, std::move(axes)};
    } catch (const ContractError&) {  // axes that contradict each other, or do not go together
    }
  }
  throw std::logic_error("no problem of " + op.name + " could be drawn");
}

std::vector<const OpSpec*> ops_on_cpu() {
  std::vector<const OpSpec*> ops;
  for (const auto* op : all_ops())
    if (std::ranges::any_of(implementations(), [&](const Implementation& implementation) {
          return implementation.op == op->name && implementation.device == DeviceKind::cpu;
        }))
      ops.push_back(op);
  return ops;
}

std::size_t cases_of(const OpSpec& op) {
  return op.name.starts_with("selective_scan") || op.name.starts_with("ssd") ? kCasesOfScan : kCasesOfOther;
}

std::vector<Case> draw_cases() {
  std::vector<std::string> distribution_names;
  for (const auto& distribution : distributions()) distribution_names.push_back(distribution.name);
  std::vector<Case> cases;
  for (const auto* op : ops_on_cpu()) {
    Draw draw;  // of its own, so that one operation more does not change the problems of the others
    for (std::size_t i = 0; i < cases_of(*op); ++i) {
      Case drawn = make_case(draw_problem(*op, draw), draw.of(distribution_names));
      drawn.inputs.values = draw.one_in(4) ? "shared" : "native";
      drawn.inputs.seed = static_cast<std::int64_t>(draw.below(1000));
      cases.push_back(std::move(drawn));
    }
  }
  return cases;
}

using Counts = std::map<std::string, int>;  // of problems that have "axis value", or what else it says

/// By operation; of those problems that have the axes.
std::map<std::string, Counts> count_what_problems_have(const std::vector<std::string>& axes) {
  std::map<std::string, Counts> counts;
  for (const auto& drawn : draw_cases()) {
    const Problem& problem = drawn.problem;
    if (!std::ranges::all_of(axes, [&](const auto& axis) { return problem.axes().contains(axis); })) continue;
    auto& of_op = counts[problem.op().name];
    for (const auto& [name, value] : problem.axes())
      if (const auto* size = std::get_if<std::int64_t>(&value)) {
        if (*size == 1) ++of_op[name + " 1"];
        if (*size > 128) ++of_op[name + " large"];
      } else {
        ++of_op[name + " " + to_string(value)];
      }
    const std::int64_t groups = problem.size("groups");
    const bool per_head = problem.axes().contains("nheads") && groups == problem.size("nheads");
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

/// An unstable method may overflow everywhere, which leaves nothing to judge; what can be judged has to be
/// right.
bool nothing_judged_is_wrong(const CaseResult& result) {
  return result.status == Status::fail && std::ranges::all_of(result.outputs, [](const auto& entry) {
           return entry.second.passed() || entry.second.judged == 0;
         });
}

}  // namespace

TEST_CASE("random problems of Mamba-2 have every option, sizes up to the limits and a group per head") {
  const auto counts = count_what_problems_have({"headdim", "dt_bias"});
  CHECK(counts.size() == 3);
  for (const auto& [op, of_op] : counts) {
    std::vector<std::string> wanted{"headdim 1",    "headdim large",    "dstate 1", "dstate large",
                                    "nheads 1",     "a group per head", "groups",   "dtype f16",
                                    "dtype bf16",   "z true",           "z false",  "dt_bias true",
                                    "dt_bias false"};
    for (const auto& axis : find_op(op)->axes)
      for (const auto& choice : axis.choices)
        if (choice != "mamba1") wanted.push_back(axis.name + " " + choice);
    if (op != "selective_state_update")
      wanted.insert(wanted.end(), {"seqlen 1", "seqlen large", "seq_idx true", "initial_states true",
                                   "initial_states false", "final_states true", "dt_limit 0.02..0.03"});
    check_all_are_there(op, of_op, wanted);
  }
}

TEST_CASE("random problems of Mamba-3 have every option, and sizes from 1") {
  const auto counts = count_what_problems_have({"rope_angles"});
  CHECK(counts.size() == 3);
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
    else if (nothing_judged_is_wrong(result))
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
