#include "ops/selective_state_replay/selective_state_replay.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "interchange/files.h"
#include "interchange/reader.h"
#include "model/tensor_map.h"
#include "support/host_tensors.h"
#include "support/replay_problem.h"
#include "support/write_case.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

TensorSpec tensor(const Problem& problem, const std::string& name, Role role = Role::input) {
  for (auto& spec : problem.tensors())
    if (spec.name == name && spec.role == role) return spec;
  return {};
}

Problem several(const Axes& axes = {}) {
  Axes all = axes;
  all.merge(Axes{{"batch", size(6)},
                 {"nheads", size(4)},
                 {"headdim", size(3)},
                 {"dstate", size(5)},
                 {"groups", size(2)},
                 {"tokens", size(2)},
                 {"slots", size(9)},
                 {"dtype", "bf16"}});
  return replay_problem(all);
}

std::vector<std::int32_t> numbers(const std::vector<HostTensor>& inputs, const char* name) {
  const HostTensor& from = *find_tensor(inputs, name);
  const auto* values = static_cast<const std::int32_t*>(from.buffer.data());
  return {values, values + element_count(from.spec.shape)};
}

std::string error_of(const Axes& axes) {
  try {
    replay_problem(axes);
  } catch (const ContractError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("tensors of a replay have the shapes of the definition, and what it writes is updated in place") {
  const Problem problem = several();
  CHECK(tensor(problem, "state").shape == Shape{9, 4, 3, 5});
  CHECK(tensor(problem, "ring_x").shape == Shape{9, 4, 6, 3});
  CHECK(tensor(problem, "ring_x").dtype == DType::bf16);
  CHECK(tensor(problem, "ring_B").shape == Shape{9, 2, 6, 5});
  CHECK(tensor(problem, "ring_dt").shape == Shape{9, 4, 6});
  CHECK(tensor(problem, "ring_dt").dtype == DType::f32);
  CHECK(tensor(problem, "start").shape == Shape{9});
  CHECK(tensor(problem, "count").dtype == DType::i32);
  CHECK(tensor(problem, "source").shape == Shape{6});
  CHECK(tensor(problem, "destination").shape.empty());
  CHECK(tensor(problem, "x").shape == Shape{6, 2, 4, 3});
  for (const char* name : {"state", "ring_x", "ring_B", "ring_dt"})
    CHECK(tensor(problem, name, Role::output).shape == tensor(problem, name).shape);
  const Problem plain = replay_problem({{"batch", size(2)}});
  CHECK(tensor(plain, "ring_x").shape == Shape{2, 1, 5, 1});
  CHECK(tensor(plain, "source").shape.empty());
}

TEST_CASE("replays that contradict themselves") {
  CHECK(error_of({{"window", size(2)}, {"tokens", size(3)}, {"flush", "none"}}) ==
        "flush none with 3 tokens, more than the window of 2");
  CHECK(error_of({{"slots", size(2)}, {"batch", size(3)}}) ==
        "slots 2 are fewer than the 3 that batch 3, tokens 1 and store none take");
  CHECK(error_of({{"state_dtype", "i8"}}) == "state_dtype must be one of f32, f16, bf16, got i8");
  CHECK(error_of({{"store", "each"}}).find("store") != std::string::npos);
}

TEST_CASE("rings start anywhere, and checkpoints are stored where the axis says so") {
  for (const auto& [flush, least, most] :
       {std::tuple{"mixed", 0, 4}, std::tuple{"none", 0, 2}, std::tuple{"all", 3, 4}}) {
    CAPTURE(flush);
    const auto inputs = generate_inputs(several({{"flush", flush}}), {}, never_stop);
    const auto counts = numbers(inputs, "count");
    std::set<std::int32_t> seen;
    for (const auto slot : numbers(inputs, "source")) seen.insert(counts.at(slot));
    CHECK(*seen.begin() == least);
    CHECK(*seen.rbegin() == most);
    const auto starts = numbers(inputs, "start");
    CHECK(*std::ranges::max_element(starts) < 6);
    CHECK(std::set(starts.begin(), starts.end()).size() > 2);
    for (std::int64_t i = 0; i < 9 * 4 * 6; ++i)
      CHECK(load_as_double(find_tensor(inputs, "ring_dt")->buffer.data(), i, DType::f32) > 0);
  }
}

TEST_CASE("the least work of a replay has checkpoints once, and twice where they are stored") {
  const auto bytes = [](const char* flush) {
    const Problem problem = several({{"flush", flush}, {"window", size(2)}});
    return problem.op().least_work(problem, Math::f32).bytes;
  };
  // Window 2 and two tokens: none has count 0 only; all has 1 and 2, three rows each.
  const double token = 4 * 3 * 2 + 2 * 5 * 2 + 4 * 4;
  CHECK(bytes("all") - bytes("none") == 6 * (4 * 3 * 5 * 4) + (3 * 1 + 3 * 2) * token);
}

TEST_CASE("a replay survives a file, and indices that are none are refused") {
  const TemporaryFolder folder;
  for (const auto& problem :
       {several({{"z", true}, {"D", true}, {"dt_dtype", "f32"}}), several({{"slots", size(0)}}),
        several({{"tokens", size(1)}, {"state_dtype", "f16"}, {"dt_bias", true}, {"dt_softplus", true}})}) {
    INFO(problem.id());
    const auto inputs = generate_inputs(problem, {}, never_stop);
    write_case(folder / problem.id(), problem, inputs);
    const CaseRead read = InterchangeFile(folder / problem.id()).read_case("a");
    CHECK(read.problem.axes() == problem.axes());
    REQUIRE(read.inputs.size() == inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      CHECK(std::memcmp(read.inputs[i].buffer.data(), inputs[i].buffer.data(), inputs[i].spec.bytes()) == 0);
  }
  const Problem problem = several();
  for (const char* name : {"source", "start", "count"}) {
    const auto inputs = generate_inputs(problem, {}, never_stop);
    static_cast<std::int32_t*>(find_tensor(inputs, name)->buffer.data())[1] = -2;
    write_case(folder / name, problem, inputs);
    CHECK_THROWS_AS(InterchangeFile(folder / name).read_case("a"), UsageError);
  }
}
