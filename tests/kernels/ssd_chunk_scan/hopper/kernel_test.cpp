// cuda-hopper against the fp64 reference, at the sizes where its code changes path. (What all implementations
// have in common: forward_test.cpp.)

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "kernels/ssd_chunk_scan/hopper_problems.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/find_implementation.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem problem_of(Axes axes) {
  axes.merge(Axes{{"dtype", "bf16"},
                  {"batch", size(2)},
                  {"seqlen", size(200)},
                  {"nheads", size(2)},
                  {"headdim", size(64)},
                  {"dstate", size(128)},
                  {"final_states", true},
                  {"initial_states", true},
                  {"D", "head"}});
  return {ssd_chunk_scan_fwd(), axes};
}

/// Around a chunk, its slabs of 16 steps, and the two or three chunks of rings.
std::vector<Problem> length_problems() {
  std::vector<Problem> all;
  for (const std::int64_t seqlen : {1, 15, 16, 17, 63, 64, 65, 128, 129, 192, 256, 257, 1000})
    for (const bool z : {false, true})
      all.push_back(problem_of({{"seqlen", size(seqlen)}, {"z", z}, {"nheads", size(3)}}));
  return all;
}

/// Rows and states that fill a tile, part of one, and more than one.
std::vector<Problem> size_problems() {
  std::vector<Problem> all;
  for (const std::int64_t headdim : {8, 40, 64, 72, 128, 256})
    for (const std::int64_t dstate : {8, 64, 72, 128})
      for (const bool z : {false, true})
        all.push_back(
            problem_of({{"headdim", size(headdim)}, {"dstate", size(dstate)}, {"z", z}, {"D", "headdim"}}));
  return all;
}

/// Items of one and of two tiles, odd heads in a group, and more items than multiprocessors: cut items.
std::vector<Problem> plan_problems() {
  std::vector<Problem> all;
  for (const std::int64_t nheads : {66, 134, 198, 300, 528})
    for (const std::int64_t groups : {1, 2, 6})
      if (nheads % groups == 0)
        all.push_back(problem_of({{"nheads", size(nheads)},
                                  {"groups", size(groups)},
                                  {"batch", size(1)},
                                  {"z", nheads % 4 == 0},
                                  {"seqlen", size(330)}}));
  all.push_back(problem_of({{"nheads", size(6)}, {"groups", size(6)}, {"seq_idx", true}}));
  return all;
}

/// Long and few enough for items in parts: of two tiles and of one, with and without absent tiles.
std::vector<Problem> part_problems() {
  std::vector<Problem> all;
  for (const std::int64_t seqlen : {1100, 4096, 6001})
    for (const std::int64_t nheads : {1, 3, 4, 18})
      for (const bool seq_idx : {false, true})
        if (nheads < 18 || seqlen == 4096)
          all.push_back(problem_of({{"seqlen", size(seqlen)},
                                    {"nheads", size(nheads)},
                                    {"batch", size(1)},
                                    {"headdim", size(nheads == 3 ? 72 : 64)},
                                    {"dstate", size(nheads == 4 ? 64 : 128)},
                                    {"z", nheads != 4},
                                    {"seq_idx", seq_idx}}));
  return all;
}

}  // namespace

TEST_CASE("cuda-hopper agrees with the reference where items are in parts", "[gpu][ssd_fwd][ssd_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A"})
    check_all(part_problems(), distribution);
}

TEST_CASE("cuda-hopper agrees with the reference at every length", "[gpu][ssd_fwd][ssd_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(length_problems(), distribution);
}

TEST_CASE("cuda-hopper agrees with the reference at every size", "[gpu][ssd_fwd][ssd_hopper]") {
  check_all(size_problems(), "mamba");
  check_all(size_problems(), "large_A");
}

TEST_CASE("cuda-hopper agrees with the reference however items are cut", "[gpu][ssd_fwd][ssd_hopper]") {
  check_all(plan_problems(), "mamba");
}

TEST_CASE("cuda-hopper agrees with the reference for every option", "[gpu][ssd_fwd][ssd_hopper]") {
  check_all(option_problems(problem_of), "mamba");
}

TEST_CASE("cuda-hopper agrees with the reference in f16", "[gpu][ssd_fwd][ssd_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(in_f16(length_problems()), distribution);
  check_all(in_f16(size_problems()), "mamba");
  check_all(in_f16(part_problems()), "mamba");
  check_all(in_f16(part_problems()), "tiny_delta");
  check_all(in_f16(plan_problems()), "mamba");
  check_all(in_f16(option_problems(problem_of)), "mamba");
}

TEST_CASE("cuda-hopper agrees with the reference for steps from 5e-4 to 70 in a chunk",
          "[gpu][ssd_fwd][ssd_hopper]") {
  check_all(of_every_kernel(problem_of), "trained");
}

TEST_CASE("cuda-hopper says what it does not take") {
  if (std::ranges::find(implementations(), "cuda-hopper", &Implementation::name) == implementations().end()) {
    WARN("skipped: built without CUDA");
    return;
  }
  const auto reason = [](Axes axes) {
    return find_implementation("ssd_chunk_scan_fwd", "cuda-hopper").unsupported(problem_of(std::move(axes)));
  };
  CHECK(reason({{"dtype", "f32"}}) == "needs tensors of 16-bit elements");
  CHECK(reason({{"headdim", size(60)}}) ==
        "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors");
  CHECK(reason({{"dstate", size(136)}}) ==
        "needs dstate of at most 128: states of 64 rows are held in registers");
}
