// Every registered implementation of selective_state_update against the fp64 reference at the sizes where
// code changes path.

#include <string>
#include <tuple>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "support/step_problem.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const char* const kDtypes[] = {"f32", "f16", "bf16"};

/// States: one; around vectors of four; one lane short of a power of two; around a warp of single values and
/// of vectors; the limit.
const std::vector<std::int64_t> kStates{1,  2,  3,   4,   5,   8,   12,  16,  17, 31,
                                        33, 64, 100, 127, 128, 129, 132, 255, 256};

std::vector<Problem> boundary_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const auto dstate : kStates) {
    const char* dtype = kDtypes[turn++ % 3];
    // Few rows, and more than a warp's worth in several blocks.
    all.push_back(mamba1_step({{"dtype", dtype},
                               {"batch", size(3)},
                               {"dim", size(37)},
                               {"dstate", dstate},
                               {"D", true},
                               {"z", true}}));
    for (const std::int64_t headdim : {1, 5, 64})
      all.push_back(mamba2_step({{"dtype", dtype},
                                 {"batch", size(2)},
                                 {"nheads", size(3)},
                                 {"headdim", headdim},
                                 {"dstate", dstate},
                                 {"dt_bias", true},
                                 {"dt_softplus", true}}));
  }
  for (const std::int64_t headdim : {127, 255, 256})
    all.push_back(mamba2_step({{"nheads", size(2)}, {"headdim", headdim}, {"dstate", size(16)}}));
  return all;
}

/// So many rows that cuda-step's threads hold several, in each of its kinds of row; `rows` is one more than a
/// warp holds of heads in f32.
std::vector<Problem> many_row_problems() {
  std::vector<Problem> all;
  for (const auto& [dstate, rows] : {std::pair<std::int64_t, std::int64_t>{3, 9},
                                     {12, 17},
                                     {16, 33},
                                     {32, 17},
                                     {100, 5},
                                     {128, 5},
                                     {256, 3}}) {
    all.push_back(mamba1_step({{"dtype", "bf16"},
                               {"batch", size(512)},
                               {"dim", 2 * rows},
                               {"dstate", dstate},
                               {"groups", size(2)},
                               {"z", true}}));
    for (const char* dtype : {"f32", "bf16"})
      all.push_back(mamba2_step({{"dtype", dtype},
                                 {"state_dtype", dtype},
                                 {"batch", size(512)},
                                 {"nheads", size(4)},
                                 {"headdim", rows},
                                 {"dstate", dstate},
                                 {"groups", size(2)},
                                 {"D", true}}));
  }
  return all;
}

/// Every combination of the optional parts, in both forms, with one group, several, and one per head.
std::vector<Problem> option_problems() {
  std::vector<Problem> all;
  for (int bits = 0; bits < 16; ++bits)
    for (const std::int64_t groups : {1, 3, 6}) {
      const Axes options{{"dtype", kDtypes[(bits + groups) % 3]},
                         {"batch", size(2)},
                         {"dstate", size(20)},
                         {"groups", groups},
                         {"D", (bits & 1) != 0},
                         {"z", (bits & 2) != 0},
                         {"dt_bias", (bits & 4) != 0},
                         {"dt_softplus", (bits & 8) != 0}};
      Axes channels{{"dim", size(12)}};
      channels.merge(Axes(options));
      all.push_back(mamba1_step(channels));
      Axes heads{{"nheads", size(6)}, {"headdim", size(10)}};
      heads.merge(Axes(options));
      all.push_back(mamba2_step(heads));
    }
  return all;
}

/// States in every dtype beside sequences in every dtype, in each kind of row and both forms, of rows that
/// are few and many.
std::vector<Problem> state_dtype_problems() {
  std::vector<Problem> all;
  for (const char* dtype : kDtypes)
    for (const char* state_dtype : kDtypes)
      for (const std::int64_t dstate : {3, 16, 128, 132})
        for (const std::int64_t batch : {2, 600}) {
          const Axes axes{
              {"dtype", dtype}, {"state_dtype", state_dtype}, {"dstate", dstate}, {"batch", batch}};
          Axes channels{{"dim", size(7)}, {"z", true}};
          channels.merge(Axes(axes));
          all.push_back(mamba1_step(channels));
          Axes heads{{"nheads", size(2)}, {"headdim", size(3)}, {"D", true}};
          heads.merge(Axes(axes));
          all.push_back(mamba2_step(heads));
        }
  return all;
}

/// Every way to store states of one token and of several, from slots and in place, with padding or without;
/// rows of threads that hold one and several, and more tokens than cuda-step stages at once.
std::vector<Problem> slot_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t tokens : {1, 2, 5, 19})
    for (const char* store : {"last", "apart", "each", "none", "in place"})
      for (const std::int64_t dstate : {3, 16, 128, 256}) {
        const bool many = dstate == 16 && tokens == 2;
        const bool in_place = store == std::string("in place");
        const std::int64_t batch = many ? 260 : 5;
        ++turn;
        Axes axes{{"dtype", kDtypes[turn % 3]},
                  {"state_dtype", turn % 2 == 0 ? "f32" : kDtypes[turn % 3]},
                  {"dt_dtype", turn % 4 < 2 ? "io" : "f32"},
                  {"batch", batch},
                  {"tokens", tokens},
                  {"dstate", dstate},
                  {"dt_softplus", true},
                  {"intermediate", tokens > 1 && turn % 3 == 0}};
        if (!in_place) {
          axes["slots"] = batch * (tokens + 1) + 3;
          axes["store"] = store;
          axes["pads"] = turn % 2 == 0 ? size(3) : size(0);
        }
        Axes channels{{"dim", size(12)}, {"groups", size(3)}, {"z", true}, {"dt_bias", true}};
        channels.merge(Axes(axes));
        all.push_back(mamba1_step(channels));
        Axes heads{
            {"nheads", size(4)}, {"headdim", many ? size(40) : size(9)}, {"groups", size(2)}, {"D", true}};
        heads.merge(Axes(axes));
        all.push_back(mamba2_step(heads));
      }
  return all;
}

/// States with scales, and with stochastic rounding, in both forms, stored in place, in slots and by token;
/// rows that are shorter than a vector, and that end inside of one, between words and within one.
std::vector<Problem> scaled_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const char* state_dtype : {"i8", "i16", "e4m3", "f16"})
    for (const char* rounding : {"nearest", "stochastic"})
      for (const char* store : {"last", "each", "in place"})
        for (const std::int64_t dstate : {1, 3, 16, 33, 36, 256}) {
          const bool in_place = store == std::string("in place");
          const std::int64_t tokens = turn % 3 == 0 ? 3 : 1;
          ++turn;
          Axes axes{{"dtype", kDtypes[turn % 3]},
                    {"state_dtype", state_dtype},
                    {"rounding", rounding},
                    {"batch", size(7)},
                    {"tokens", tokens},
                    {"dstate", dstate},
                    {"dt_softplus", true},
                    {"intermediate", tokens > 1 && state_dtype == std::string("f16")}};
          if (!in_place) {
            axes["slots"] = 7 * tokens + 3;
            axes["store"] = store;
            axes["pads"] = turn % 2 == 0 ? size(3) : size(0);
          }
          Axes channels{{"dim", size(12)}, {"groups", size(3)}, {"z", true}, {"dt_bias", true}};
          channels.merge(Axes(axes));
          all.push_back(mamba1_step(channels));
          Axes heads{{"nheads", size(4)}, {"headdim", size(9)}, {"groups", size(2)}, {"D", true}};
          heads.merge(Axes(axes));
          all.push_back(mamba2_step(heads));
        }
  return all;
}

/// The same with so many rows that cuda-step's threads hold several: heads that end inside of a warp's rows,
/// and every number of lanes that share one.
std::vector<Problem> scaled_many_row_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const char* state_dtype : {"i8", "i16", "e4m3", "f16"})
    for (const char* rounding : {"nearest", "stochastic"})
      for (const std::int64_t dstate : {64, 128, 256}) {
        ++turn;
        Axes axes{{"dtype", kDtypes[turn % 3]}, {"state_dtype", state_dtype},
                  {"rounding", rounding},       {"dt_dtype", turn % 5 < 2 ? "f32" : "io"},
                  {"batch", size(17)},          {"nheads", size(16)},
                  {"headdim", size(9)},         {"dstate", dstate},
                  {"groups", size(2)},          {"z", turn % 2 == 0},
                  {"D", turn % 3 != 0},         {"dt_bias", turn % 4 != 0},
                  {"dt_softplus", true}};
        if (turn % 4 != 1) {
          axes["slots"] = size(40);
          axes["store"] = turn % 4 == 2 ? "last" : "apart";
          axes["pads"] = size(4);
        }
        all.push_back(mamba2_step(axes));
      }
  return all;
}

/// Tokens that cuda-step takes by tensor cores, one more and one less than those: states in every dtype,
/// stored by token and at the end; heads that end inside of a warp's 16 rows, past a block's 32, and that are
/// no whole number of eight rows, which they do not take.
std::vector<Problem> product_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const char* state_dtype : {"f32", "bf16", "f16", "i8", "i16", "e4m3"})
    for (const std::int64_t tokens : {1, 2, 5, 8, 9})
      for (const std::int64_t headdim : {8, 16, 24, 40, 22}) {
        ++turn;
        const std::string state = state_dtype;
        const bool has_scale = state[0] == 'i' || state == "e4m3";
        Axes axes{{"dtype", "bf16"},
                  {"state_dtype", state_dtype},
                  {"dt_dtype", turn % 4 < 2 ? "io" : "f32"},
                  {"rounding", (has_scale || state == "f16") && turn % 3 == 0 ? "stochastic" : "nearest"},
                  {"batch", size(5)},
                  {"tokens", tokens},
                  {"nheads", size(4)},
                  {"headdim", headdim},
                  {"dstate", turn % 2 == 0                ? size(64)
                             : turn % 4 == 1 || has_scale ? size(128)
                                                          : size(256)},
                  {"groups", size(2)},
                  {"D", turn % 3 != 1},
                  {"z", turn % 5 < 3},
                  {"dt_bias", turn % 4 != 3},
                  {"dt_softplus", turn % 7 != 0},
                  {"intermediate", !has_scale && tokens > 1 && turn % 3 == 1}};
        if (turn % 5 != 0) {
          axes["slots"] = 5 * (tokens + 1) + 3;
          axes["store"] = turn % 5 < 3 ? "each" : turn % 5 == 3 ? "last" : "apart";
          axes["pads"] = turn % 2 == 0 ? size(3) : size(0);
        }
        all.push_back(mamba2_step(axes));
      }
  return all;
}

/// So many tiles of rows that a warp takes five of a head, more than it has under way; and more than it
/// takes.
std::vector<Problem> product_run_problems() {
  std::vector<Problem> all;
  for (const char* state_dtype : {"f32", "bf16", "i8", "e4m3"})
    for (const auto& [batch, headdim] : {std::pair<std::int64_t, std::int64_t>{160, 72}, {70, 168}})
      all.push_back(mamba2_step({{"dtype", "bf16"},
                                 {"state_dtype", state_dtype},
                                 {"batch", batch},
                                 {"slots", batch + 5},
                                 {"pads", size(7)},
                                 {"tokens", size(3)},
                                 {"nheads", size(16)},
                                 {"headdim", headdim},
                                 {"dstate", size(64)},
                                 {"groups", size(2)},
                                 {"z", headdim == 72},
                                 {"D", true},
                                 {"dt_softplus", true}}));
  return all;
}

/// So many rows of states of 8 bits that cuda-step has kernels for them beside sequences in bf16, whose
/// blocks take up to four heads where they are rounded stochastically: heads that end inside of a warp, in
/// the second one of a block, and in blocks of a warp each.
std::vector<Problem> many_head_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const char* state_dtype : {"i8", "e4m3"})
    for (const char* rounding : {"nearest", "stochastic"})
      for (const auto& [batch, headdim, dstate] :
           {std::tuple<std::int64_t, std::int64_t, std::int64_t>{512, 16, 128},
            {512, 40, 64},
            {64, 72, 128}}) {
        ++turn;
        all.push_back(mamba2_step({{"dtype", "bf16"},
                                   {"state_dtype", state_dtype},
                                   {"rounding", rounding},
                                   {"batch", batch},
                                   {"slots", batch + 7},
                                   {"pads", size(9)},
                                   {"nheads", size(16)},
                                   {"headdim", headdim},
                                   {"dstate", dstate},
                                   {"groups", size(4)},
                                   {"dt_dtype", turn % 2 == 0 ? "io" : "f32"},
                                   {"D", turn % 3 != 0},
                                   {"z", turn % 4 != 0},
                                   {"dt_bias", turn % 5 != 0},
                                   {"dt_softplus", true}}));
      }
  return all;
}

/// Whole tiles of channels of 16 states, so many that cuda-step has kernels for them, whose warps take one
/// sequence, two and four, the last ones of a block fewer: every pair of dtypes, every optional part, several
/// groups.
std::vector<Problem> channel_tile_problems(std::int64_t tokens) {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const char* dtype : kDtypes)
    for (const char* state_dtype : kDtypes)
      for (const auto& [batch, dim] : {std::pair<std::int64_t, std::int64_t>{269, 128}, {533, 384}}) {
        ++turn;
        Axes axes{{"dtype", dtype},
                  {"state_dtype", state_dtype},
                  {"batch", batch},
                  {"tokens", tokens},
                  {"dim", dim},
                  {"dstate", size(16)},
                  {"groups", size(1 + turn % 2)},
                  {"dt_dtype", turn % 4 < 2 ? "io" : "f32"},
                  {"D", turn % 3 != 0},
                  {"z", turn % 4 != 0},
                  {"dt_bias", turn % 5 != 0},
                  {"dt_softplus", turn % 7 != 0},
                  {"intermediate", tokens > 1 && turn % 4 == 1}};
        if (turn % 3 != 1) {
          axes["slots"] = (tokens + 1) * batch + 3;
          axes["store"] = turn % 3 == 0 ? "last" : turn % 2 == 0 ? "apart" : "each";
          axes["pads"] = size(7);
        }
        all.push_back(mamba1_step(axes));
      }
  if (tokens == 1)
    all.push_back(mamba1_step(
        {{"dtype", "bf16"}, {"batch", size(701)}, {"dim", size(2048)}, {"dstate", size(16)}, {"z", true}}));
  return all;
}

void check_all(const std::vector<Problem>& problems, const DeviceInfo& device,
               const std::string& distribution) {
  auto [passed, skipped, failures] = verdicts_of(problems, device, distribution);
  CHECK(failures == "");
  CHECK(passed[device.kind == DeviceKind::cpu ? "cpu-step" : "cuda-step"] == problems.size());
}

void check_device(const DeviceInfo& device) {
  for (const auto& distribution : distributions()) check_all(boundary_problems(), device, distribution.name);
  check_all(option_problems(), device, "mamba");
  check_all(many_row_problems(), device, "mamba");
  check_all(state_dtype_problems(), device, "mamba");
  if (device.kind == DeviceKind::cuda) {
    check_all(scaled_many_row_problems(), device, "mamba");
    check_all(many_head_problems(), device, "trained");
    check_all(product_run_problems(), device, "trained");
    for (const char* distribution : {"mamba", "trained"})
      for (const std::int64_t tokens : {1, 3}) check_all(channel_tile_problems(tokens), device, distribution);
  }
  for (const char* distribution : {"mamba", "trained"}) {
    check_all(product_problems(), device, distribution);
    check_all(slot_problems(), device, distribution);
    check_all(scaled_problems(), device, distribution);
  }
}

}  // namespace

TEST_CASE("CPU implementations of selective_state_update agree with the reference") {
  check_device(list_devices().front());
}

TEST_CASE("CUDA implementations of selective_state_update agree with the reference", "[gpu]") {
  for (const auto& gpu : gpus()) check_device(gpu);
}
