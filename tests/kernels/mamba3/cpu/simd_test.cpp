// cpu-simd for Mamba-3 beyond what holds for every implementation: each instruction set, any number of
// threads, and how the gradients' work is shared out.

#include "kernels/mamba3/cpu/simd_bwd.h"

#include <omp.h>

#include <algorithm>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "support/host_tensors.h"
#include "support/mamba3_problem.h"
#include "support/run_plan.h"
#include "support/simd_output_bytes.h"
#include "support/simd_targets.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const OpSpec* const kOperations[] = {&mamba3_siso_fwd(), &mamba3_mimo_fwd(), &mamba3_siso_bwd(),
                                     &mamba3_mimo_bwd(), &mamba3_step()};

/// Every option; sizes beside the lanes of each instruction set.
Problem full_problem(const OpSpec& op, const char* dtype, std::int64_t headdim, std::int64_t dstate,
                     std::int64_t rank) {
  Axes axes{{"dtype", dtype},     {"batch", size(2)}, {"nheads", size(6)},
            {"headdim", headdim}, {"dstate", dstate}, {"rope_angles", dstate / 4},
            {"groups", size(2)},  {"D", true},        {"z", true}};
  if (&op == &mamba3_step())
    axes["form"] = "mimo";
  else
    axes.merge(Axes{{"seqlen", size(41)}, {"initial_states", true}, {"final_states", true}});
  if (&op != &mamba3_siso_fwd() && &op != &mamba3_siso_bwd())
    axes.merge(Axes{{"mimo_rank", rank}, {"outproj_norm", true}});
  return mamba3_problem(std::move(axes), op);
}

void check_simd(const std::vector<Case>& cases) {
  Selection selection;
  selection.impl = "cpu-simd";
  const auto results = run_cases(cases, selection);
  CHECK(results.size() == cases.size());
  for (const auto& result : results) {
    INFO(result.the_case.id() << ": " << result.reason);
    CHECK(result.status == Status::pass);
  }
}

}  // namespace

TEST_CASE("cpu-simd of Mamba-3 agrees with the reference on every instruction set", "[mamba3]") {
  std::vector<Case> cases;
  for (const OpSpec* op : kOperations)
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      cases.push_back(make_case(full_problem(*op, dtype, 5, 18, 3)));
      cases.push_back(make_case(full_problem(*op, dtype, 33, 6, 2)));
    }
  on_every_target([&](const char* target) {
    INFO(target);
    check_simd(cases);
  });
}

TEST_CASE("cpu-simd of Mamba-3 has the same bits for any number of threads", "[mamba3]") {
  const int threads = omp_get_max_threads();
  for (const OpSpec* op : kOperations) {
    if (op == &mamba3_step()) continue;  // its outputs are inputs, too
    const Problem problem = full_problem(*op, "f32", 9, 20, 4);
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

TEST_CASE("cpu-simd of Mamba-3 is right around the ends of its chunks and segments", "[mamba3]") {
  std::vector<Case> cases;
  const auto add = [&](const OpSpec& op, std::int64_t rank, std::int64_t seqlen) {
    Axes axes{{"seqlen", seqlen},
              {"headdim", size(2)},
              {"dstate", size(6)},
              {"rope_angles", size(2)},
              {"z", true},
              {"initial_states", seqlen % 2 == 0},
              {"final_states", seqlen % 3 == 0}};
    if (rank > 0) axes["mimo_rank"] = rank;
    cases.push_back(make_case(mamba3_problem(std::move(axes), op)));
  };
  for (const std::int64_t seqlen : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    add(mamba3_siso_fwd(), 0, seqlen);
    add(mamba3_siso_bwd(), 0, seqlen);
  }
  for (std::int64_t rank = 1; rank <= kMaxMamba3Rank; ++rank) {
    const Problem one = full_problem(mamba3_mimo_bwd(), "f32", 1, 4, rank);
    const std::int64_t chunk = simd::plan_mamba3_bwd(Mamba3(one), 1).chunk;
    for (const std::int64_t seqlen : {chunk - 1, chunk, chunk + 1, 2 * chunk + 1})
      add(mamba3_mimo_bwd(), rank, seqlen);
  }
  for (const std::int64_t more : {-1, 0, 1, 32, 33})
    add(mamba3_siso_bwd(), 0,
        simd::kMamba3Segment * static_cast<std::int64_t>(simd::kMamba3ChunkSteps) + more);
  check_simd(cases);
}

TEST_CASE("tasks of cpu-simd's gradients of Mamba-3 take every head of every sequence once", "[mamba3]") {
  for (const std::int64_t batch : {1, 3, 40})
    for (const std::int64_t groups : {1, 2, 24})
      for (const std::int64_t heads_per_group : {1, 5, 64}) {
        const std::int64_t heads = groups * heads_per_group;
        const Mamba3 scan(
            mamba3_problem({{"batch", batch}, {"nheads", heads}, {"groups", groups}, {"seqlen", size(9)}},
                           mamba3_siso_bwd()));
        const auto plan = simd::plan_mamba3_bwd(scan, 7);
        CAPTURE(batch, groups, heads_per_group);
        std::vector<int> taken(batch * heads, 0);
        for (std::int64_t index = 0; index < plan.tasks(); ++index) {
          const auto task = plan.task(index);
          REQUIRE(task.slice < plan.slices);
          REQUIRE(task.first_head < task.last_head);
          REQUIRE(task.first_head / heads_per_group == (task.last_head - 1) / heads_per_group);
          for (auto head = task.first_head; head < task.last_head; ++head)
            ++taken.at(task.sequence * heads + head);
        }
        CHECK(taken == std::vector<int>(batch * heads, 1));
      }
}

TEST_CASE("rows of cpu-simd's gradients of Mamba-3 hold every state once, pairs side by side", "[mamba3]") {
  for (const char* pairing : {"interleaved", "halves"})
    for (const std::int64_t dstate : {2, 10, 128})
      for (const std::int64_t angles : {std::int64_t{1}, dstate / 4, dstate / 2}) {
        if (angles == 0) continue;
        const Mamba3 scan(mamba3_problem(
            {{"dstate", dstate}, {"rope_angles", angles}, {"rotary_pairing", pairing}}, mamba3_siso_bwd()));
        CAPTURE(pairing, dstate, angles);
        std::vector<std::int64_t> order;
        for (std::int64_t at = 0; at < dstate; ++at) order.push_back(simd::state_of(scan, at));
        for (std::int64_t i = 0; i < angles; ++i) {
          CHECK(order[i] == scan.first_of_pair(i));
          CHECK(order[angles + i] == scan.second_of_pair(i));
        }
        std::ranges::sort(order);
        for (std::int64_t n = 0; n < dstate; ++n) CHECK(order[n] == n);
      }
}
