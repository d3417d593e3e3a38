// Every registered implementation of the causal convolution against the fp64 reference at the sizes where code
// changes path: vectors of four and eight, lanes, tiles of 256 steps, segments of 1024 and 2048, runs of steps.

#include <string>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "support/conv_problem.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const char* const kDtypes[] = {"f32", "f16", "bf16"};
const char* const kLayouts[] = {"bdl", "bld"};

/// Lengths and channels around every boundary; the other options in turn.
std::vector<Problem> boundary_problems(const OpSpec& op) {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t seqlen : {1,  2,  3,   4,   5,   7,   8,    9,    15,   16,   17,   63,
                                    64, 65, 255, 256, 257, 264, 1023, 1024, 1025, 2048, 2056, 4099})
    for (const char* layout : kLayouts) {
      const std::int64_t dims[] = {1, 4, 8, 9, 12, 33};
      all.push_back(conv_problem({{"dtype", kDtypes[turn % 3]},
                                  {"layout", layout},
                                  {"batch", size(turn % 2 + 1)},
                                  {"dim", size(dims[turn % 6])},
                                  {"seqlen", seqlen},
                                  {"width", size(turn % 5 == 4 ? 8 : 2 + turn % 3)},
                                  {"bias", turn % 2 == 0},
                                  {"silu", turn % 4 < 3},
                                  {"initial_states", turn % 3 == 0},
                                  {"final_states", turn % 4 == 0}},
                                 op));
      ++turn;
    }
  return all;
}

/// Channels of many blocks, in whole vectors and not, enough threads to make runs longer, and sequences that
/// share a block.
std::vector<Problem> large_problems(const OpSpec& op) {
  std::vector<Problem> all;
  for (const char* layout : kLayouts) {
    all.push_back(conv_problem(
        {{"dtype", "bf16"}, {"layout", layout}, {"dim", size(264)}, {"seqlen", size(130)}, {"silu", true}},
        op));
    all.push_back(conv_problem(
        {{"dtype", "f32"}, {"layout", layout}, {"dim", size(260)}, {"seqlen", size(72)}, {"bias", true}},
        op));
    all.push_back(conv_problem(
        {{"dtype", "f16"}, {"layout", layout}, {"batch", size(40)}, {"dim", size(3)}, {"seqlen", size(24)}},
        op));
    for (const char* dtype : kDtypes)
      all.push_back(conv_problem({{"dtype", dtype},
                                  {"layout", layout},
                                  {"batch", size(9)},
                                  {"dim", size(1037)},
                                  {"seqlen", size(11)},
                                  {"silu", true}},
                                 op));
  }
  return all;
}

/// Packed sequences of every width in both layouts, by vectors and not.
std::vector<Problem> packed_problems(const OpSpec& op) {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t width : {2, 3, 4, 5, 8})
    for (const char* layout : kLayouts)
      for (const std::int64_t seqlen : {1, 3, 40, 301, 1032}) {
        all.push_back(conv_problem({{"dtype", kDtypes[turn % 3]},
                                    {"layout", layout},
                                    {"batch", size(2)},
                                    {"dim", size(turn % 2 == 0 ? 16 : 5)},
                                    {"seqlen", seqlen},
                                    {"width", width},
                                    {"bias", true},
                                    {"silu", turn % 3 != 0},
                                    {"seq_idx", true}},
                                   op));
        ++turn;
      }
  return all;
}

/// Every combination of the optional parts.
std::vector<Problem> option_problems(const OpSpec& op) {
  std::vector<Problem> all;
  for (int bits = 0; bits < 64; ++bits) {
    Axes axes{{"dtype", kDtypes[bits % 3]},
              {"batch", size(2)},
              {"dim", size(8)},
              {"seqlen", size(bits % 2 == 0 ? 2 : 24)},
              {"bias", (bits & 1) != 0},
              {"silu", (bits & 2) != 0},
              {"initial_states", (bits & 4) != 0},
              {"final_states", (bits & 8) != 0},
              {"layout", kLayouts[bits >> 4 & 1]},
              {"weight_dtype", (bits & 32) != 0 ? "f32" : "io"}};
    if (&op == &causal_conv1d_bwd()) axes["dout_layout"] = bits % 5 == 0 ? "other" : "same";
    all.push_back(conv_problem(axes, op));
  }
  return all;
}

/// Steps: channels by vectors and not, widths, tokens beyond the state, states beyond the filter, slots.
std::vector<Problem> update_problems() {
  std::vector<Problem> all;
  std::size_t turn = 0;
  for (const std::int64_t dim : {1, 7, 8, 24, 65, 1032, 1037})
    for (const std::int64_t width : {2, 3, 4, 8})
      for (const std::int64_t tokens : {1, 2, 9})
        for (const char* layout : {"sdk", "skd"}) {
          const bool has_slots = turn % 3 != 0;
          const char* stores[] = {"last", "apart", "none"};
          Axes axes{{"dtype", kDtypes[turn % 3]},
                    {"layout", layout},
                    {"batch", size(turn % 7 + 1)},
                    {"dim", dim},
                    {"width", width},
                    {"tokens", tokens},
                    {"state_len", size(width - 1 + (turn % 4 == 3 ? 4 : 0))},
                    {"bias", turn % 2 == 0},
                    {"silu", turn % 5 != 0},
                    {"weight_dtype", turn % 11 == 0 ? "f32" : "io"}};
          if (has_slots) {
            axes["store"] = stores[turn % 5 % 3];
            axes["slots"] = size(19);
            axes["pads"] = turn % 2 == 0;
          }
          all.push_back(conv_update_problem(axes));
          ++turn;
        }
  for (const char* layout : {"sdk", "skd"})  // so many rows that a thread takes a run of them
    all.push_back(conv_update_problem(
        {{"dtype", "bf16"}, {"layout", layout}, {"batch", size(600)}, {"dim", size(1800)}, {"silu", true}}));
  return all;
}

void check_all(const std::vector<Problem>& problems, const DeviceInfo& device,
               const std::string& distribution) {
  auto [passed, skipped, failures] = verdicts_of(problems, device, distribution);
  CHECK(failures == "");
  CHECK(skipped.empty());
  if (device.kind == DeviceKind::cpu) {
    CHECK(passed["cpu-scalar"] == problems.size());
    CHECK(passed["cpu-simd"] == problems.size());
  } else {
    CHECK(passed["cuda-window"] == problems.size());
  }
}

void check_device(const DeviceInfo& device) {
  for (const auto* op : {&causal_conv1d_fwd(), &causal_conv1d_bwd()}) {
    for (const char* distribution : {"mamba", "trained"})
      check_all(boundary_problems(*op), device, distribution);
    check_all(large_problems(*op), device, "mamba");
    check_all(packed_problems(*op), device, "trained");
    check_all(option_problems(*op), device, "mamba");
  }
  check_all(update_problems(), device, "trained");
}

}  // namespace

TEST_CASE("CPU implementations of the causal convolution agree with the reference") {
  check_device(list_devices().front());
}

TEST_CASE("CUDA implementations of the causal convolution agree with the reference", "[gpu]") {
  for (const auto& gpu : gpus()) check_device(gpu);
}
