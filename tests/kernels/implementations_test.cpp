// Every registered implementation against the fp64 reference at the sizes where its code changes path. An
// implementation that is added later is covered without a line here.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "model/method.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "support/scan_problem.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Lengths, each for the boundary that it hits.
const std::vector<std::int64_t> kLengths{
    1,                 // nothing before, nothing after
    31,   32,   33,    // a warp along time
    127,  128,  129,   // the first block shape of cuda-blockscan; two tiles of the reference
    255,  256,  257,   // its second
    511,  512,  513,   // its third
    1023, 1024, 1025,  // its fourth
    2047, 2048, 2049,  // one chunk: from here on the state is carried
    4097,              // two chunks and a tail of one step
};
/// Channels: fewer than any vector or tile is wide, and none of them even.
const std::vector<std::int64_t> kDims{1, 3, 5};
/// States: one; within one thread's registers; one less and more than a multiple of them; several lanes; the
/// limit.
const std::vector<std::int64_t> kStates{1, 2, 15, 16, 17, 64, 256};

std::vector<Axes> boundary_problems() {
  std::vector<Axes> all;
  const Axes base{{"batch", size(2)}, {"dim", size(3)}, {"seqlen", size(70)}, {"dstate", size(3)}};
  const auto add = [&](Axes axes) {
    axes.merge(Axes(base));
    axes.emplace("dtype", "f32");
    all.push_back(std::move(axes));
  };
  for (const auto length : kLengths)
    for (const char* dtype : {"f32", "f16", "bf16"}) add({{"seqlen", size(length)}, {"dtype", dtype}});
  for (const auto dim : kDims)
    for (const auto dstate : kStates) add({{"dim", size(dim)}, {"dstate", size(dstate)}});
  // More channels than one block of any implementation takes, and not a multiple of it.
  for (const char* layout : {"bdl", "bld"})
    add({{"dim", size(131)}, {"dstate", size(16)}, {"layout", layout}});
  return all;
}

/// Every combination of the five optional parts, and of constant and variable B and C with groups.
std::vector<Axes> option_problems() {
  std::vector<Axes> all;
  const Axes base{{"batch", size(2)}, {"dim", size(6)}, {"seqlen", size(37)}, {"dstate", size(4)}};
  const char* dtypes[] = {"f32", "f16", "bf16"};
  for (int bits = 0; bits < 32; ++bits) {
    for (const char* layout : {"bdl", "bld"}) {
      Axes axes = base;
      axes.merge(Axes{{"dtype", dtypes[bits % 3]},
                      {"layout", layout},
                      {"D", (bits & 1) != 0},
                      {"z", (bits & 2) != 0},
                      {"delta_bias", (bits & 4) != 0},
                      {"delta_softplus", (bits & 8) != 0},
                      {"initial_state", (bits & 16) != 0}});
      all.push_back(std::move(axes));
    }
  }
  for (const char* b : {"variable", "constant"})
    for (const char* c : {"variable", "constant"})
      for (const std::int64_t groups : {1, 2, 6})
        for (const char* layout : {"bdl", "bld"}) {
          if (groups > 1 && std::string(b) == "constant" && std::string(c) == "constant") continue;
          Axes axes = base;
          axes.merge(Axes{{"dtype", dtypes[groups % 3]},
                          {"layout", layout},
                          {"B", b},
                          {"C", c},
                          {"groups", size(groups)}});
          all.push_back(std::move(axes));
        }
  return all;
}

/// Every method with real and complex A: one step (no step before it), a tile and a tail, two chunks; the io
/// dtypes and layouts in turn, with every option and with none.
std::vector<Axes> method_problems() {
  std::vector<Axes> all;
  const char* dtypes[] = {"f32", "f16", "bf16"};
  std::size_t turn = 0;
  for (const auto& method : methods()) {
    for (const char* A : {"real", "complex"}) {
      for (const std::int64_t length : {1, 33, 130, 2049}) {
        // Grows with every step: more of them overflow everything, which leaves nothing to judge.
        if (method.id == MethodId::bilinear_flipped && length > 33) continue;
        const bool options = turn % 2 == 0;
        all.push_back({{"method", method.name},
                       {"A", A},
                       {"batch", size(2)},
                       {"dim", size(6)},
                       {"seqlen", size(length)},
                       {"dstate", size(turn % 3 == 0 ? 17 : 4)},
                       {"groups", size(turn % 4 == 1 && turn % 5 != 2 ? 2 : 1)},
                       {"B", turn % 5 == 2 ? "constant" : "variable"},
                       {"C", turn % 7 == 3 ? "constant" : "variable"},
                       {"dtype", dtypes[turn % 3]},
                       {"layout", turn % 4 < 2 ? "bdl" : "bld"},
                       {"z", options},
                       {"D", options},
                       {"delta_bias", options},
                       {"initial_state", options}});
        ++turn;
      }
    }
  }
  return all;
}

/// A matrix per channel: numbers of states around the numbers of lanes and of registers that hold it; no step
/// before, a stretch and a tail, several; the options, dtypes and layouts in turn.
std::vector<Axes> dense_problems() {
  std::vector<Axes> all;
  const char* dtypes[] = {"f32", "f16", "bf16"};
  std::size_t turn = 0;
  for (const char* method : {"bilinear", "foh"})
    for (const std::int64_t dstate : {1, 2, 3, 7, 8, 9, 16, 17, 31, 32})
      for (const std::int64_t length : {1, 33, 70}) {
        const bool options = turn % 2 == 0;
        all.push_back({{"A", "dense"},
                       {"method", method},
                       {"batch", size(2)},
                       {"dim", size(3)},
                       {"seqlen", size(length)},
                       {"dstate", size(dstate)},
                       {"groups", size(turn % 7 == 1 ? 3 : 1)},
                       {"B", turn % 5 == 2 ? "constant" : "variable"},
                       {"C", turn % 7 == 3 ? "constant" : "variable"},
                       {"dtype", dtypes[turn % 3]},
                       {"layout", turn % 4 < 2 ? "bdl" : "bld"},
                       {"z", options},
                       {"D", options},
                       {"delta_bias", turn % 3 == 0},
                       {"delta_softplus", turn % 5 != 0},
                       {"initial_state", turn % 4 == 0}});
        ++turn;
      }
  return all;
}

/// Gradients whose many states are kept before ranges of ranges of segments: three levels, and four.
std::vector<Axes> level_problems() {
  std::vector<Axes> all;
  for (const char* A : {"real", "complex"})
    for (const char* method : {"zoh", "trapezoidal"})
      for (const std::int64_t length : {2100, 4097})
        all.push_back({{"A", A},
                       {"method", method},
                       {"batch", size(1)},
                       {"dim", size(2)},
                       {"seqlen", size(length)},
                       {"dstate", size(129)},
                       {"B", "constant"},
                       {"C", "constant"},
                       {"dtype", "bf16"},
                       {"initial_state", true}});
  return all;
}

/// Gradients of enough channels that a block of the GPU's fast kernel goes back through all segments of time;
/// their tensors by vectors along time, along channels, and by elements.
std::vector<Axes> in_turn_problems() {
  struct Access {
    const char *dtype, *layout;
    std::int64_t seqlen, dstate;
  };
  std::vector<Axes> all;
  for (const Access& access :
       {Access{"f32", "bdl", 200, 16}, Access{"bf16", "bld", 135, 9}, Access{"f16", "bdl", 135, 16}}) {
    const bool first = all.empty();
    all.push_back({{"batch", size(120)},
                   {"dim", size(16)},
                   {"seqlen", size(access.seqlen)},
                   {"dstate", size(access.dstate)},
                   {"dtype", access.dtype},
                   {"layout", access.layout},
                   {"z", first},
                   {"D", true},
                   {"delta_bias", first},
                   {"delta_softplus", true},
                   {"initial_state", true},
                   {"dlast_state", true}});
  }
  return all;
}

/// x, the states on the way: of whole tiles and of parts, of a block's channels and of some; time uncut and
/// cut, segments in turn and side by side; the options, dtypes and layouts in turn.
std::vector<Axes> x_problems() {
  struct Sizes {
    std::int64_t batch, dim, seqlen, dstate;
  };
  std::vector<Axes> all;
  const char* dtypes[] = {"f32", "f16", "bf16"};
  std::size_t turn = 0;
  for (const Sizes& sizes : {Sizes{1, 16, 8, 16}, Sizes{2, 24, 40, 8}, Sizes{1, 64, 1000, 16},
                             Sizes{2, 136, 72, 16}, Sizes{120, 16, 88, 16}, Sizes{3, 176, 64, 8}})
    for (const char* layout : {"bdl", "bld"}) {
      const bool options = turn % 2 == 0;
      all.push_back({{"x", true},
                     {"batch", size(sizes.batch)},
                     {"dim", size(sizes.dim)},
                     {"seqlen", size(layout == std::string("bdl") ? sizes.seqlen : sizes.seqlen - 3)},
                     {"dstate", size(sizes.dstate)},
                     {"dtype", dtypes[turn % 3]},
                     {"layout", layout},
                     {"z", options},
                     {"D", options},
                     {"delta_bias", options},
                     {"initial_state", turn % 4 < 2}});
      ++turn;
    }
  return all;
}

/// The same of every method, real and complex, which implementations for all problems have.
std::vector<Axes> x_method_problems() {
  std::vector<Axes> all = method_problems();
  for (auto& axes : all) axes["x"] = true;
  return all;
}

void check_all(const std::vector<Axes>& problems, const DeviceInfo& device, const std::string& distribution,
               const OpSpec& op = selective_scan_fwd()) {
  std::vector<Problem> all;
  for (const auto& axes : problems) all.emplace_back(op, axes);
  const auto [passed, skipped, failures] = verdicts_of(all, device, distribution);
  CHECK(failures == "");
  // At least one implementation on either kind of device does all of them.
  const auto most = std::ranges::max_element(passed, {}, [](const auto& entry) { return entry.second; });
  REQUIRE(most != passed.end());
  CHECK(most->second == problems.size());
}

}  // namespace

TEST_CASE("CPU implementations agree with the reference at every boundary size") {
  check_all(boundary_problems(), list_devices().front(), "mamba");
}

TEST_CASE("CPU implementations agree with the reference for every option") {
  check_all(option_problems(), list_devices().front(), "mamba");
}

TEST_CASE("CPU implementations agree with the reference for every method, real and complex") {
  for (const char* distribution : {"mamba", "large_A", "tiny_delta"})
    check_all(method_problems(), list_devices().front(), distribution);
}

TEST_CASE("CPU implementations agree with the reference for dense A") {
  for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
    check_all(dense_problems(), list_devices().front(), distribution);
}

TEST_CASE("CPU implementations agree with the reference on adversarial inputs") {
  for (const char* distribution : {"slow_decay", "large_A", "tiny_delta"})
    check_all(boundary_problems(), list_devices().front(), distribution);
}

TEST_CASE("CPU implementations agree with the reference where states on the way are left and given", "[x]") {
  for (const auto* op : {&selective_scan_fwd(), &selective_scan_bwd()}) {
    check_all(x_problems(), list_devices().front(), "slow_decay", *op);
    check_all(x_method_problems(), list_devices().front(), "mamba", *op);
  }
}

TEST_CASE("CUDA implementations agree with the reference where states on the way are left and given",
          "[gpu][x]") {
  for (const auto& gpu : gpus())
    for (const auto* op : {&selective_scan_fwd(), &selective_scan_bwd()})
      for (const char* distribution : {"mamba", "slow_decay"})
        check_all(x_problems(), gpu, distribution, *op);
}

TEST_CASE("CUDA implementations agree with the reference at every boundary size", "[gpu]") {
  for (const auto& gpu : gpus()) check_all(boundary_problems(), gpu, "mamba");
}

TEST_CASE("CUDA implementations agree with the reference for every option", "[gpu]") {
  for (const auto& gpu : gpus()) check_all(option_problems(), gpu, "mamba");
}

TEST_CASE("CUDA implementations agree with the reference for every method, real and complex", "[gpu]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"mamba", "large_A", "tiny_delta"})
      check_all(method_problems(), gpu, distribution);
}

TEST_CASE("CUDA implementations agree with the reference for dense A", "[gpu]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
      check_all(dense_problems(), gpu, distribution);
}

TEST_CASE("CUDA implementations agree with the reference on adversarial inputs", "[gpu]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"slow_decay", "large_A", "tiny_delta"})
      check_all(boundary_problems(), gpu, distribution);
}

TEST_CASE("CUDA gradients agree with the reference at every boundary size", "[gpu]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"mamba", "slow_decay", "large_A", "tiny_delta"})
      check_all(boundary_problems(), gpu, distribution, selective_scan_bwd());
}

TEST_CASE("CUDA gradients agree with the reference for every option", "[gpu]") {
  for (const auto& gpu : gpus()) check_all(option_problems(), gpu, "mamba", selective_scan_bwd());
}

TEST_CASE("CUDA gradients agree with the reference for every method, real and complex", "[gpu]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"mamba", "large_A", "tiny_delta"})
      check_all(method_problems(), gpu, distribution, selective_scan_bwd());
}

TEST_CASE("CUDA gradients agree with the reference where states are kept on several levels", "[gpu]") {
  for (const auto& gpu : gpus()) check_all(level_problems(), gpu, "slow_decay", selective_scan_bwd());
}

TEST_CASE("CUDA gradients agree with the reference where a block goes through segments in turn", "[gpu]") {
  for (const auto& gpu : gpus())
    for (const char* distribution : {"mamba", "slow_decay"})
      check_all(in_turn_problems(), gpu, distribution, selective_scan_bwd());
}
