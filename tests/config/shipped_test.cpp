#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "catch.h"
#include "config/config.h"
#include "model/method.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

using namespace ssmbench;

namespace {

using Sizes =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;  // batch, dim, seqlen, dstate

/// Every config has cases of this distribution beside those that it is made for.
const std::string kTrained = "trained";

std::vector<Case> all_shipped(const std::string& name, bool quick = false) {
  return load_config(SSMBENCH_SOURCE_DIR "/configs/" + name + ".json", {}, quick);
}

/// Those that it is made for.
std::vector<Case> shipped(const std::string& name, bool quick = false) {
  auto cases = all_shipped(name, quick);
  std::erase_if(cases, [](const Case& one) { return one.inputs.distribution == kTrained; });
  return cases;
}

std::set<Sizes> sizes_of(const std::vector<Case>& cases) {
  std::set<Sizes> sizes;
  for (const auto& one : cases) {
    const SelectiveScan scan(one.problem);
    sizes.insert({scan.batch, scan.dim, scan.seqlen, scan.dstate});
  }
  return sizes;
}

std::set<std::string> values_of(const std::vector<Case>& cases, const std::string& axis) {
  std::set<std::string> values;
  for (const auto& one : cases) values.insert(to_string(one.problem.value(axis)));
  return values;
}

std::vector<Case> of_op(const std::vector<Case>& cases, const std::string& op) {
  std::vector<Case> chosen;
  std::ranges::copy_if(cases, std::back_inserter(chosen),
                       [&](const Case& one) { return one.problem.op().name == op; });
  return chosen;
}

double pairs_of(const std::vector<Case>& cases) {
  double pairs = 0;
  for (const auto& one : cases) pairs += SelectiveScan(one.problem).pairs();
  return pairs;
}

bool is_chunk_scan(const Case& one) {
  return one.problem.op().name.starts_with("ssd_chunk_scan");
}

double updates_of(const std::vector<Case>& cases) {
  double updates = 0;
  for (const auto& one : cases) updates += SsdChunkScan(one.problem).updates();
  return updates;
}

std::set<std::string> ops_of(const std::vector<Case>& cases) {
  std::set<std::string> ops;
  for (const auto& one : cases) ops.insert(one.problem.op().name);
  return ops;
}

const std::set<std::string> kScanAndGradients{"ssd_chunk_scan_bwd", "ssd_chunk_scan_fwd"};
const std::set<std::string> kDtypes{"bf16", "f16", "f32"};
const std::set<std::string> kBoth{"false", "true"};

}  // namespace

TEST_CASE("few-channels has one channel to 16384 and 16 steps to 2^20") {
  const auto cases = shipped("few-channels");
  CHECK(cases.size() == 44);  // the scan and its gradients
  std::set<std::int64_t> dims, lengths;
  for (const auto& one : cases) {
    dims.insert(one.problem.size("dim"));
    lengths.insert(one.problem.size("seqlen"));
    CHECK(one.problem.size("dim") * one.problem.size("seqlen") <= 1 << 24);
  }
  CHECK(dims == std::set<std::int64_t>{1, 16, 64, 256, 1024, 4096, 16384});
  CHECK(lengths == std::set<std::int64_t>{16, 256, 1024, 4096, 65536, 1048576});
}

TEST_CASE("every config verifies each of its operations on trained inputs, in little time") {
  for (const auto& entry : std::filesystem::directory_iterator(SSMBENCH_SOURCE_DIR "/configs")) {
    const std::string name = entry.path().stem();
    const std::set<std::string> others{"schema", "consistency", "convergence"};  // which have no sweeps
    if (entry.path().extension() != ".json" || others.contains(name)) continue;
    INFO(name);
    for (const bool quick : {false, true}) {
      std::set<std::string> ops;
      std::set<std::string> trained;
      double elements = 0;
      for (const auto& one : all_shipped(name, quick)) {
        ops.insert(one.problem.op().name);
        if (one.inputs.distribution != kTrained) continue;
        trained.insert(one.problem.op().name);
        CHECK((!one.timed || name == "small"));
        for (const auto& tensor : one.problem.tensors())
          elements += static_cast<double>(element_count(tensor.shape));
      }
      CHECK(trained == ops);
      CHECK(elements < 4e6);
    }
  }
}

TEST_CASE("small, medium and large have one size each, and all dtypes") {
  const std::map<std::string, Sizes> wanted{
      {"small", {1, 4, 16, 4}}, {"medium", {4, 16, 64, 16}}, {"large", {16, 64, 256, 64}}};
  for (const auto& [name, sizes] : wanted) {
    INFO(name);
    const auto cases = shipped(name);
    CHECK(sizes_of(cases) == std::set<Sizes>{sizes});
    CHECK(values_of(cases, "dtype") == kDtypes);
  }
  CHECK(shipped("large").size() == 3);
}

TEST_CASE("small and medium exercise every option in every dtype, in at most 60 cases") {
  for (const std::string name : {"small", "medium"}) {
    const auto all = shipped(name);
    CHECK(all.size() <= 60);
    for (const auto& dtype : kDtypes) {
      INFO(name << " " << dtype);
      std::vector<Case> cases;
      std::ranges::copy_if(all, std::back_inserter(cases),
                           [&](const Case& one) { return one.problem.choice("dtype") == dtype; });
      for (const std::string flag : {"z", "D", "delta_bias", "delta_softplus", "initial_state"})
        CHECK(values_of(cases, flag) == kBoth);
      std::set<std::string> projections;
      for (const auto& one : cases)
        projections.insert(one.problem.choice("B") + " " + one.problem.choice("C"));
      CHECK(projections.size() == 4);
      CHECK(values_of(cases, "groups") == std::set<std::string>{"1", "2", "4"});
      CHECK(values_of(cases, "layout") == std::set<std::string>{"bdl", "bld"});
    }
  }
}

TEST_CASE("the Mamba models have their real sizes") {
  const std::map<std::string, std::int64_t> inner{
      {"130m", 1536}, {"370m", 2048}, {"790m", 3072}, {"1.4b", 4096}, {"2.8b", 5120}};
  for (const auto& [model, dim] : inner) {
    INFO(model);
    std::set<Sizes> wanted;
    for (const std::int64_t batch : {1, 8})
      for (const std::int64_t seqlen : {512, 2048, 8192}) wanted.insert({batch, dim, seqlen, 16});
    const auto cases = shipped("mamba-" + model);
    CHECK(cases.size() == 18);
    CHECK(sizes_of(cases) == wanted);
    CHECK(values_of(cases, "dtype") == kDtypes);
    CHECK(values_of(cases, "layout") == std::set<std::string>{"bdl"});
    for (const std::string flag : {"z", "D", "delta_bias", "delta_softplus"})
      CHECK(values_of(cases, flag) == std::set<std::string>{"true"});
  }
}

TEST_CASE("the Mamba-3 models have their real sizes") {
  const std::map<std::string, std::string> heads{
      {"187m", "24"}, {"444m", "32"}, {"893m", "48"}, {"1.5b", "64"}};
  for (const auto& [model, nheads] : heads) {
    INFO(model);
    const auto cases = shipped("mamba3-" + model);
    CHECK(cases.size() == 2 * 2 * 4 * 2 + 2 * 4 * 2 + 2 * 3 * 2 + 2 * 5 * 2);
    CHECK(ops_of(cases) == std::set<std::string>{"mamba3_mimo_bwd", "mamba3_mimo_fwd", "mamba3_siso_bwd",
                                                 "mamba3_siso_fwd", "mamba3_step"});
    const std::map<std::string, std::string> sizes{
        {"nheads", nheads}, {"headdim", "64"}, {"dstate", "128"}, {"groups", "1"}, {"rope_angles", "32"}};
    for (const auto& [axis, value] : sizes) CHECK(values_of(cases, axis) == std::set<std::string>{value});
    for (const char* op : {"mamba3_mimo_fwd", "mamba3_mimo_bwd"})
      CHECK(values_of(of_op(cases, op), "mimo_rank") == std::set<std::string>{"4"});
    CHECK(values_of(of_op(cases, "mamba3_siso_fwd"), "batch") == std::set<std::string>{"1", "8"});
    CHECK(values_of(of_op(cases, "mamba3_step"), "batch") ==
          std::set<std::string>{"1", "128", "512", "64", "8"});
  }
}

TEST_CASE("mamba3-small has every option, in every dtype") {
  const auto all = shipped("mamba3-small");
  CHECK(all.size() <= 150);
  for (const char* op : {"mamba3_siso_fwd", "mamba3_mimo_fwd"}) {
    const auto cases = of_op(all, op);
    CHECK(values_of(cases, "dtype") == kDtypes);
    for (const char* flag : {"z", "D", "initial_states", "final_states", "cu_seqlens"})
      CHECK(values_of(cases, flag) == kBoth);
  }
  for (const char* flag : {"out_reduce", "outproj_norm"})
    CHECK(values_of(of_op(all, "mamba3_mimo_fwd"), flag) == kBoth);
  CHECK(values_of(of_op(all, "mamba3_step"), "dtype") == kDtypes);
  CHECK(values_of(of_op(all, "mamba3_step"), "form") == std::set<std::string>{"mimo", "siso"});
}

TEST_CASE("the Mamba-2 models have their real sizes") {
  const std::map<std::string, std::int64_t> heads{
      {"130m", 24}, {"370m", 32}, {"780m", 48}, {"1.3b", 64}, {"2.7b", 80}};
  for (const auto& [model, nheads] : heads) {
    INFO(model);
    const auto cases = shipped("mamba2-" + model);
    CHECK(cases.size() == 2 * 2 * 4 * 2);
    CHECK(ops_of(cases) == kScanAndGradients);
    CHECK(values_of(cases, "batch") == std::set<std::string>{"1", "8"});
    CHECK(values_of(cases, "seqlen") == std::set<std::string>{"16384", "2048", "4096", "512"});
    CHECK(values_of(cases, "dtype") == std::set<std::string>{"bf16", "f32"});
    CHECK(values_of(cases, "nheads") == std::set<std::string>{std::to_string(nheads)});
    for (const auto& one : cases) {
      const SsdChunkScan scan(one.problem);
      CHECK(scan.headdim == 64);
      CHECK(scan.dstate == 128);
      CHECK(scan.groups == 1);
      CHECK(scan.chunk_size == 256);
    }
    // Half a minute of two slow cores: a reference of both operations, and the scalar loops.
    CHECK(updates_of(shipped("mamba2-" + model, true)) < 1.5e9);
  }
}

TEST_CASE("mamba2-small has every option of the chunked scan in every dtype, both ways") {
  const auto all = shipped("mamba2-small");
  CHECK(ops_of(all) == kScanAndGradients);
  CHECK(updates_of(all) < 1e8);
  for (const auto& op : kScanAndGradients) {
    std::vector<Case> cases;
    std::ranges::copy_if(all, std::back_inserter(cases),
                         [&](const Case& one) { return one.problem.op().name == op; });
    CHECK(values_of(cases, "dtype") == kDtypes);
    CHECK(values_of(cases, "D") == std::set<std::string>{"head", "headdim", "none"});
    CHECK(values_of(cases, "dt_limit").size() > 2);
    for (const std::string flag :
         {"z", "dt_bias", "dt_softplus", "initial_states", "final_states", "seq_idx"})
      CHECK(values_of(cases, flag) == kBoth);
    CHECK(values_of(cases, "headdim").contains("256"));
    CHECK(values_of(cases, "dstate").contains("256"));
    CHECK(std::ranges::any_of(cases, [](const Case& one) {
      return SsdChunkScan(one.problem).groups == SsdChunkScan(one.problem).nheads;
    }));
  }
}

TEST_CASE("realtime-60fps is one case with the budget of a frame") {
  const auto cases = shipped("realtime-60fps");
  REQUIRE(cases.size() == 1);
  CHECK(sizes_of(cases) == std::set<Sizes>{{32, 512, 60, 16}});
  CHECK(cases[0].budget_ms == 16.67);
  CHECK(cases[0].problem.choice("layout") == "bld");
  CHECK(cases[0].problem.dtype() == DType::f32);
  for (const std::string flag : {"z", "D", "delta_bias"}) CHECK_FALSE(cases[0].problem.flag(flag));
}

TEST_CASE("algorithms runs both operations in f32, from short to long sequences") {
  std::set<std::int64_t> selective, linear;
  std::map<std::string, std::set<std::string>> distributions;
  for (const auto& one : shipped("algorithms")) {
    const std::string& op = one.problem.op().name;
    CHECK(one.problem.dtype() == DType::f32);
    (op == "linear_scan" ? linear : selective).insert(one.problem.size("seqlen"));
    distributions[op].insert(one.inputs.distribution);
  }
  CHECK(selective == std::set<std::int64_t>{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});
  CHECK(linear == std::set<std::int64_t>{2048, 16384});
  // The log-space scan overflows on the decays of Mamba and does not on decays next to 1.
  const std::set<std::string> both{"mamba", "tiny_delta"};
  CHECK(distributions["selective_scan_fwd"] == both);
  CHECK(distributions["linear_scan"] == both);
}

TEST_CASE("linear-scan is large, and long with few channels, in every dtype") {
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> sizes;
  const auto cases = shipped("linear-scan");
  for (const auto& one : cases) {
    CHECK(one.problem.op().name == "linear_scan");
    sizes.insert({one.problem.size("batch"), one.problem.size("dim"), one.problem.size("seqlen")});
  }
  CHECK(sizes == std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
                     {8, 2048, 2047}, {8, 2048, 2048}, {8, 2048, 16384}, {1, 64, 65536}});
  CHECK(cases.size() == 3 * sizes.size());
  CHECK(values_of(cases, "dtype") == kDtypes);
}

TEST_CASE("ci is broad and small") {
  const auto all = shipped("ci");
  const auto cases = of_op(all, "selective_scan_fwd");
  std::vector<Case> chunked;
  std::ranges::copy_if(all, std::back_inserter(chunked), is_chunk_scan);
  CHECK(pairs_of(cases) <
        5e7);  // (element, state) pairs, a minute of two slow cores for three implementations
  CHECK(values_of(cases, "dtype") == kDtypes);
  CHECK(values_of(cases, "layout") == std::set<std::string>{"bdl", "bld"});
  for (const std::string flag : {"z", "D", "delta_bias", "delta_softplus", "initial_state"})
    CHECK(values_of(cases, flag) == kBoth);
  std::set<std::string> distributions;
  for (const auto& one : cases) distributions.insert(one.inputs.distribution);
  CHECK(distributions == std::set<std::string>{"large_A", "mamba", "slow_decay", "tiny_delta"});
  const auto lengths = values_of(cases, "seqlen");
  // one step; around a warp of 32; around 128 steps; around one and two chunks of 2048
  for (const std::string length :
       {"1", "31", "32", "33", "127", "128", "129", "2047", "2048", "2049", "4097"})
    CHECK(lengths.contains(length));

  // One that is timed takes as long as tens that are not.
  CHECK(std::ranges::count(all, true, &Case::timed) == 3 + 3);

  CHECK(updates_of(chunked) < 5e6);
  CHECK(values_of(chunked, "dtype") == kDtypes);
  CHECK(values_of(chunked, "D") == std::set<std::string>{"head", "headdim", "none"});
  for (const std::string flag : {"z", "dt_bias", "dt_softplus", "initial_states", "final_states", "seq_idx"})
    CHECK(values_of(chunked, flag) == kBoth);
}

TEST_CASE("discretization has every method, real, complex and dense, with B and C of both kinds") {
  const auto cases = shipped("discretization");
  CHECK(sizes_of(cases) == std::set<Sizes>{{8, 512, 128, 16}, {8, 512, 1024, 16}});
  const auto names = method_names();
  CHECK(cases.size() == (names.size() * 2 * 2 + 2) * 2);  // two methods of dense A; all at two lengths
  CHECK(values_of(cases, "method") == std::set<std::string>(names.begin(), names.end()));
  for (const auto& one : cases) {
    CHECK(one.problem.choice("B") == one.problem.choice("C"));
    // With Mamba's steps, 1024 steps of the unstable rule leave the range of f32.
    CHECK((one.inputs.distribution == "tiny_delta") == (one.problem.choice("method") == "bilinear_flipped"));
  }
  CHECK(values_of(cases, "A") == std::set<std::string>{"complex", "dense", "real"});
  CHECK(values_of(cases, "B") == std::set<std::string>{"constant", "variable"});
  CHECK(values_of(cases, "dtype") == std::set<std::string>{"f32"});
}

TEST_CASE("layouts has every problem in both layouts and all dtypes") {
  const auto cases = shipped("layouts");
  std::map<std::string, std::set<std::string>> variants;
  for (const auto& one : cases)
    variants[one.problem.with({{"layout", "bdl"}, {"dtype", "f32"}}).id()].insert(
        one.problem.choice("layout") + " " + one.problem.choice("dtype"));
  for (const auto& [id, seen] : variants) {
    INFO(id);
    CHECK(seen.size() == 6);
  }
  CHECK(sizes_of(cases).size() == 6);
  CHECK(values_of(cases, "A") == std::set<std::string>{"complex", "real"});
  CHECK(values_of(cases, "groups") == std::set<std::string>{"1", "2", "3", "4"});
  CHECK(pairs_of(cases) < 5e8);  // seconds of one core per launch of every case
}

TEST_CASE("stress-long reaches 65536 steps, with a long and a short memory") {
  const auto cases = shipped("stress-long");
  CHECK(sizes_of(cases) == std::set<Sizes>{{1, 64, 4096, 16}, {1, 64, 16384, 16}, {1, 64, 65536, 16}});
  std::set<std::string> distributions;
  for (const auto& one : cases) distributions.insert(one.inputs.distribution);
  CHECK(distributions == std::set<std::string>{"mamba", "slow_decay"});
  CHECK(values_of(cases, "dtype") == std::set<std::string>{"bf16", "f32"});
  CHECK(pairs_of(cases) < 1e9);  // five seconds of one core per launch of every case
}

TEST_CASE("sequence-parallel doubles from 64K to 1M steps, with memories that die out and that do not") {
  const auto cases = shipped("sequence-parallel");
  for (const char* op :
       {"selective_scan_fwd", "selective_scan_bwd", "ssd_chunk_scan_fwd", "ssd_chunk_scan_bwd"}) {
    INFO(op);
    std::set<std::int64_t> lengths;
    for (const auto& one : of_op(cases, op)) lengths.insert(one.problem.size("seqlen"));
    for (std::int64_t length = 65536; length <= 1048576; length *= 2) CHECK(lengths.contains(length));
    CHECK(*lengths.rbegin() == 1048576);
  }
  for (const char* op : {"selective_scan_fwd", "ssd_chunk_scan_fwd"}) {
    std::set<std::string> distributions;
    for (const auto& one : of_op(cases, op)) distributions.insert(one.inputs.distribution);
    CHECK(distributions == std::set<std::string>{"mamba", "slow_decay"});
  }
}

TEST_CASE("huge has more elements than 32 bits count, in both layouts, and quick few") {
  const auto cases = shipped("huge");
  CHECK(sizes_of(cases) == std::set<Sizes>{{512, 4099, 1049, 1}, {1, 4099, 537008, 1}});
  for (const auto& one : cases) {
    CHECK(pairs_of({one}) > 2.2e9);
    CHECK(one.problem.dtype() == DType::f16);
  }
  CHECK(values_of(cases, "layout") == std::set<std::string>{"bdl", "bld"});
  CHECK(pairs_of(shipped("huge", true)) < 1e7);
}

TEST_CASE("gradients covers every method, with real and complex A, and every option") {
  const auto cases = shipped("gradients");
  CHECK(pairs_of(cases) < 1e8);
  for (const auto& one : cases) CHECK(one.problem.op().name == "selective_scan_bwd");
  const auto methods_known = method_names();
  const std::set<std::string> methods_wanted(methods_known.begin(), methods_known.end());
  for (const std::string A : {"real", "complex"}) {
    std::vector<Case> chosen;
    std::ranges::copy_if(cases, std::back_inserter(chosen),
                         [&](const Case& one) { return one.problem.choice("A") == A; });
    CHECK(values_of(chosen, "method") == methods_wanted);
    for (const std::string flag : {"z", "D", "delta_bias", "delta_softplus", "initial_state"})
      CHECK(values_of(chosen, flag) == kBoth);
    CHECK(values_of(chosen, "dtype") == kDtypes);
    CHECK(values_of(chosen, "layout") == std::set<std::string>{"bdl", "bld"});
    CHECK(values_of(chosen, "groups") == std::set<std::string>{"1", "4"});
    CHECK(values_of(chosen, "B") == std::set<std::string>{"constant", "variable"});
    CHECK(values_of(chosen, "C") == std::set<std::string>{"constant", "variable"});
  }
}

TEST_CASE("decode has the models' sizes, one to 512 sequences, f32 and bf16, states in both") {
  using StepSizes = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // heads, headdim, dstate
  const auto cases = shipped("decode");
  std::map<std::string, std::set<StepSizes>> sizes;
  for (const auto& one : cases) {
    const StateUpdate step(one.problem);
    sizes[one.problem.choice("form")].insert({step.heads, step.headdim, step.dstate});
  }
  CHECK(sizes["mamba1"] ==
        std::set<StepSizes>{{1536, 1, 16}, {2048, 1, 16}, {3072, 1, 16}, {4096, 1, 16}, {5120, 1, 16}});
  CHECK(sizes["mamba2"] == std::set<StepSizes>{{32, 64, 128}, {64, 64, 128}, {80, 64, 128}});
  CHECK(values_of(cases, "batch") == std::set<std::string>{"1", "8", "64", "128", "512"});
  CHECK(values_of(cases, "dtype") == std::set<std::string>{"bf16", "f32"});
  const auto in_halves = std::ranges::count_if(
      cases, [](const Case& one) { return one.problem.choice("state_dtype") == "bf16"; });
  CHECK(in_halves == (2 + 2) * 3);
  CHECK(cases.size() == (5 + 3) * 5 * 2 + 12);
  for (const auto& one : shipped("decode", true)) CHECK(one.problem.size("batch") == 1);
}

TEST_CASE("ci decodes with both forms, every option, and states of every kind of row") {
  const auto cases = of_op(shipped("ci"), "selective_state_update");
  CHECK(values_of(cases, "form") == std::set<std::string>{"mamba1", "mamba2"});
  CHECK(values_of(cases, "dtype") == kDtypes);
  CHECK(values_of(cases, "state_dtype") == std::set<std::string>{"bf16", "e4m3", "f16", "f32", "i16", "i8"});
  for (const std::string flag : {"z", "D", "dt_bias", "dt_softplus"}) CHECK(values_of(cases, flag) == kBoth);
  CHECK(values_of(cases, "groups") == std::set<std::string>{"1", "2", "3", "6"});
  CHECK(values_of(cases, "store") == std::set<std::string>{"last", "apart", "each", "none"});
  for (const auto* axis : {"tokens", "pads", "slots", "dt_dtype"}) CHECK(values_of(cases, axis).size() >= 2);
  CHECK(values_of(cases, "dstate") ==
        std::set<std::string>{"1", "128", "16", "17", "20", "256", "3", "4", "64"});
  double states = 0;
  for (const auto& one : cases) states += StateUpdate(one.problem).states();
  CHECK(states < 1.2e6);
}

TEST_CASE("quick takes what two cores without a GPU do in half a minute") {
  for (const char* name : {"comparison", "discretization", "scaling", "sequence-parallel"}) {
    INFO(name);
    const auto cases = shipped(name, true);
    CHECK(pairs_of(of_op(cases, "selective_scan_fwd")) < 1e8);
    CHECK(pairs_of(of_op(cases, "selective_scan_bwd")) < 5e7);
    CHECK(updates_of(of_op(cases, "ssd_chunk_scan_bwd")) < 1e8);
  }
}

TEST_CASE("quick cases of every config are small") {
  for (const auto& entry : std::filesystem::directory_iterator(SSMBENCH_SOURCE_DIR "/configs")) {
    const std::string name = entry.path().stem();
    const std::set<std::string> others{"schema", "consistency", "convergence"};  // which have no sweeps
    if (entry.path().extension() != ".json" || others.contains(name)) continue;
    INFO(name);
    double elements = 0;
    for (const auto& one : all_shipped(name, true))
      for (const auto& tensor : one.problem.tensors())
        elements += static_cast<double>(element_count(tensor.shape));
    CHECK(elements < 2e8);
  }
}

TEST_CASE("quick takes batch 1 and the shortest sequence of the shipped configs") {
  CHECK(sizes_of(shipped("mamba-370m", true)) == std::set<Sizes>{{1, 2048, 512, 16}});
  CHECK(shipped("mamba-370m", true).size() == 3);
  CHECK(sizes_of(shipped("realtime-60fps", true)) == std::set<Sizes>{{1, 512, 60, 16}});
}
