// Every registered implementation of linear_scan against the fp64 reference at the sizes where code changes
// path.

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"
#include "support/gpu.h"
#include "support/run_plan.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::vector<Case> boundary_cases(const std::string& distribution) {
  std::vector<Case> cases;
  const auto add = [&](const char* dtype, std::int64_t seqlen, std::int64_t dim) {
    cases.push_back(
        make_case(Problem(linear_scan(),
                          {{"dtype", dtype}, {"batch", std::int64_t{2}}, {"seqlen", seqlen}, {"dim", dim}}),
                  distribution));
  };
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    // One step; around the 16 steps of a tile of cuda-sequential and the 32 that cuda-lookback holds; around
    // the tiles of 64 and 128 steps, and the 7 and 8 tiles of cuda-sequential; two tiles and a tail of one
    // step; a long row. Rows of channels that are not aligned, and that are.
    for (const std::int64_t seqlen :
         {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 111, 112, 113, 127, 128, 129, 257, 4097})
      for (const std::int64_t dim : {3, 8}) add(dtype, seqlen, dim);
    // One channel; around the 8 channels of the tiled scans; around the 32 and 64 of a warp, with rows that
    // are aligned to 2, 4 and 16 bytes; around the 128 of cuda-lookback.
    for (const std::int64_t dim : {1, 7, 8, 9, 31, 32, 33, 34, 40, 62, 63, 64, 65, 66, 72, 127, 128, 129})
      add(dtype, 70, dim);
    // Past the 96 blocks of 512 bytes from which on cuda-sequential has four warps in each, in f32 and in f16
    // and bf16; more steps than it has in shared memory.
    for (const std::int64_t dim : {6148, 12360}) add(dtype, 97, dim);
  }
  return cases;
}

void check_all(const DeviceInfo& device) {
  for (const auto& distribution : distributions()) {
    std::string failures;
    std::set<std::string> passed;
    for (const auto& result : run_cases(boundary_cases(distribution.name), {}, device)) {
      if (result.status == Status::pass) passed.insert(result.impl);
      if (result.status != Status::pass && result.status != Status::skip)
        failures += fmt::format("{} {}: {}\n", result.impl, result.the_case.id(), result.reason);
    }
    CHECK(failures == "");
    CHECK(passed.size() >= (device.kind == DeviceKind::cpu ? 1U : 4U));
  }
}

}  // namespace

TEST_CASE("CPU implementations of linear_scan agree with the reference at every boundary size") {
  check_all(list_devices().front());
}

TEST_CASE("CUDA implementations of linear_scan agree with the reference at every boundary size", "[gpu]") {
  if (const auto gpu = gpu_or_skip()) check_all(*gpu);
}
