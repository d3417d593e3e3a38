#include <vector>

#include "catch.h"
#include "config/config.h"
#include "support/find_implementation.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void check_all_pass(const std::vector<CaseResult>& results) {
  for (const auto& result : results) {
    INFO(result.the_case.id() << " " << result.impl << ": " << result.reason);
    CHECK(result.status == Status::pass);
    CHECK(result.outputs.size() >= 5);
  }
}

const Selection kScalar{.impl = "cpu-scalar", .case_id = {}, .op = {}, .dtype = {}, .method = {}};

}  // namespace

TEST_CASE("cpu-scalar's gradients are within tolerance on all of configs/gradients") {
  // With fewer channels, for speed.
  check_all_pass(run_cases(
      load_config(SSMBENCH_SOURCE_DIR "/configs/gradients.json", {parse_override("dim=8")}, false), kScalar));
}

TEST_CASE("cpu-scalar's gradients are right where its tiles of time steps end") {
  std::vector<Case> cases;
  for (const char* method : {"zoh", "foh_exact"})
    for (const char* A : {"real", "complex"})
      for (const std::int64_t dstate : {2, 16})  // tiles of 64 and 128 steps
        for (const std::int64_t seqlen : {1, 2, 63, 64, 65, 127, 128, 129, 193, 257})
          cases.push_back(make_case(scan_problem({{"method", method},
                                                  {"A", A},
                                                  {"B", seqlen % 3 == 0 ? "constant" : "variable"},
                                                  {"dim", size(3)},
                                                  {"dstate", size(dstate)},
                                                  {"seqlen", size(seqlen)},
                                                  {"initial_state", true},
                                                  {"dlast_state", seqlen % 2 == 1}},
                                                 selective_scan_bwd())));
  check_all_pass(run_cases(std::move(cases), kScalar));
}

TEST_CASE("cpu-scalar's gradients need at most a quarter of the tensors' memory at 65536 steps") {
  const auto& implementation = find_implementation("selective_scan_bwd", "cpu-scalar");
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const char* A : {"real", "complex"})
      for (const char* projections : {"variable", "constant"})
        for (const char* method : {"zoh", "trapezoidal", "rk4"})
          for (const std::int64_t dim : {4, 64, 1536})
            for (const std::int64_t dstate : {1, 16, 64, 128, 256}) {
              const Problem problem = scan_problem({{"dtype", dtype},
                                                    {"A", A},
                                                    {"B", projections},
                                                    {"C", projections},
                                                    {"method", method},
                                                    {"dim", size(dim)},
                                                    {"dstate", size(dstate)},
                                                    {"seqlen", size(65536)}},
                                                   selective_scan_bwd());
              INFO(problem.id());
              CHECK(static_cast<double>(implementation.workspace_bytes(problem)) <=
                    0.25 * tensor_bytes(problem));
            }
}
