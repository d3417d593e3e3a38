// cuda-hopper against the fp64 reference, at the sizes where its code changes path. (What all implementations
// have in common: forward_test.cpp.)

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "kernels/ssd_chunk_scan/hopper_problems.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/find_implementation.h"
#include "support/host_tensors.h"

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

/// Sizes that are multiples of 4 only, which f32 allows.
std::vector<Problem> fours() {
  std::vector<Problem> all;
  for (const std::int64_t headdim : {4, 60, 68})
    for (const std::int64_t dstate : {4, 60, 68, 124})
      all.push_back(
          problem_of({{"headdim", size(headdim)}, {"dstate", size(dstate)}, {"z", true}, {"D", "headdim"}}));
  return all;
}

/// The same with more than 128 states, which have kernels of their own: 136, 192 and 256 in turn.
std::vector<Problem> wide(std::vector<Problem> problems) {
  std::int64_t turn = 0;
  for (Problem& problem : problems) {
    const std::int64_t dstate[] = {256, 136, 192};
    problem = problem.with({{"dstate", size(dstate[turn++ % 3])}});
  }
  return problems;
}

Problem packed_problem_of(Axes axes) {
  axes.merge(Axes{{"batch", size(1)},
                  {"cu_seqlens", true},
                  {"sequences", size(5)},
                  {"seqlen", size(700)},
                  {"nheads", size(3)}});
  return problem_of(std::move(axes));
}

/// Sequences of every length around a chunk and its slabs, each of several in a row; and of many lengths.
std::vector<Problem> packed_length_problems() {
  std::vector<Problem> all;
  for (const std::int64_t length : {1, 15, 16, 17, 31, 33, 62, 63, 64, 65, 127, 128, 129, 4096})
    for (const bool z : {false, true})
      all.push_back(packed_problem_of(
          {{"seqlen", size(3 * length)}, {"sequences", size(3)}, {"lengths", "equal"}, {"z", z}}));
  for (const std::int64_t sequences : {1, 2, 3, 9, 64, 300})
    for (const char* lengths : {"ragged", "with-empty"})
      for (const bool z : {false, true})
        all.push_back(packed_problem_of(
            {{"seqlen", size(2000)}, {"sequences", size(sequences)}, {"lengths", lengths}, {"z", z}}));
  // Hardly any steps: sequences without one at both ends.
  all.push_back(packed_problem_of({{"seqlen", size(3)}, {"sequences", size(20)}}));
  return all;
}

/// Items of one tile and of two, with and without absent ones, whole and in two blocks.
std::vector<Problem> packed_size_problems() {
  std::vector<Problem> all;
  for (const std::int64_t nheads : {1, 6, 48, 134})
    for (const std::int64_t sequences : {1, 4, 30})
      for (const std::int64_t headdim : {40, 64, 72})
        all.push_back(packed_problem_of({{"nheads", size(nheads)},
                                         {"groups", size(nheads == 6 ? 2 : 1)},
                                         {"sequences", size(sequences)},
                                         {"headdim", size(headdim)},
                                         {"dstate", size(headdim == 40   ? 72
                                                         : headdim == 72 ? 64
                                                                         : 128)},
                                         {"lengths", sequences == 30 ? "with-empty" : "ragged"},
                                         {"z", nheads != 48},
                                         {"D", headdim == 72 ? "headdim" : "head"}}));
  return all;
}

std::vector<Problem> packed_option_problems() {
  std::vector<Problem> all = option_problems([](Axes axes) {
    axes.erase("seq_idx");
    return packed_problem_of(std::move(axes));
  });
  return all;
}

/// Few sequences that are long enough for items in parts: of one head and of several, with short ones among
/// them.
std::vector<Problem> packed_part_problems() {
  std::vector<Problem> all;
  for (const std::int64_t seqlen : {1500, 6001})
    for (const std::int64_t sequences : {2, 3, 7})
      for (const std::int64_t nheads : {1, 4, 9})
        for (const char* lengths : {"equal", "ragged", "with-empty"})
          all.push_back(packed_problem_of({{"seqlen", size(seqlen / sequences * sequences)},
                                           {"sequences", size(sequences)},
                                           {"nheads", size(nheads)},
                                           {"lengths", lengths},
                                           {"headdim", size(nheads == 4 ? 72 : 64)},
                                           {"dstate", size(nheads == 9 ? 64 : 128)},
                                           {"z", nheads != 4}}));
  return all;
}

/// States on the way: one, several in a chunk, at every step, in whole items and in parts.
std::vector<Problem> stop_problems() {
  std::vector<Problem> all;
  for (const std::int64_t sequences : {1, 5, 40})
    for (const std::int64_t stops : {1, 5, 30, 300})
      all.push_back(packed_problem_of({{"seqlen", size(1000)},
                                       {"sequences", size(sequences)},
                                       {"nheads", size(stops == 5 ? 48 : 3)},
                                       {"states_at", size(stops)},
                                       {"lengths", sequences == 5 ? "with-empty" : "ragged"},
                                       {"headdim", size(stops == 30 ? 72 : 64)},
                                       {"dstate", size(stops == 300 ? 40 : 128)},
                                       {"z", sequences == 5}}));
  all.push_back(packed_problem_of({{"seqlen", size(200)}, {"states_at", size(200)}}));
  for (const bool z : {false, true})  // items of two tiles, one of them absent
    all.push_back(packed_problem_of({{"seqlen", size(1000)},
                                     {"sequences", size(40)},
                                     {"nheads", size(25)},
                                     {"states_at", size(30)},
                                     {"lengths", "ragged"},
                                     {"dstate", size(z ? 40 : 128)},
                                     {"z", z}}));
  return all;
}

}  // namespace

TEST_CASE("cuda-hopper agrees with the reference on few long packed sequences",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  for (const char* distribution : {"mamba", "slow_decay"}) check_all(packed_part_problems(), distribution);
  check_all(in_f16(packed_part_problems()), "tiny_delta");
  check_all(wide(packed_part_problems()), "mamba");
}

TEST_CASE("cuda-hopper agrees with the reference on states at steps of packed sequences",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  for (const char* distribution : {"mamba", "slow_decay"}) check_all(stop_problems(), distribution);
  check_all(in_f16(stop_problems()), "tiny_delta");
  check_all(wide(stop_problems()), "mamba");
  check_all(in_f16(wide(stop_problems())), "trained");
}

TEST_CASE("cuda-hopper agrees with the reference on packed sequences of every length",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(packed_length_problems(), distribution);
}

TEST_CASE("cuda-hopper agrees with the reference on packed sequences however items are cut",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  check_all(packed_size_problems(), "mamba");
  check_all(packed_size_problems(), "slow_decay");
}

TEST_CASE("cuda-hopper agrees with the reference on packed sequences for every option",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  check_all(packed_option_problems(), "mamba");
  check_all(packed_option_problems(), "trained");
}

TEST_CASE("cuda-hopper agrees with the reference on packed sequences in f16",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  for (const char* distribution : {"mamba", "tiny_delta"})
    check_all(in_f16(packed_length_problems()), distribution);
  check_all(in_f16(packed_size_problems()), "mamba");
  check_all(in_f16(packed_option_problems()), "trained");
}

namespace {

using Bits = std::vector<std::vector<std::byte>>;

/// Bytes of out and final_states of sequences of `length` steps each. All inputs of the steps of sequence `spoilt`
/// are NaN, and so is the state that enters it.
Bits bits_with_nan(Device& device, const Problem& problem, std::int64_t length,
                   std::optional<std::int64_t> spoilt) {
  TensorSet tensors;
  std::vector<Device::Buffer> buffers;
  const auto add = [&](const TensorSpec& spec) {
    buffers.push_back(device.allocate(spec.bytes()));
    tensors.add(spec.name, TensorView(static_cast<std::byte*>(buffers.back().get()), spec));
  };
  for (const auto& input : generate_inputs(problem, {}, never_stop)) {
    const TensorView view = input.view();
    const bool is_state = input.spec.name == "initial_states";
    if (spoilt && (is_state || view.shape.size() > 2)) {
      const std::int64_t steps = is_state ? 1 : length;
      const std::int64_t count = steps * element_count(view.shape) / view.shape[is_state ? 0 : 1];
      for (std::int64_t i = *spoilt * count; i < (*spoilt + 1) * count; ++i)
        store_from_double(view.data, i, view.dtype, std::nan(""));
    }
    add(input.spec);
    device.copy_in(buffers.back().get(), input.buffer.data(), input.spec.bytes());
  }
  const auto outputs = specs_of(problem, Role::output);
  for (const auto& spec : outputs) add(spec);
  const Implementation& implementation = find_implementation("ssd_chunk_scan_fwd", "cuda-hopper");
  const auto workspace = device.allocate(implementation.workspace_bytes(problem));
  implementation.bind(problem, tensors, workspace.get())(device.stream());
  device.synchronize();
  Bits all;
  for (const auto& spec : outputs) {
    all.emplace_back(spec.bytes());
    device.copy_out(all.back().data(), tensors.at(spec.name).data, spec.bytes());
  }
  return all;
}

}  // namespace

TEST_CASE("cuda-hopper keeps NaN in its packed sequence", "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  const auto gpu = gpu_or_skip();
  if (!gpu || gpu->details.at("compute_capability") != "9.0") return;
  const auto device = open_device(DeviceKind::cuda);
  constexpr std::int64_t kSequences = 12;
  for (const char* dtype : {"bf16", "f16"})
    for (const std::int64_t length : {1, 33, 64, 100}) {
      const Problem problem = packed_problem_of({{"dtype", dtype},
                                                 {"dstate", size(length == 33 ? 256 : 128)},
                                                 {"seqlen", size(kSequences * length)},
                                                 {"sequences", size(kSequences)},
                                                 {"lengths", "equal"}});
      CAPTURE(problem.id());
      const Bits without = bits_with_nan(*device, problem, length, {});
      const std::int64_t spoilt = 5;
      Bits with = bits_with_nan(*device, problem, length, spoilt);
      for (std::size_t i = 0; i < with.size(); ++i) {
        const auto bytes = static_cast<std::ptrdiff_t>(with[i].size() / kSequences);
        const auto at = with[i].begin() + spoilt * bytes;
        CHECK((with[i] != without[i]));  // not taken apart: a message has no room for that many bytes
        std::copy_n(without[i].begin() + spoilt * bytes, bytes, at);
        CHECK((with[i] == without[i]));
      }
    }
}

TEST_CASE("cuda-hopper agrees with the reference on states in 16 bits",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed]") {
  const auto in = [](std::vector<Problem> problems, const char* state) {
    for (Problem& problem : problems)
      problem = problem.with({{"state_dtype", state}, {"initial_states", true}, {"final_states", true}});
    return problems;
  };
  check_all(in(size_problems(), "f16"), "slow_decay");
  check_all(in(in_f32(size_problems()), "bf16"), "mamba");
  check_all(in(packed_part_problems(), "bf16"), "mamba");
  check_all(in_f16(in(stop_problems(), "f16")), "mamba");
}

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

TEST_CASE("cuda-hopper agrees with the reference in f32", "[gpu][ssd_fwd][ssd_hopper][ssd_tf32]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(in_f32(length_problems()), distribution);
  check_all(in_f32(size_problems()), "mamba");
  check_all(in_f32(fours()), "large_A");
  check_all(in_f32(part_problems()), "mamba");
  check_all(in_f32(part_problems()), "slow_decay");
  check_all(in_f32(plan_problems()), "mamba");
  check_all(in_f32(option_problems(problem_of)), "mamba");
  check_all(in_f32(of_every_kernel(problem_of)), "trained");
}

TEST_CASE("cuda-hopper agrees with the reference for more than 128 states",
          "[gpu][ssd_fwd][ssd_hopper][ssd_wide]") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(wide(length_problems()), distribution);
  check_all(wide(size_problems()), "mamba");
  check_all(wide(size_problems()), "large_A");
  check_all(wide(part_problems()), "mamba");
  check_all(wide(part_problems()), "slow_decay");
  check_all(wide(plan_problems()), "mamba");
  check_all(wide(option_problems(problem_of)), "mamba");
  check_all(wide(of_every_kernel(problem_of)), "trained");
}

TEST_CASE("cuda-hopper agrees with the reference for more than 128 states in f16",
          "[gpu][ssd_fwd][ssd_hopper][ssd_wide]") {
  for (const char* distribution : {"mamba", "tiny_delta"})
    check_all(in_f16(wide(length_problems())), distribution);
  check_all(in_f16(wide(size_problems())), "large_A");
  check_all(in_f16(wide(part_problems())), "mamba");
  check_all(in_f16(wide(part_problems())), "tiny_delta");
  check_all(in_f16(wide(plan_problems())), "mamba");
  check_all(in_f16(wide(option_problems(problem_of))), "trained");
}

TEST_CASE("cuda-hopper agrees with the reference on packed sequences for more than 128 states",
          "[gpu][ssd_fwd][ssd_hopper][ssd_packed][ssd_wide]") {
  check_all(wide(packed_length_problems()), "mamba");
  check_all(wide(packed_option_problems()), "mamba");
  check_all(in_f16(wide(packed_size_problems())), "tiny_delta");
  check_all(in_f16(wide(packed_option_problems())), "trained");
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
  CHECK_FALSE(reason({{"dtype", "f32"}, {"headdim", size(60)}}));
  CHECK(reason({{"dtype", "f32"}, {"dstate", size(132)}}) ==
        "needs dstate of at most 128 where tensors are f32");
  CHECK(reason({{"dtype", "f32"}, {"headdim", size(62)}}) ==
        "needs headdim and dstate that are multiples of 4 where tensors are f32: rows of 16-byte vectors");
  CHECK(reason({{"dtype", "f32"}, {"cu_seqlens", true}, {"batch", size(1)}, {"sequences", size(3)}}) ==
        "does not support packed sequences where tensors are f32");
  CHECK(reason({{"headdim", size(60)}}) ==
        "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors");
  CHECK(reason({{"dstate", size(132)}}) ==
        "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors");
}
