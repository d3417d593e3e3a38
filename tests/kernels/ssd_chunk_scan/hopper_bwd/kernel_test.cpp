// The backward cuda-hopper against the fp64 reference, at the sizes where its code changes path. (What all
// implementations have in common: backward_test.cpp.)

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "kernels/ssd_chunk_scan/hopper_problems.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/find_implementation.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem problem_of(Axes axes) {
  axes.merge(Axes{{"dtype", "bf16"},
                  {"batch", size(2)},
                  {"seqlen", size(200)},
                  {"nheads", size(3)},
                  {"headdim", size(64)},
                  {"dstate", size(128)},
                  {"final_states", true},
                  {"initial_states", true},
                  {"D", "head"},
                  {"z", true}});
  return {ssd_chunk_scan_bwd(), axes};
}

/// Around a chunk, and the two or three chunks of rings.
std::vector<Problem> length_problems() {
  std::vector<Problem> all;
  for (const std::int64_t seqlen : {1, 16, 17, 63, 64, 65, 128, 129, 200, 257, 520})
    for (const bool z : {false, true}) all.push_back(problem_of({{"seqlen", size(seqlen)}, {"z", z}}));
  return all;
}

/// Rows and states that fill a tile and part of one; heads that fill the rings, in one slice and in several.
std::vector<Problem> size_problems() {
  std::vector<Problem> all;
  for (const std::int64_t headdim : {8, 40, 64})
    for (const std::int64_t dstate : {8, 64, 72, 128})
      for (const bool z : {false, true})
        all.push_back(
            problem_of({{"headdim", size(headdim)}, {"dstate", size(dstate)}, {"z", z}, {"D", "headdim"}}));
  for (const std::int64_t groups : {1, 2, 6})
    all.push_back(problem_of({{"nheads", size(12)}, {"groups", size(groups)}, {"batch", size(1)}}));
  all.push_back(problem_of({{"nheads", size(7)}, {"batch", size(300)}, {"seqlen", size(65)}}));
  return all;
}

/// In f32, with as many states as cuda-hopper takes then: sizes that are multiples of 4 only, and options.
std::vector<Problem> f32_problems() {
  std::vector<Problem> all;
  for (const std::int64_t headdim : {4, 44, 64})
    for (const std::int64_t dstate : {68, 100, 128})
      for (const bool z : {false, true})
        all.push_back(
            problem_of({{"headdim", size(headdim)}, {"dstate", size(dstate)}, {"z", z}, {"D", "headdim"}}));
  for (const std::int64_t groups : {1, 2, 6})
    all.push_back(problem_of({{"nheads", size(12)}, {"groups", size(groups)}, {"batch", size(1)}}));
  for (const bool z : {false, true})  // several heads a block
    all.push_back(problem_of({{"nheads", size(7)}, {"batch", size(300)}, {"seqlen", size(65)}, {"z", z}}));
  for (const Problem& problem : option_problems(problem_of))
    all.push_back(problem.with({{"dstate", size(128)}}));
  return in_f32(all);
}

/// Long and few enough for walks in parts.
std::vector<Problem> part_problems() {
  std::vector<Problem> all;
  for (const std::int64_t seqlen : {4096, 6001})
    for (const std::int64_t nheads : {1, 3})
      for (const bool seq_idx : {false, true})
        all.push_back(problem_of({{"seqlen", size(seqlen)},
                                  {"nheads", size(nheads)},
                                  {"batch", size(1)},
                                  {"headdim", size(nheads == 1 ? 64 : 40)},
                                  {"dstate", size(nheads == 1 ? 128 : 64)},
                                  {"z", nheads == 1},
                                  {"seq_idx", seq_idx}}));
  return all;
}

}  // namespace

TEST_CASE("backward cuda-hopper agrees with the reference where walks are in parts",
          "[gpu][ssd_bwd][ssd_hopper_bwd]") {
  for (const char* distribution : {"mamba", "slow_decay"}) check_all(part_problems(), distribution);
}

TEST_CASE("backward cuda-hopper agrees with the reference at every length",
          "[gpu][ssd_bwd][ssd_hopper_bwd]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(length_problems(), distribution);
}

TEST_CASE("backward cuda-hopper agrees with the reference at every size", "[gpu][ssd_bwd][ssd_hopper_bwd]") {
  check_all(size_problems(), "mamba");
  check_all(size_problems(), "large_A");
}

TEST_CASE("backward cuda-hopper agrees with the reference for every option",
          "[gpu][ssd_bwd][ssd_hopper_bwd]") {
  check_all(option_problems(problem_of), "mamba");
}

TEST_CASE("backward cuda-hopper agrees with the reference in f16", "[gpu][ssd_bwd][ssd_hopper_bwd]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(in_f16(length_problems()), distribution);
  check_all(in_f16(size_problems()), "mamba");
  check_all(in_f16(part_problems()), "mamba");
  check_all(in_f16(option_problems(problem_of)), "mamba");
}

TEST_CASE("backward cuda-hopper agrees with the reference in f32",
          "[gpu][ssd_bwd][ssd_hopper_bwd][ssd_tf32]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(in_f32(length_problems()), distribution);
  for (const char* distribution : {"mamba", "trained"}) check_all(f32_problems(), distribution);
}

TEST_CASE("backward cuda-hopper agrees with the reference for steps from 5e-4 to 70 in a chunk",
          "[gpu][ssd_bwd][ssd_hopper_bwd]") {
  check_all(of_every_kernel(problem_of), "trained");
}

TEST_CASE("backward cuda-hopper says what it does not take") {
  if (std::ranges::find(implementations(), "cuda-hopper", &Implementation::name) == implementations().end()) {
    WARN("skipped: built without CUDA");
    return;
  }
  const auto reason = [](Axes axes) {
    return find_implementation("ssd_chunk_scan_bwd", "cuda-hopper").unsupported(problem_of(std::move(axes)));
  };
  CHECK(reason({{"dtype", "f32"}, {"headdim", size(62)}}) ==
        "needs headdim and dstate that are multiples of 4: rows of 16-byte vectors");
  CHECK(reason({{"dtype", "f32"}, {"dstate", size(64)}}) == "needs dstate above 64 where tensors are f32");
  CHECK(reason({{"headdim", size(60)}}) ==
        "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors");
  CHECK(reason({{"headdim", size(72)}}) == "needs headdim of at most 64: a head is one tile");
  CHECK(reason({{"dstate", size(136)}}) ==
        "needs dstate of at most 128: gradients of B and C are held in registers");
}
