// Implementations that say they are deterministic, run twice: every bit of every output is the same. Both
// runs start from memory that is filled with the same pattern, so that what is never written does not show
// here but against the reference.

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"
#include "support/gpu.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

using Bytes = std::vector<char>;

/// Outputs of all deterministic implementations by case, implementation and tensor.
std::map<std::string, Bytes> outputs_of(const Plan& plan) {
  std::map<std::string, Bytes> all;
  RunnerOptions options{
      .verify = false, .time = false, .timing = {}, .repro = [](const auto&...) { return std::string(); }};
  Collector unused;
  const std::atomic<bool> never{false};
  Runner runner(plan, options, unused, never);
  runner.on_finished([&](const FinishedJob& job) {
    if (!job.implementation.deterministic) return;
    for (const auto& output : job.outputs) {
      const char* begin = static_cast<const char*>(output.buffer.data());
      all[job.result.the_case.id() + " " + job.implementation.name + " " + output.spec.name] =
          Bytes(begin, begin + output.buffer.bytes());
    }
  });
  runner.run();
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const OpSpec* op : {&selective_scan_fwd(), &selective_scan_bwd()})
    for (const char* dtype : {"f32", "bf16"})
      for (const char* A : {"real", "complex"})
        for (const std::int64_t dim : {3, 260})
          for (const std::int64_t seqlen : {33, 2100}) {
            if (dim * seqlen > 10000) continue;
            all.push_back(make_case(scan_problem({{"dtype", dtype},
                                                  {"A", A},
                                                  {"batch", size(2)},
                                                  {"dim", size(dim)},
                                                  {"seqlen", size(seqlen)},
                                                  {"dstate", size(5)},
                                                  {"z", true},
                                                  {"D", true},
                                                  {"delta_bias", true}},
                                                 *op)));
          }
  for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()})
    for (const char* dtype : {"f32", "bf16"})
      for (const std::int64_t groups : {1, 6})  // sums over heads, and none
        all.push_back(make_case(ssd_problem({{"dtype", dtype},
                                             {"batch", size(2)},
                                             {"seqlen", size(200)},
                                             {"nheads", size(6)},
                                             {"headdim", size(20)},
                                             {"dstate", size(17)},
                                             {"groups", groups},
                                             {"D", "head"},
                                             {"z", true},
                                             {"dt_bias", true},
                                             {"initial_states", true},
                                             {"final_states", true}},
                                            *op)));
  all.push_back(make_case(mamba2_step({{"batch", size(5)}, {"headdim", size(20)}, {"dstate", size(17)}})));
  // The gradients' common case, in several segments of time and two blocks of channels.
  all.push_back(make_case(scan_problem({{"dtype", "bf16"},
                                        {"batch", size(2)},
                                        {"dim", size(70)},
                                        {"seqlen", size(300)},
                                        {"dstate", size(16)},
                                        {"z", true},
                                        {"D", true},
                                        {"delta_bias", true}},
                                       selective_scan_bwd())));
  for (const std::int64_t dim : {67, 72})
    all.push_back(make_case(Problem(
        linear_scan(), {{"dtype", "f32"}, {"batch", size(2)}, {"seqlen", size(4097)}, {"dim", size(dim)}})));
  return all;
}

void check_twice(const DeviceInfo& device) {
  const Plan plan = make_plan(cases(), {device}, {});
  const auto first = outputs_of(plan);
  const auto second = outputs_of(plan);
  CHECK_FALSE(first.empty());
  REQUIRE(first.size() == second.size());
  for (const auto& [name, bytes] : first) {
    INFO(name);
    CHECK(bytes == second.at(name));
  }
}

}  // namespace

TEST_CASE("CPU implementations give the same bits twice") {
  check_twice(list_devices().front());
}

TEST_CASE("CUDA implementations give the same bits twice", "[gpu]") {
  if (const auto gpu = gpu_or_skip()) check_twice(*gpu);
}
