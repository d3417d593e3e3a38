// Implementations of selective_scan_fwd on sequences that cu_seqlens packs.

#include "catch.h"
#include "support/find_implementation.h"
#include "support/gpu.h"
#include "support/scan_problem.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Sequences around tiles of 64 steps, of one step and without, in both layouts.
std::vector<Problem> packed_problems(const Axes& options) {
  std::vector<Problem> all;
  const char* dtypes[] = {"f32", "bf16", "f16"};
  const char* lengths[] = {"ragged", "equal", "with-empty"};
  std::size_t turn = 0;
  for (const std::int64_t seqlen : {1, 63, 64, 65, 200, 1000})
    for (const std::int64_t sequences : {1, 2, 3, 9, 100})
      for (const bool has_state : {false, true}) {
        Axes axes = options;
        axes.merge(Axes{{"seqlen", seqlen},
                        {"dim", size(turn % 2 == 0 ? 70 : 6)},
                        {"dstate", size(turn % 3 == 0 ? 16 : 5)},
                        {"groups", size(turn % 4 == 0 ? 2 : 1)},
                        {"dtype", dtypes[turn % 3]},
                        {"layout", turn % 2 == 0 ? "bdl" : "bld"},
                        {"D", turn % 3 != 1},
                        {"z", turn % 3 != 2},
                        {"delta_bias", true},
                        {"delta_softplus", true},
                        {"initial_state", has_state},
                        {"cu_seqlens", true},
                        {"sequences", sequences},
                        {"lengths", lengths[turn / 2 % 3]}});
        all.push_back(scan_problem(std::move(axes)));
        ++turn;
      }
  return all;
}

/// What passes, of as many problems.
void check_all(const Axes& options, bool has_simd) {
  const auto problems = packed_problems(options);
  auto [passed, skipped, failures] = verdicts_of(problems, list_devices().front());
  INFO(problems.front().id());
  CHECK(failures == "");
  CHECK(passed["cpu-scalar"] == problems.size());
  CHECK(passed["cpu-simd"] == (has_simd ? problems.size() : 0));
}

}  // namespace

TEST_CASE("CPU implementations of selective_scan_fwd agree with the reference on cu_seqlens") {
  check_all({}, true);
  check_all({{"B", "constant"}}, true);
  check_all({{"C", "constant"}}, true);
  check_all({{"A", "complex"}, {"method", "foh"}}, false);
  check_all({{"method", "foh_exact"}}, false);
  check_all({{"A", "dense"}, {"method", "foh"}}, false);
}

TEST_CASE("cuda-fused agrees with the reference on cu_seqlens", "[gpu]") {
  for (const auto& gpu : gpus())
    for (const Axes& options :
         {Axes{}, Axes{{"B", "constant"}}, Axes{{"A", "complex"}, {"method", "foh"}},
          Axes{{"method", "trapezoidal"}},
          Axes{{"dim", size(2)}, {"groups", size(1)}, {"method", "foh"}}}) {  // time in segments
      const auto problems = packed_problems(options);
      auto [passed, skipped, failures] = verdicts_of(problems, gpu);
      INFO(problems.front().id());
      CHECK(failures == "");
      CHECK(passed["cuda-fused"] == problems.size());
    }
}

TEST_CASE("other CUDA implementations of selective_scan_fwd refuse cu_seqlens, with the reason") {
  const Problem problem = scan_problem({{"cu_seqlens", true}, {"seqlen", size(9)}, {"sequences", size(2)}});
  const Problem dense = problem.with({{"A", "dense"}, {"method", "foh"}});
  for (const auto& implementation : implementations()) {
    if (implementation.op != "selective_scan_fwd" || implementation.device != DeviceKind::cuda) continue;
    const bool is_dense = implementation.name == "cuda-dense";
    INFO(implementation.name);
    const auto reason = implementation.unsupported(is_dense ? dense : problem);
    if (implementation.name == "cuda-fused")
      CHECK(reason == std::nullopt);
    else
      CHECK(reason == "has one sequence a batch, no cu_seqlens");
  }
}
