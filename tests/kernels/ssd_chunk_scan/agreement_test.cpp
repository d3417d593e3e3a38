// Every implementation of Mamba-2's scan and its gradients against the fp64 reference: at the sizes where
// code changes path, with every option, and on random problems.

#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "support/ssd_problem.h"
#include "support/verdicts.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::vector<const OpSpec*> kOps{&ssd_chunk_scan_fwd(), &ssd_chunk_scan_bwd()};

/// Head dims and states around vectors and tiles, steps around tiles and chunks.
std::vector<Axes> boundary_problems() {
  std::vector<Axes> all;
  const auto add = [&](const char* dtype, std::int64_t seqlen, std::int64_t headdim, std::int64_t dstate) {
    all.push_back({{"dtype", dtype},
                   {"batch", size(2)},
                   {"nheads", size(2)},
                   {"seqlen", size(seqlen)},
                   {"headdim", size(headdim)},
                   {"dstate", size(dstate)},
                   {"chunk_size", size(64)},
                   {"z", true},
                   {"dt_bias", true},
                   {"dt_softplus", true}});
  };
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (const std::int64_t seqlen : {1, 2, 31, 32, 33, 63, 64, 65, 129, 257, 513}) add(dtype, seqlen, 5, 3);
  for (const std::int64_t headdim : {1, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 256})
    add("f32", 34, headdim, 3);
  for (const std::int64_t dstate : {1, 2, 7, 16, 17, 128, 129, 256}) add("bf16", 34, 3, dstate);
  return all;
}

/// Options, groups, chunk sizes and small shapes drawn at random, from a fixed seed.
std::vector<Axes> random_problems(int count) {
  std::mt19937 random(4);
  const auto up_to = [&](std::uint32_t n) { return size(1 + random() % n); };
  const auto flag = [&] { return random() % 2 == 0; };
  const char* dtypes[] = {"f32", "f16", "bf16"};
  const char* skips[] = {"none", "head", "headdim"};
  const char* limits[] = {"0..inf", "0.01..0.05", "0.02..inf", "0..0.03"};
  std::vector<Axes> all;
  for (int i = 0; i < count; ++i) {
    const std::int64_t groups = 1 + random() % 3;
    all.push_back({{"dtype", dtypes[random() % 3]},
                   {"batch", up_to(3)},
                   {"seqlen", up_to(100)},
                   {"nheads", size(groups * (1 + random() % 3))},
                   {"headdim", up_to(20)},
                   {"dstate", up_to(20)},
                   {"groups", size(groups)},
                   {"chunk_size", up_to(256)},
                   {"D", skips[random() % 3]},
                   {"z", flag()},
                   {"dt_bias", flag()},
                   {"dt_softplus", flag()},
                   {"dt_limit", limits[random() % 4]},
                   {"initial_states", flag()},
                   {"final_states", flag()},
                   {"seq_idx", flag()}});
  }
  return all;
}

void check_all(const std::vector<Axes>& all_axes, const DeviceInfo& device, const std::string& distribution) {
  for (const OpSpec* op : kOps) {
    std::vector<Problem> problems;
    for (const auto& axes : all_axes) problems.push_back(ssd_problem(axes, *op));
    const Verdicts verdicts = verdicts_of(problems, device, distribution);
    CHECK(verdicts.failures == "");
    CHECK_FALSE(verdicts.passed.empty());
  }
}

}  // namespace

TEST_CASE("ssd: CPU implementations agree with the reference at every boundary size") {
  check_all(boundary_problems(), list_devices().front(), "mamba");
}

TEST_CASE("ssd: CPU implementations agree with the reference on random problems") {
  check_all(random_problems(80), list_devices().front(), "mamba");
}

TEST_CASE("ssd: CPU implementations agree with the reference on adversarial inputs") {
  for (const auto& distribution : distributions())
    check_all(random_problems(10), list_devices().front(), distribution.name);
}

TEST_CASE("ssd: CUDA implementations agree with the reference", "[gpu]") {
  for (const auto& gpu : gpus()) {
    check_all(boundary_problems(), gpu, "mamba");
    check_all(random_problems(150), gpu, "mamba");
    for (const auto& distribution : distributions()) check_all(random_problems(20), gpu, distribution.name);
  }
}
