// cuda-hopper of Mamba-3's scan against the fp64 reference, at the sizes where its code changes path. (What
// all implementations have in common: implementations_test.cpp.)

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "kernels/ssd_chunk_scan/hopper_problems.h"
#include "support/find_implementation.h"
#include "support/mamba3_problem.h"

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
                  {"rope_angles", size(32)},
                  {"z", true},
                  {"D", true},
                  {"initial_states", true},
                  {"final_states", true}});
  return mamba3_problem(std::move(axes));
}

/// Around a chunk, its slabs of 16 steps, the segments and spans of the preparation, and the rings.
std::vector<Problem> length_problems() {
  std::vector<Problem> all;
  for (const std::int64_t seqlen : {1, 15, 16, 17, 63, 64, 65, 128, 129, 255, 256, 257, 1000})
    for (const char* pairing :
         {"interleaved", "halves"})  // q and k rotated inside of the scan, and before it
      all.push_back(problem_of(
          {{"seqlen", seqlen}, {"z", seqlen % 4 != 1}, {"nheads", size(3)}, {"rotary_pairing", pairing}}));
  return all;
}

/// Rows and states that fill a tile, part of one, and more than one; pairs that fill lanes and that do not.
std::vector<Problem> size_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t headdim : {8, 40, 64, 72, 128, 256})
    for (const std::int64_t dstate : {8, 64, 72, 128})
      for (const char* pairing : {"interleaved", "halves"}) {
        const std::int64_t angles[]{dstate / 2, 1, dstate / 4, dstate / 2 - 1};
        all.push_back(problem_of({{"headdim", headdim},
                                  {"dstate", dstate},
                                  {"rope_angles", angles[turn++ % 4]},
                                  {"rotary_pairing", pairing},
                                  {"z", turn % 3 != 0}}));
      }
  return all;
}

/// More heads than multiprocessors (cut items), and long ones in parts; heads that share Q and K or not.
std::vector<Problem> plan_problems() {
  std::vector<Problem> all;
  for (const auto& [nheads, groups, seqlen] : {std::tuple{66, 1, 330},
                                               {134, 2, 330},
                                               {300, 6, 130},
                                               {309, 3, 130},
                                               {9, 3, 1100},
                                               {1, 1, 6001},
                                               {18, 18, 2048}})
    for (const bool z : {false, true})
      for (const char* pairing : {"interleaved", "halves"})
        all.push_back(problem_of({{"nheads", size(nheads)},
                                  {"rotary_pairing", pairing},
                                  {"groups", size(groups)},
                                  {"seqlen", size(seqlen)},
                                  {"batch", size(1)},
                                  {"dstate", size(z ? 128 : 64)},
                                  {"rope_angles", size(nheads == 9 ? 16 : 32)},
                                  {"z", z}}));
  return all;
}

/// Pairs that fill a warp that rotates and that do not, in rows of one tile and of two; cut items, too.
std::vector<Problem> rotation_problems() {
  std::vector<Problem> all;
  for (const std::int64_t dstate : {24, 64, 72, 128})
    for (const std::int64_t angles : {8, 24, 32})
      for (const std::int64_t nheads : {2, 134})
        if (angles <= dstate / 2)
          all.push_back(problem_of({{"nheads", nheads},
                                    {"headdim", size(nheads == 2 ? 136 : 8)},
                                    {"dstate", dstate},
                                    {"rope_angles", angles},
                                    {"z", angles != 24}}));
  return all;
}

/// As many heads as make two of them a block, or two row tiles of one; the second may be absent, and a block
/// may have more than one item. Lengths around its chunks, sizes, options.
std::vector<Problem> pair_problems() {
  std::vector<Problem> all;
  const auto add = [&](Axes axes) {
    axes.merge(Axes{{"batch", size(1)}, {"nheads", size(244)}, {"seqlen", size(70)}});
    all.push_back(problem_of(std::move(axes)));
  };
  for (const std::int64_t seqlen : {1, 15, 64, 65, 128, 200}) add({{"seqlen", seqlen}});
  add({{"nheads", size(246)}, {"groups", size(2)}});
  add({{"nheads", size(528)}});
  for (const std::int64_t headdim : {8, 72})
    for (const std::int64_t dstate : {24, 64, 72, 128})
      add({{"nheads", size(headdim == 8 ? 244 : 122)},
           {"headdim", headdim},
           {"dstate", dstate},
           {"rope_angles", size(dstate == 24 ? 8 : 24)}});
  for (int bits = 0; bits < 16; ++bits)
    add({{"groups", size(1 + bits % 2)},
         {"z", (bits & 1) != 0},
         {"D", (bits & 2) != 0},
         {"initial_states", (bits & 4) != 0},
         {"final_states", (bits & 8) != 0}});
  return all;
}

std::vector<Problem> option_problems() {
  std::vector<Problem> all;
  for (int bits = 0; bits < 16; ++bits)
    all.push_back(problem_of({{"nheads", size(6)},
                              {"groups", size(bits % 3 == 0   ? 1
                                              : bits % 3 == 1 ? 2
                                                              : 6)},
                              {"rope_angles", size(bits % 2 == 0 ? 32 : 5)},
                              {"rotary_pairing", bits % 4 < 2 ? "interleaved" : "halves"},
                              {"z", (bits & 1) != 0},
                              {"D", (bits & 2) != 0},
                              {"initial_states", (bits & 4) != 0},
                              {"final_states", (bits & 8) != 0}}));
  return all;
}

/// Sequences in a batch of 1; of four and more one is empty and one has a step.
Problem packed_problem_of(std::int64_t sequences, std::int64_t seqlen, Axes axes) {
  axes.merge(Axes{{"batch", size(1)}, {"cu_seqlens", true}, {"seqlen", seqlen}, {"sequences", sequences}});
  return problem_of(std::move(axes));
}

/// Around chunks; more sequences than threads that plan; sizes and all options.
std::vector<Problem> packed_problems() {
  std::vector<Problem> all;
  const auto add = [&](std::int64_t sequences, std::int64_t seqlen, Axes axes) {
    all.push_back(packed_problem_of(sequences, seqlen, std::move(axes)));
  };
  for (const std::int64_t sequences : {1, 2, 3, 5, 9})
    for (const std::int64_t seqlen : {1, 17, 64, 65, 130, 257, 1000})
      add(sequences, seqlen,
          {{"nheads", size(3)}, {"z", seqlen % 4 != 1}, {"dstate", size(sequences == 5 ? 72 : 128)}});
  add(300, 3000, {{"nheads", size(2)}});
  for (const std::int64_t headdim : {8, 72, 136})
    for (const std::int64_t angles : {8, 24})
      add(4, 300, {{"headdim", headdim}, {"rope_angles", angles}, {"dstate", size(angles == 8 ? 24 : 64)}});
  for (int bits = 0; bits < 16; ++bits)
    add(7, 500,
        {{"nheads", size(6)},
         {"groups", size(bits % 3 == 0   ? 1
                         : bits % 3 == 1 ? 2
                                         : 6)},
         {"z", (bits & 1) != 0},
         {"D", (bits & 2) != 0},
         {"initial_states", (bits & 4) != 0},
         {"final_states", (bits & 8) != 0}});
  return all;
}

/// Where q and k are rotated before the scan: other pairings and numbers of pairs, around segments and spans
/// of the preparation; few long sequences, in parts.
std::vector<Problem> packed_prepared_problems() {
  std::vector<Problem> all;
  for (const std::int64_t sequences : {2, 5, 40})
    for (const std::int64_t seqlen : {1, 64, 65, 300, 1100})
      for (const char* pairing : {"interleaved", "halves"})
        all.push_back(packed_problem_of(sequences, seqlen,
                                        {{"nheads", size(3)},
                                         {"rotary_pairing", pairing},
                                         {"rope_angles", size(seqlen == 64 ? 5 : 36)},
                                         {"dstate", size(sequences == 5 ? 72 : 128)},
                                         {"initial_states", seqlen != 65},
                                         {"z", sequences != 5}}));
  for (const std::int64_t sequences : {2, 3, 5})
    for (const std::int64_t nheads : {1, 6})
      all.push_back(packed_problem_of(sequences, 4000, {{"nheads", nheads}, {"z", nheads == 1}}));
  return all;
}

/// Items that are cut, and that begin in any chunk of a block.
std::vector<Problem> packed_plan_problems() {
  std::vector<Problem> all;
  for (const auto& [nheads, seqlen] : {std::pair{66, 330}, {134, 330}, {300, 130}})
    for (const bool z : {false, true})
      all.push_back(packed_problem_of(
          6, seqlen,
          {{"nheads", size(nheads)}, {"groups", size(2)}, {"dstate", size(z ? 64 : 128)}, {"z", z}}));
  return all;
}

Problem mimo_problem_of(Axes axes) {
  axes.merge(Axes{{"dtype", "bf16"},
                  {"batch", size(2)},
                  {"seqlen", size(70)},
                  {"nheads", size(3)},
                  {"headdim", size(64)},
                  {"dstate", size(128)},
                  {"rope_angles", size(32)},
                  {"mimo_rank", size(4)},
                  {"z", true},
                  {"D", true},
                  {"initial_states", true},
                  {"final_states", true}});
  return mamba3_problem(std::move(axes), mamba3_mimo_fwd());
}

/// So many heads, and options by bits: Z, D, input states, final states, the sum over ranks; groups and the
/// norm with them.
Axes mimo_options_of(int bits, std::int64_t nheads) {
  const bool reduces = (bits & 16) != 0;
  return {{"nheads", nheads},
          {"groups", size(bits % 3 == 2 ? nheads : 1 + bits % 3)},
          {"out_reduce", reduces},
          {"outproj_norm", reduces && bits % 4 == 1},
          {"z", (bits & 1) != 0},
          {"D", (bits & 2) != 0},
          {"initial_states", (bits & 4) != 0},
          {"final_states", (bits & 8) != 0}};
}

/// Every rank, lengths around its chunks and segments, sizes, options; cut items and items in parts.
std::vector<Problem> mimo_problems() {
  std::vector<Problem> all;
  for (const std::int64_t rank : {1, 2, 4, 8})
    for (const std::int64_t seqlen : {1, 7, 8, 9, 16, 17, 33, 64, 65, 300})
      all.push_back(mimo_problem_of(
          {{"mimo_rank", rank}, {"seqlen", seqlen}, {"dstate", size(seqlen % 2 == 0 ? 64 : 128)}}));
  for (const std::int64_t headdim : {8, 72, 128, 256})
    for (const std::int64_t dstate : {8, 72, 128})
      for (const bool norm : {false, true})
        all.push_back(mimo_problem_of({{"headdim", headdim},
                                       {"dstate", dstate},
                                       {"rope_angles", dstate / 4},
                                       {"mimo_rank", size(norm ? 4 : 2)},
                                       {"outproj_norm", norm}}));
  for (int bits = 0; bits < 32; ++bits) {
    Axes axes = mimo_options_of(bits, 6);
    axes.merge(Axes{{"rotary_pairing", bits % 5 < 2 ? "interleaved" : "halves"}});
    all.push_back(mimo_problem_of(std::move(axes)));
  }
  for (const auto& [nheads, groups, seqlen] : {std::tuple{134, 2, 80}, {9, 3, 500}, {1, 1, 1500}})
    all.push_back(mimo_problem_of(
        {{"nheads", size(nheads)}, {"groups", size(groups)}, {"seqlen", size(seqlen)}, {"batch", size(1)}}));
  return all;
}

/// Packed sequences of every rank, around chunks; cut items and items in parts; all options; what the fused
/// scan takes of a batch.
std::vector<Problem> packed_mimo_problems() {
  std::vector<Problem> all;
  const auto add = [&](std::int64_t sequences, std::int64_t seqlen, Axes axes) {
    axes.merge(Axes{{"batch", size(1)}, {"cu_seqlens", true}, {"seqlen", seqlen}, {"sequences", sequences}});
    all.push_back(mimo_problem_of(std::move(axes)));
  };
  for (const std::int64_t rank : {1, 2, 4, 8})
    for (const std::int64_t seqlen : {1, 16, 17, 65, 200})
      add(5, seqlen, {{"mimo_rank", rank}, {"dstate", size(seqlen % 2 == 0 ? 64 : 128)}});
  for (int bits = 0; bits < 32; ++bits) {
    Axes axes = mimo_options_of(bits, 6);
    axes.merge(Axes{{"rotary_pairing", bits % 5 < 2 ? "interleaved" : "halves"}});
    add(4, 90, std::move(axes));
  }
  add(6, 80, {{"nheads", size(134)}, {"groups", size(2)}});
  add(2, 1500, {{"nheads", size(1)}});
  add(5, 300, {{"nheads", size(20)}});
  return all;
}

/// What the fused scan of rank 4 takes: as many heads as it needs.
Problem fused_problem_of(Axes axes) {
  axes.merge(Axes{{"nheads", size(20)}, {"rope_angles", size(32)}});
  return mimo_problem_of(std::move(axes));
}

/// Lengths around its chunks of 16 steps, warps of four, and rings; sizes; all options.
std::vector<Problem> fused_problems() {
  std::vector<Problem> all;
  for (const std::int64_t seqlen : {1, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 80, 81, 300})
    all.push_back(fused_problem_of({{"seqlen", seqlen}, {"rope_angles", size(seqlen % 2 == 0 ? 32 : 64)}}));
  for (const std::int64_t headdim : {8, 24, 56, 64})
    for (const std::int64_t angles : {4, 20, 36, 64})
      for (const bool norm : {false, true})
        all.push_back(fused_problem_of(
            {{"headdim", headdim}, {"rope_angles", angles}, {"seqlen", size(37)}, {"outproj_norm", norm}}));
  for (int bits = 0; bits < 32; ++bits) {
    Axes axes = mimo_options_of(bits, 20);
    axes.merge(Axes{{"rope_angles", size(bits % 5 < 3 ? 32 : 48)}});
    all.push_back(fused_problem_of(std::move(axes)));
  }
  // Two heads a block: more heads than multiprocessors.
  for (const std::int64_t seqlen : {1, 15, 17, 33, 64, 200})
    all.push_back(fused_problem_of({{"nheads", size(70)}, {"seqlen", seqlen}}));
  for (const std::int64_t headdim : {8, 24, 56})
    all.push_back(fused_problem_of(
        {{"nheads", size(70)}, {"headdim", headdim}, {"seqlen", size(37)}, {"outproj_norm", true}}));
  all.push_back(fused_problem_of({{"nheads", size(72)}, {"groups", size(2)}, {"rope_angles", size(20)}}));
  for (int bits = 0; bits < 32; bits += 3) all.push_back(fused_problem_of(mimo_options_of(bits, 70)));
  return all;
}

}  // namespace

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference where it fuses MIMO",
          "[gpu][mamba3][mamba3_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta", "trained"})
    check_all(fused_problems(), distribution);
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference where it fuses MIMO in f16",
          "[gpu][mamba3][mamba3_hopper]") {
  for (const char* distribution : {"mamba", "large_A", "tiny_delta"})
    check_all(in_f16(fused_problems()), distribution);
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference in MIMO", "[gpu][mamba3][mamba3_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "trained"})
    check_all(mimo_problems(), distribution);
  check_all(in_f16(mimo_problems()), "mamba");
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference at every length", "[gpu][mamba3][mamba3_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta", "trained"})
    check_all(length_problems(), distribution);
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference at every size", "[gpu][mamba3][mamba3_hopper]") {
  check_all(size_problems(), "mamba");
  check_all(size_problems(), "large_A");
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference however items are cut",
          "[gpu][mamba3][mamba3_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay"}) check_all(plan_problems(), distribution);
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference with two heads a block",
          "[gpu][mamba3][mamba3_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A"})
    check_all(pair_problems(), distribution);
  for (const char* distribution : {"mamba", "tiny_delta"}) check_all(in_f16(pair_problems()), distribution);
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference for all numbers of pairs",
          "[gpu][mamba3][mamba3_hopper]") {
  check_all(rotation_problems(), "mamba");
  check_all(in_f16(rotation_problems()), "mamba");
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference for every option",
          "[gpu][mamba3][mamba3_hopper]") {
  check_all(option_problems(), "mamba");
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference in f16", "[gpu][mamba3][mamba3_hopper]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta", "trained"})
    check_all(in_f16(length_problems()), distribution);
  check_all(in_f16(size_problems()), "mamba");
  check_all(in_f16(plan_problems()), "tiny_delta");
  check_all(in_f16(option_problems()), "mamba");
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference on packed sequences",
          "[gpu][mamba3][mamba3_hopper][mamba3_packed]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta", "trained"})
    check_all(packed_problems(), distribution);
  check_all(packed_plan_problems(), "mamba");
  for (const char* distribution : {"mamba", "slow_decay", "trained"})
    check_all(packed_prepared_problems(), distribution);
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference on packed sequences in MIMO",
          "[gpu][mamba3][mamba3_hopper][mamba3_packed]") {
  for (const char* distribution : {"mamba", "large_A", "trained"})
    check_all(packed_mimo_problems(), distribution);
  check_all(in_f16(packed_mimo_problems()), "mamba");
}

TEST_CASE("Mamba-3's cuda-hopper agrees with the reference on packed sequences in f16",
          "[gpu][mamba3][mamba3_hopper][mamba3_packed]") {
  for (const char* distribution : {"mamba", "tiny_delta", "trained"})
    check_all(in_f16(packed_problems()), distribution);
  check_all(in_f16(packed_plan_problems()), "mamba");
  check_all(in_f16(packed_prepared_problems()), "mamba");
}

TEST_CASE("Mamba-3's cuda-hopper says what it does not take", "[mamba3]") {
  const auto is_hopper = [](const Implementation& implementation) {
    return implementation.name == "cuda-hopper" && implementation.op == "mamba3_siso_fwd";
  };
  if (std::ranges::none_of(implementations(), is_hopper)) {
    WARN("skipped: built without CUDA");
    return;
  }
  const auto reason = [](Axes axes) {
    return find_implementation("mamba3_siso_fwd", "cuda-hopper").unsupported(problem_of(std::move(axes)));
  };
  CHECK(reason({{"dtype", "f32"}}) == "needs tensors of 16-bit elements");
  CHECK(reason({{"headdim", size(60)}}) ==
        "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors");
  CHECK(reason({{"dstate", size(136)}}) ==
        "needs dstate of at most 128: states of 64 rows are held in registers");
  const auto& mimo = find_implementation("mamba3_mimo_fwd", "cuda-hopper");
  CHECK(mimo.unsupported(mimo_problem_of({{"mimo_rank", size(3)}})) ==
        "needs a rank of 1, 2, 4 or 8: chunks are 64 rows of steps and ranks");
  const Problem normed = mamba3_problem({{"dtype", "bf16"},
                                         {"batch", size(1)},
                                         {"seqlen", size(70)},
                                         {"headdim", size(8)},
                                         {"dstate", size(8)},
                                         {"mimo_rank", size(4)},
                                         {"z", true},
                                         {"outproj_norm", true}},
                                        mamba3_mimo_bwd());
  CHECK(find_implementation("mamba3_mimo_bwd", "cuda-hopper").unsupported(normed) ==
        "does not support outproj_norm: dy would need y before the products");
}
