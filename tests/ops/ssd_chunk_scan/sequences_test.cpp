// Sequences that cu_seqlens packs: tensors, what contradicts itself, how lengths are drawn, least work, files.

#include "ops/ssd_chunk_scan/sequences.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/errors.h"
#include "catch.h"
#include "interchange/files.h"
#include "interchange/reader.h"
#include "support/input_values.h"
#include "support/ssd_problem.h"
#include "support/write_case.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem packed(std::int64_t sequences, Axes axes = {}) {
  axes.merge(Axes{{"seqlen", size(300)}, {"cu_seqlens", true}, {"sequences", size(sequences)}});
  return ssd_problem(axes);
}

std::string refusal(const Axes& axes) {
  return message_of<ContractError>([&] { ssd_problem(axes); });
}

std::vector<std::int64_t> lengths_of(const Problem& problem, std::int64_t seed) {
  const auto borders =
      input_values(problem, "cu_seqlens", {.distribution = "mamba", .values = "native", .seed = seed});
  REQUIRE(borders.front() == 0);
  REQUIRE(borders.back() == 300);
  std::vector<std::int64_t> lengths;
  for (std::size_t m = 1; m < borders.size(); ++m)
    lengths.push_back(static_cast<std::int64_t>(borders[m] - borders[m - 1]));
  return lengths;
}

}  // namespace

TEST_CASE("packed sequences have a state each") {
  const Problem problem = packed(5, {{"nheads", size(2)},
                                     {"headdim", size(3)},
                                     {"dstate", size(4)},
                                     {"initial_states", true},
                                     {"final_states", true}});
  std::map<std::string, std::string> shapes;
  for (const auto& spec : problem.tensors()) shapes[spec.name] = to_string(spec.shape);
  CHECK(shapes.at("x") == "1×300×2×3");
  CHECK(shapes.at("cu_seqlens") == "6");
  CHECK(shapes.at("initial_states") == "5×2×3×4");
  CHECK(shapes.at("final_states") == "5×2×3×4");
  CHECK(SsdSequences(problem).packed);
  CHECK(SsdSequences(problem).count == 5);
  CHECK(SsdSequences(ssd_problem({{"batch", size(7)}})).count == 7);
}

TEST_CASE("states on the way add their steps and themselves, one in each equal part") {
  const Problem problem =
      packed(5, {{"nheads", size(2)}, {"headdim", size(3)}, {"dstate", size(4)}, {"states_at", size(7)}});
  std::map<std::string, std::string> shapes;
  for (const auto& spec : problem.tensors()) shapes[spec.name] = to_string(spec.shape);
  CHECK(shapes.at("states_at") == "7");
  CHECK(shapes.at("states") == "7×2×3×4");
  CHECK(!shapes.contains("final_states"));
  CHECK(SsdSequences(problem).stops == 7);
  const auto steps =
      input_values(problem, "states_at", {.distribution = "mamba", .values = "native", .seed = 3});
  for (std::int64_t k = 0; k < 7; ++k) {
    CHECK(steps[k] >= static_cast<double>(k * 300 / 7));
    CHECK(steps[k] < static_cast<double>((k + 1) * 300 / 7));
  }
  CHECK(refusal({{"states_at", size(1)}}) == "states_at 1 without cu_seqlens");
  CHECK(refusal({{"cu_seqlens", true}, {"seqlen", size(3)}, {"states_at", size(4)}}) ==
        "states_at 4 is more than seqlen 3");
}

TEST_CASE("states have a dtype of their own, which initial_states say in files") {
  const Axes axes{{"initial_states", true}, {"final_states", true}, {"states_at", size(2)}};
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    Axes with = axes;
    with["state_dtype"] = dtype;
    const Problem problem = packed(3, with);
    CHECK(name_of(SsdSequences(problem).state_dtype) == dtype);
    for (const auto& spec : problem.tensors())
      if (spec.name == "initial_states" || spec.name == "final_states" || spec.name == "states")
        CHECK(name_of(spec.dtype) == dtype);
    const TemporaryFolder folder;
    const std::string path = folder / dtype;
    write_case(path, problem, generate_inputs(problem, {}, never_stop));
    CHECK(InterchangeFile(path).read_case("a").problem.choice("state_dtype") == dtype);
  }
  CHECK(refusal({{"final_states", true}, {"state_dtype", "bf16"}}) ==
        "state_dtype bf16 without initial_states, which say it in files");
}

TEST_CASE("packed sequences that contradict themselves are refused") {
  CHECK(refusal({{"cu_seqlens", true}, {"batch", size(2)}}) ==
        "batch 2 with cu_seqlens, which packs sequences into a batch of 1");
  CHECK(refusal({{"cu_seqlens", true}, {"seq_idx", true}}) ==
        "seq_idx with cu_seqlens: both say where sequences begin");
  CHECK(refusal({{"sequences", size(2)}}) == "sequences 2 without cu_seqlens");
  CHECK(refusal({{"lengths", "equal"}}) == "lengths equal without cu_seqlens");
}

TEST_CASE("lengths of packed sequences are drawn as asked for") {
  for (std::int64_t seed = 0; seed < 20; ++seed)
    for (const std::int64_t sequences : {1, 2, 3, 4, 9, 400}) {
      CAPTURE(seed, sequences);
      const auto ragged = lengths_of(packed(sequences), seed);
      const auto equal = lengths_of(packed(sequences, {{"lengths", "equal"}}), seed);
      const auto empty = lengths_of(packed(sequences, {{"lengths", "with-empty"}}), seed);
      for (const auto* lengths : {&ragged, &equal, &empty}) CHECK(std::ranges::min(*lengths) >= 0);
      if (sequences >= 3) CHECK(std::ranges::count(ragged, 1) >= 1);
      CHECK(std::ranges::max(equal) - std::ranges::min(equal) <= 1);
      if (sequences >= 2) CHECK(std::ranges::count(empty, 0) >= 1);
    }
}

TEST_CASE("the least work of packed sequences is no more than that of each on its own") {
  for (const char* lengths : {"ragged", "equal", "with-empty"})
    for (const std::int64_t sequences : {1, 3, 40})
      for (std::int64_t seed = 0; seed < 5; ++seed) {
        const Axes sizes{{"nheads", size(2)}, {"headdim", size(16)}, {"dstate", size(16)}};
        Axes axes{{"lengths", lengths}};
        axes.merge(Axes(sizes));
        const Problem problem = packed(sequences, axes);
        Work separate;
        for (const std::int64_t steps : lengths_of(problem, seed)) {
          if (steps == 0) continue;
          Axes alone{{"seqlen", steps}};
          alone.merge(Axes(sizes));
          const Work one = ssd_chunk_scan_fwd().least_work(ssd_problem(alone), Math::bf16);
          separate.tensor_flops += one.tensor_flops;
        }
        CAPTURE(lengths, sequences, seed);
        CHECK(ssd_chunk_scan_fwd().least_work(problem, Math::bf16).tensor_flops <=
              separate.tensor_flops * (1 + 1e-12));
      }
}

TEST_CASE("cu_seqlens that decreases is refused where a file is read") {
  const TemporaryFolder folder;
  const Problem problem = packed(3);
  const auto complaint_of = [&](const std::string& name, std::int32_t first, std::int32_t second) {
    const std::string path = folder / name;
    const auto inputs = generate_inputs(problem, {}, never_stop);
    for (const auto& input : inputs)
      if (input.spec.name == "cu_seqlens") {
        static_cast<std::int32_t*>(input.buffer.data())[0] = first;
        static_cast<std::int32_t*>(input.buffer.data())[1] = second;
      }
    write_case(path, problem, inputs);
    const std::string message = message_of<UsageError>([&] { InterchangeFile(path).read_case("a"); });
    return message.substr(std::min(message.size(), message.find("cu_seqlens: ")));
  };
  CHECK(complaint_of("first", 3, 4) == "cu_seqlens: starts with 3, not with 0");
  CHECK(complaint_of("second", 0, 301).starts_with("cu_seqlens: decreases from 301 to "));
}
