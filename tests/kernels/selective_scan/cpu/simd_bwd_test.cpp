// cpu-simd for the scan's gradients beyond what holds for every implementation: each instruction set, any
// number of threads, and how the work is shared out.

#include <omp.h>

#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "kernels/selective_scan/cpu/simd_bwd.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/simd_output_bytes.h"
#include "support/simd_targets.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Every option, unless `axes` says otherwise.
Problem full_problem(Axes axes) {
  axes.merge(Axes{{"batch", size(2)},
                  {"dim", size(6)},
                  {"seqlen", size(34)},
                  {"dstate", size(5)},
                  {"D", true},
                  {"z", true},
                  {"delta_bias", true},
                  {"delta_softplus", true},
                  {"initial_state", true},
                  {"dlast_state", true}});
  return scan_problem(std::move(axes), selective_scan_bwd());
}

/// Sizes at which something ends; dtypes, layouts, constant and variable B and C in turn.
std::vector<Problem> boundary_problems() {
  std::vector<Problem> all;
  const auto add = [&all](const char* axis, std::int64_t value) {
    const std::size_t turn = all.size();
    const char* const dtypes[] = {"f32", "f16", "bf16"};
    all.push_back(full_problem({{axis, size(value)},
                                {"dtype", dtypes[turn % 3]},
                                {"layout", turn % 2 == 0 ? "bdl" : "bld"},
                                {"B", turn % 5 == 2 ? "constant" : "variable"},
                                {"C", turn % 7 == 3 ? "constant" : "variable"}}));
  };
  // One step; a tile of 32 less one, whole, and one more; two, which are added over tasks at a time, and one
  // more.
  for (const std::int64_t seqlen : {1, 31, 32, 33, 64, 65}) add("seqlen", seqlen);
  // Around the lanes of every instruction set; three vectors.
  for (const std::int64_t dim : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33}) add("dim", dim);
  // The last state alone; around the 4 that rows are padded to; the limit.
  for (const std::int64_t dstate : {1, 2, 3, 4, 17, 256}) add("dstate", dstate);
  // With 32 batches a task takes all channels of one: 64 at a time, then one or a vector more.
  for (const std::int64_t dim : {65, 80})
    all.push_back(
        full_problem({{"batch", size(32)}, {"dim", size(dim)}, {"seqlen", size(3)}, {"dstate", size(2)}}));
  return all;
}

void check_on_every_target(const std::vector<Problem>& problems) {
  std::vector<Case> cases;
  for (const auto& problem : problems) cases.push_back(make_case(problem));
  Selection selection;
  selection.impl = "cpu-simd";
  on_every_target([&](const char* target) {
    const auto results = run_cases(cases, selection);
    CHECK(results.size() == cases.size());
    for (const auto& result : results) {
      INFO(target << " " << result.the_case.id() << ": " << result.reason);
      CHECK(result.status == Status::pass);
    }
  });
}

}  // namespace

TEST_CASE("cpu-simd's gradients of the scan are right at every boundary, on every instruction set") {
  check_on_every_target(boundary_problems());
}

TEST_CASE("cpu-simd's gradients of the scan have the same bits for any number of threads") {
  const Problem problem = full_problem({{"dim", size(150)}, {"groups", size(2)}});
  const auto inputs = generate_inputs(problem, {}, never_stop);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto alone = simd_output_bytes(problem, inputs);
  for (const int count : {2, 3, 12, 40}) {
    omp_set_num_threads(count);
    CHECK(simd_output_bytes(problem, inputs) == alone);
  }
  omp_set_num_threads(threads);
}

TEST_CASE("tasks of cpu-simd's gradients of the scan take every channel of every batch once") {
  for (const std::int64_t batch : {1, 3, 40})
    for (const std::int64_t groups : {1, 2, 24})
      for (const std::int64_t per_group : {1, 16, 100, 2048}) {
        const SelectiveScan scan(
            full_problem({{"batch", batch}, {"dim", groups * per_group}, {"groups", groups}}));
        const auto plan = simd::plan_scan_bwd(scan, 7);
        CAPTURE(batch, groups, per_group);
        std::vector<int> taken(batch * scan.dim, 0);
        for (std::int64_t index = 0; index < plan.tasks; ++index) {
          const auto task = plan.task(index);
          REQUIRE(task.first < task.last);
          REQUIRE(task.first / per_group == task.group);
          REQUIRE((task.last - 1) / per_group == task.group);
          for (auto channel = task.first; channel < task.last; ++channel)
            ++taken.at(task.batch * scan.dim + channel);
        }
        CHECK(taken == std::vector<int>(batch * scan.dim, 1));
        CHECK(plan.threads <= plan.tasks);
      }
}
