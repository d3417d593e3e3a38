// cpu-simd for Mamba-2 beyond what holds for every implementation: each instruction set, any number of
// threads, and how the gradients' work is shared out.

#include <omp.h>

#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "kernels/ssd_chunk_scan/cpu/simd_bwd.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "support/simd_output_bytes.h"
#include "support/simd_targets.h"
#include "support/ssd_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Every option, a ragged tail, sizes beside the lanes of each instruction set.
Problem full_problem(const OpSpec& op, const char* dtype, std::int64_t headdim, std::int64_t dstate) {
  return ssd_problem({{"dtype", dtype},
                      {"batch", size(2)},
                      {"seqlen", size(75)},
                      {"nheads", size(6)},
                      {"headdim", size(headdim)},
                      {"dstate", size(dstate)},
                      {"groups", size(2)},
                      {"D", "headdim"},
                      {"z", true},
                      {"dt_bias", true},
                      {"dt_softplus", true},
                      {"initial_states", true},
                      {"final_states", true},
                      {"seq_idx", true}},
                     op);
}

}  // namespace

TEST_CASE("cpu-simd of Mamba-2 agrees with the reference on every instruction set") {
  std::vector<Case> cases;
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()})
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      cases.push_back(make_case(full_problem(*op, dtype, 5, 17)));
      cases.push_back(make_case(full_problem(*op, dtype, 33, 3)));
    }
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

TEST_CASE("cpu-simd of Mamba-2 has the same bits for any number of threads") {
  const int threads = omp_get_max_threads();
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()}) {
    const Problem problem = full_problem(*op, "f32", 9, 20);
    const auto inputs = generate_inputs(problem, {}, never_stop);
    omp_set_num_threads(1);
    const auto alone = simd_output_bytes(problem, inputs);
    for (const int count : {2, 3, 12, 40}) {
      omp_set_num_threads(count);
      CHECK(simd_output_bytes(problem, inputs) == alone);
    }
  }
  omp_set_num_threads(threads);
}

TEST_CASE("cpu-simd of Mamba-2 is right around the ends of its chunks and tiles") {
  std::vector<Case> cases;
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()})
    for (const std::int64_t seqlen : {1, 2, 7, 8, 9, 15, 17, 31, 32, 33, 47, 64, 65})
      cases.push_back(make_case(ssd_problem({{"seqlen", seqlen},
                                             {"nheads", size(3)},
                                             {"headdim", size(17 + seqlen % 4 * 16)},
                                             {"dstate", size(15 + seqlen % 5)},
                                             {"z", true},
                                             {"D", "head"},
                                             {"seq_idx", true}},
                                            *op)));
  Selection selection;
  selection.impl = "cpu-simd";
  for (const auto& result : run_cases(cases, selection)) {
    INFO(result.the_case.id() << ": " << result.reason);
    CHECK(result.status == Status::pass);
  }
}

TEST_CASE("tasks of cpu-simd's scan take every head of every sequence once, with one group each") {
  for (const std::int64_t sequences : {1, 3, 40})
    for (const std::int64_t groups : {1, 2, 24})
      for (const std::int64_t heads_per_group : {1, 5, 64})
        for (const std::int64_t threads : {1, 2, 64}) {
          const std::int64_t heads = groups * heads_per_group;
          const SsdChunkScan scan(ssd_problem(
              {{"nheads", heads}, {"groups", groups}, {"headdim", size(64)}, {"dstate", size(128)}}));
          const auto plan = simd::plan_ssd_fwd(scan, sequences, threads);
          CAPTURE(sequences, groups, heads_per_group, threads);
          std::vector<int> taken(sequences * heads, 0);
          for (std::int64_t index = 0; index < plan.tasks(); ++index) {
            const auto task = plan.task(index);
            REQUIRE(task.first < task.last);
            REQUIRE(task.last - task.first <= plan.per_task);
            REQUIRE(task.first / heads_per_group == (task.last - 1) / heads_per_group);
            for (auto head = task.first; head < task.last; ++head) ++taken.at(task.sequence * heads + head);
          }
          CHECK(taken == std::vector<int>(sequences * heads, 1));
          CHECK(plan.per_task * plan.state <= simd::kSsdTaskFloats);
          CHECK(plan.floats == plan.threads * plan.per_task * plan.state);
        }
}

TEST_CASE("tasks of cpu-simd's gradients take every head of every batch once, with one group each") {
  for (const std::int64_t batch : {1, 3, 40})
    for (const std::int64_t groups : {1, 2, 24})
      for (const std::int64_t heads_per_group : {1, 5, 64}) {
        const std::int64_t heads = groups * heads_per_group;
        const SsdChunkScan scan(
            ssd_problem({{"batch", batch}, {"nheads", heads}, {"groups", groups}}, ssd_chunk_scan_bwd()));
        const auto plan = simd::plan_ssd_bwd(scan, 7);
        CAPTURE(batch, groups, heads_per_group);
        std::vector<int> taken(batch * heads, 0);
        for (std::int64_t index = 0; index < plan.tasks(); ++index) {
          const auto task = plan.task(index);
          REQUIRE(task.first_head < task.last_head);
          REQUIRE(task.first_head / heads_per_group == (task.last_head - 1) / heads_per_group);
          for (auto head = task.first_head; head < task.last_head; ++head)
            ++taken.at(task.batch * heads + head);
        }
        CHECK(taken == std::vector<int>(batch * heads, 1));
        CHECK(plan.tasks() >= std::min<std::int64_t>(simd::kSsdBwdTasks, batch * heads) / 2);
      }
}
