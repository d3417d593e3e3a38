// Every CUDA implementation of ssd_chunk_scan_fwd, and of cu_seqlens every one, against the fp64 reference, at the sizes where its code
// changes path. (Of all devices, on random problems: agreement_test.cpp.)

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/axes.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem problem_of(Axes axes, const OpSpec& op = ssd_chunk_scan_fwd()) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", size(2)},
                  {"seqlen", size(70)},
                  {"nheads", size(2)},
                  {"headdim", size(5)},
                  {"dstate", size(6)},
                  {"final_states", true}});
  return {op, axes};
}

/// Sizes of P and N: one; the 16 and 32 that products and threads are cut into, and one more; a block; two;
/// the limit.
constexpr std::int64_t kSizes[] = {1, 16, 33, 64, 128, 256};
/// One step; around the 16 of a tile and the 64 of a chunk; several chunks and a tail of one; enough for time
/// to be cut into segments.
constexpr std::int64_t kLengths[] = {1, 15, 16, 17, 63, 64, 65, 257, 1000};

std::vector<Problem> size_problems() {
  std::vector<Problem> all;
  const char* dtypes[] = {"f32", "f16", "bf16"};
  std::size_t turn = 0;
  for (const auto headdim : kSizes)
    for (const auto dstate : kSizes)
      all.push_back(problem_of({{"dtype", dtypes[turn++ % 3]},
                                {"batch", size(1)},
                                {"headdim", size(headdim)},
                                {"dstate", size(dstate)}}));
  for (const char* dtype : dtypes) {
    for (const auto length : kLengths)
      all.push_back(problem_of({{"dtype", dtype}, {"seqlen", size(length)}, {"initial_states", true}}));
    // Blocks of a whole head; the states of f32 in one stage; more heads than time is cut for.
    all.push_back(problem_of({{"dtype", dtype}, {"headdim", size(64)}, {"dstate", size(128)}}));
    all.push_back(problem_of({{"dtype", dtype}, {"headdim", size(64)}, {"dstate", size(256)}}));
    all.push_back(problem_of({{"dtype", dtype}, {"nheads", size(70)}, {"seqlen", size(300)}}));
  }
  return all;
}

/// Every combination of the optional parts, groups from one to a head each, and packed sequences where time
/// is cut into segments.
std::vector<Problem> option_problems() {
  std::vector<Problem> all;
  const char* dtypes[] = {"f32", "f16", "bf16"};
  const char* skips[] = {"none", "head", "headdim"};
  for (int bits = 0; bits < 64; ++bits)
    all.push_back(problem_of({{"dtype", dtypes[bits % 3]},
                              {"D", skips[bits / 3 % 3]},
                              {"z", (bits & 1) != 0},
                              {"dt_bias", (bits & 2) != 0},
                              {"dt_softplus", (bits & 4) != 0},
                              {"initial_states", (bits & 8) != 0},
                              {"seq_idx", (bits & 16) != 0},
                              {"dt_limit", (bits & 32) != 0 ? "0.01..0.05" : "0..inf"},
                              {"final_states", bits % 5 != 0}}));
  for (const char* dtype : dtypes)
    for (const std::int64_t groups : {1, 2, 4})
      all.push_back(problem_of({{"dtype", dtype},
                                {"nheads", size(4)},
                                {"groups", size(groups)},
                                {"seqlen", size(700)},
                                {"headdim", size(16)},
                                {"dstate", size(32)},
                                {"seq_idx", true},
                                {"initial_states", true}}));
  return all;
}

/// Sequences of cu_seqlens: shorter than a chunk, of one step, without steps, as many as fill the GPU and so few
/// that time is cut into segments.
std::vector<Problem> packed_problems() {
  std::vector<Problem> all;
  const char* dtypes[] = {"f32", "bf16", "f16"};
  const char* lengths[] = {"ragged", "equal", "with-empty"};
  std::size_t turn = 0;
  for (const std::int64_t seqlen : {1, 64, 200, 1000, 4000})
    for (const std::int64_t sequences : {1, 2, 3, 4, 9, 100})
      for (const bool states : {false, true}) {
        all.push_back(problem_of({{"dtype", dtypes[turn % 3]},
                                  {"batch", size(1)},
                                  {"seqlen", seqlen},
                                  {"headdim", size(turn % 2 == 0 ? 16 : 5)},
                                  {"dstate", size(turn % 2 == 0 ? 32 : 6)},
                                  {"cu_seqlens", true},
                                  {"sequences", sequences},
                                  {"lengths", lengths[turn / 2 % 3]},
                                  {"initial_states", states},
                                  {"final_states", turn % 5 != 0}}));
        ++turn;
      }
  return all;
}

void check_all(const std::vector<Problem>& problems, const std::string& distribution,
               const DeviceInfo& device) {
  const auto [passed, skipped, failures] = verdicts_of(problems, device, distribution);
  CHECK(failures == "");
  for (const char* name : {"cuda-chunked", "cuda-chunked-f32"}) CHECK(passed.at(name) == problems.size());
}

}  // namespace

TEST_CASE("CUDA implementations of ssd_chunk_scan_fwd agree with the reference at every boundary size",
          "[gpu][ssd_fwd]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
      check_all(size_problems(), distribution, gpu);
}

TEST_CASE("CUDA implementations of ssd_chunk_scan_fwd agree with the reference for every option",
          "[gpu][ssd_fwd]") {
  for (const auto& gpu :
       gpus())  // trained: steps of 100 beside those of 0.001, in sequences that share a chunk
    for (const char* distribution : {"mamba", "trained"}) check_all(option_problems(), distribution, gpu);
}

TEST_CASE("CUDA implementations of ssd_chunk_scan_fwd agree with the reference on cu_seqlens",
          "[gpu][ssd_fwd]") {
  const auto problems = packed_problems();
  const auto for_hopper =
      static_cast<std::size_t>(std::ranges::count_if(problems, [](const Problem& problem) {
        return problem.size("dstate") % 8 == 0 &&
               (problem.dtype() != DType::f32 || problem.size("sequences") == 1);
      }));
  for (const auto& gpu : gpus()) {
    auto [passed, skipped, failures] = verdicts_of(packed_problems(), gpu);
    CHECK(failures == "");
    CHECK(passed["cuda-chunked"] == packed_problems().size());
    if (gpu.details.at("compute_capability") == "9.0") CHECK(passed["cuda-hopper"] == for_hopper);
    CHECK(passed["cuda-chunked-f32"] == packed_problems().size());
  }
}

TEST_CASE("CPU implementations of ssd_chunk_scan_fwd agree with the reference on cu_seqlens") {
  auto [passed, skipped, failures] = verdicts_of(packed_problems(), list_devices().front());
  CHECK(failures == "");
  CHECK(passed["cpu-scalar"] == packed_problems().size());
  CHECK(passed["cpu-simd"] == packed_problems().size());
}

namespace {

/// Packed problems with states on the way, in a few sequences and where there are more stops than those have
/// chunks.
std::vector<Problem> stopping_problems() {
  std::vector<Problem> problems;
  for (const auto& packed : packed_problems()) {
    const std::int64_t seqlen = packed.size("seqlen");
    if (seqlen < 4000)
      problems.push_back(
          packed.with({{"states_at", std::min<std::int64_t>(seqlen, problems.size() % 2 == 0 ? 7 : 40)}}));
  }
  return problems;
}

}  // namespace

TEST_CASE("CPU implementations of ssd_chunk_scan_fwd agree with the reference on states on the way") {
  const auto problems = stopping_problems();
  auto [passed, skipped, failures] = verdicts_of(problems, list_devices().front());
  CHECK(failures == "");
  CHECK(passed["cpu-scalar"] == problems.size());
  CHECK(passed["cpu-simd"] == problems.size());
}

TEST_CASE("cuda-chunked agrees with the reference on states on the way", "[gpu][ssd_fwd]") {
  const auto problems = stopping_problems();
  for (const auto& gpu : gpus()) {
    auto [passed, skipped, failures] = verdicts_of(problems, gpu);
    CHECK(failures == "");
    CHECK(passed["cuda-chunked"] == problems.size());
    CHECK(passed["cuda-chunked-f32"] == problems.size());
  }
}

namespace {

/// States in 16 bits: of batches, in segments of time too, of packed sequences and on their way.
std::vector<Problem> narrow_state_problems() {
  std::vector<Problem> problems;
  for (const char* state : {"f16", "bf16"})
    for (const char* dtype : {"f32", "f16", "bf16"})
      for (const bool packed : {false, true})
        for (const std::int64_t seqlen : {1, 90, 1500}) {
          Axes axes{{"dtype", dtype},       {"state_dtype", state},   {"initial_states", true},
                    {"final_states", true}, {"seqlen", size(seqlen)}, {"batch", size(packed ? 1 : 2)},
                    {"headdim", size(16)},  {"dstate", size(24)}};
          if (packed)
            axes.merge(Axes{{"cu_seqlens", true},
                            {"sequences", size(4)},
                            {"lengths", "with-empty"},
                            {"states_at", size(std::min<std::int64_t>(seqlen, 9))}});
          problems.push_back(problem_of(axes));
        }
  return problems;
}

}  // namespace

TEST_CASE("CPU implementations of ssd_chunk_scan_fwd agree with the reference on states in 16 bits") {
  const auto problems = narrow_state_problems();
  auto [passed, skipped, failures] = verdicts_of(problems, list_devices().front());
  CHECK(failures == "");
  CHECK(passed["cpu-scalar"] == problems.size());
  CHECK(passed["cpu-simd"] == problems.size());
}

TEST_CASE("CUDA implementations of ssd_chunk_scan_fwd agree with the reference on states in 16 bits",
          "[gpu][ssd_fwd]") {
  const auto problems = narrow_state_problems();
  for (const auto& gpu : gpus()) {
    auto [passed, skipped, failures] = verdicts_of(problems, gpu);
    CHECK(failures == "");
    CHECK(passed["cuda-chunked"] == problems.size());
    if (gpu.details.at("compute_capability") == "9.0")
      CHECK(passed["cuda-hopper"] == problems.size() / 6 * 5);  // f32: batches alone
  }
}

TEST_CASE("cuda-chunked gives the same whatever the chunk_size, gradients too", "[gpu][ssd_fwd]") {
  Selection selection;
  selection.impl = "cuda-chunked*";
  for (const auto& gpu : gpus())
    for (const OpSpec* op : {&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()})
      for (const char* dtype : {"f32", "f16", "bf16"}) {
        std::map<std::string, std::set<double>> errors;  // exactly equal outputs have exactly equal errors
        for (const std::int64_t chunk_size : {32, 64, 100, 256}) {
          const Problem problem =
              problem_of({{"dtype", dtype}, {"seqlen", size(500)}, {"chunk_size", size(chunk_size)}}, *op);
          for (const auto& result : run_cases({make_case(problem)}, selection, gpu)) {
            if (result.status == Status::skip) continue;
            INFO(result.impl << " " << result.the_case.id() << ": " << result.reason);
            CHECK(result.status == Status::pass);
            for (const auto& [name, output] : result.outputs)
              errors[result.impl + " " + name].insert(output.rel_l2);
          }
        }
        CHECK(!errors.empty());
        for (const auto& [key, values] : errors) {
          INFO(key << " " << dtype);
          CHECK(values.size() == 1);
        }
      }
}
