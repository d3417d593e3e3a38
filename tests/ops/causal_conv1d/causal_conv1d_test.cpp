// The causal convolution's tensors, what contradicts itself, how its inputs are drawn and how it is kept in
// files.

#include "ops/causal_conv1d/causal_conv1d.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/errors.h"
#include "catch.h"
#include "interchange/files.h"
#include "interchange/reader.h"
#include "support/conv_problem.h"
#include "support/input_values.h"
#include "support/write_case.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// "io f32 2×3", by tensor; outputs with "> " in front.
std::map<std::string, std::string> tensors_of(const Problem& problem) {
  std::map<std::string, std::string> all;
  for (const auto& spec : problem.tensors())
    all[(spec.role == Role::output ? "> " : "") + spec.name] =
        std::string(name_of(spec.dtype)) + " " + to_string(spec.stored_shape());
  return all;
}

std::string complaint(const OpSpec& op, const Axes& axes) {
  try {
    const Problem problem(op, axes);
  } catch (const ContractError& error) {
    return error.what();
  }
  return "";
}

const Axes kUpdate{{"dtype", "f32"}, {"batch", size(4)}, {"dim", size(2)}};

std::string update_complaint(Axes axes) {
  axes.merge(Axes(kUpdate));
  return complaint(causal_conv1d_update(), axes);
}

/// A file with one case of generated inputs, changed by `spoil`, and no outputs.
void write_spoilt(const std::string& path, const Problem& problem,
                  const std::function<void(const std::vector<HostTensor>&)>& spoil = {}) {
  const auto inputs = generate_inputs(problem, {}, never_stop);
  if (spoil) spoil(inputs);
  write_case(path, problem, inputs);
}

}  // namespace

TEST_CASE("tensors of the causal convolution lie as the layout has it, with states in C order") {
  const Axes axes{{"dtype", "bf16"},        {"weight_dtype", "f32"}, {"batch", size(2)},
                  {"dim", size(3)},         {"seqlen", size(5)},     {"bias", true},
                  {"initial_states", true}, {"final_states", true}};
  CHECK(tensors_of(conv_problem(axes)) ==
        std::map<std::string, std::string>{{"x", "bf16 2×3×5"},
                                           {"weight", "f32 3×4"},
                                           {"bias", "f32 3"},
                                           {"initial_states", "bf16 2×3×3"},
                                           {"> out", "bf16 2×3×5"},
                                           {"> final_states", "bf16 2×3×3"}});
  Axes other = axes;
  other["layout"] = "bld";
  other["dout_layout"] = "other";
  other["weight_dtype"] = "io";
  CHECK(tensors_of(conv_problem(other, causal_conv1d_bwd())) ==
        std::map<std::string, std::string>{{"x", "bf16 2×5×3"},
                                           {"weight", "bf16 3×4"},
                                           {"bias", "bf16 3"},
                                           {"initial_states", "bf16 2×3×3"},
                                           {"dout", "bf16 2×3×5"},
                                           {"dfinal_states", "bf16 2×3×3"},
                                           {"> dx", "bf16 2×5×3"},
                                           {"> dweight", "f32 3×4"},
                                           {"> dbias", "f32 3"},
                                           {"> dinitial_states", "bf16 2×3×3"}});
}

TEST_CASE("tensors of the convolution's steps have an axis of tokens where there are several, and slots") {
  CHECK(tensors_of(conv_update_problem({{"batch", size(2)}, {"dim", size(3)}})) ==
        std::map<std::string, std::string>{{"x", "f32 2×3"},
                                           {"conv_state", "f32 2×3×3"},
                                           {"weight", "f32 3×4"},
                                           {"> out", "f32 2×3"},
                                           {"> conv_state", "f32 2×3×3"}});
  CHECK(tensors_of(conv_update_problem({{"batch", size(2)},
                                        {"dim", size(3)},
                                        {"tokens", size(4)},
                                        {"state_len", size(6)},
                                        {"store", "apart"},
                                        {"slots", size(9)},
                                        {"layout", "skd"}})) ==
        std::map<std::string, std::string>{{"x", "f32 2×4×3"},
                                           {"conv_state", "f32 9×6×3"},
                                           {"weight", "f32 3×4"},
                                           {"source", "i32 2"},
                                           {"destination", "i32 2"},
                                           {"> out", "f32 2×4×3"},
                                           {"> conv_state", "f32 9×6×3"}});
}

TEST_CASE("convolutions that contradict themselves are refused") {
  const Axes sizes{{"dtype", "f32"}, {"batch", size(1)}, {"dim", size(1)}, {"seqlen", size(4)}};
  const auto with = [&](Axes axes) {
    axes.merge(Axes(sizes));
    return complaint(causal_conv1d_fwd(), axes);
  };
  CHECK(with({{"width", size(1)}}) == "width 1 is not in 2 to 8");
  CHECK(with({{"width", size(9)}}) == "width 9 is not in 2 to 8");
  CHECK(with({{"width", size(8)}}) == "");
  CHECK(with({{"seq_idx", true}, {"final_states", true}}) ==
        "seq_idx does not go together with initial_states and final_states");
  CHECK(update_complaint({{"width", size(6)}}) ==
        "state_len 3 is less than the 5 steps that a width of 6 reaches back");
  CHECK(update_complaint({{"slots", size(9)}}) == "slots 9 with store own");
  CHECK(update_complaint({{"pads", true}}) == "pads without slots: store is own");
  CHECK(update_complaint({{"store", "apart"}, {"slots", size(7)}}) ==
        "slots 7 are too few: batch 4 with store apart needs 8");
  CHECK(update_complaint({{"store", "none"}, {"slots", size(4)}, {"pads", true}}) == "");
}

TEST_CASE(
    "slots are drawn without repetition, destinations apart from sources, and every fourth row is padding") {
  for (const char* store : {"last", "apart", "none"}) {
    const Problem problem =
        conv_update_problem({{"batch", size(9)}, {"store", store}, {"slots", size(20)}, {"pads", true}});
    const auto source = input_values(problem, "source", {});
    const auto destination = input_values(problem, "destination", {});
    std::set<double> named;
    for (std::size_t b = 0; b < 9; ++b) {
      CAPTURE(store, b);
      CHECK((source[b] == -1) == (b % 4 == 3));
      CHECK((destination[b] == -1) == (b % 4 == 3 || store == std::string("none")));
      for (const double slot : {source[b], destination[b]}) CHECK((slot >= -1 && slot < 20));
      if (source[b] < 0) continue;
      CHECK(named.insert(source[b]).second);
      if (store == std::string("last"))
        CHECK(destination[b] == source[b]);
      else if (store == std::string("apart"))
        CHECK(named.insert(destination[b]).second);
    }
  }
}

TEST_CASE("packed sequences are drawn with short runs, padding, and numbers that come back") {
  const Problem problem = conv_problem({{"batch", size(4)}, {"seqlen", size(400)}, {"seq_idx", true}});
  const auto numbers = input_values(problem, "seq_idx", {});
  int padding = 0, short_runs = 0, returns = 0;
  for (std::int64_t b = 0; b < 4; ++b) {
    std::set<double> seen;
    std::int64_t begin = 0;
    for (std::int64_t t = 0; t < 400; ++t) {
      const auto at = [&](std::int64_t step) { return numbers[static_cast<std::size_t>(b * 400 + step)]; };
      if (t + 1 < 400 && at(t + 1) == at(t)) continue;
      short_runs += t + 1 - begin <= 4 ? 1 : 0;
      padding += at(t) < 0 ? 1 : 0;
      returns += at(t) >= 0 && !seen.insert(at(t)).second ? 1 : 0;
      begin = t + 1;
    }
  }
  CHECK(padding > 0);
  CHECK(short_runs > 0);
  CHECK(returns > 0);
}

TEST_CASE("weights and biases are drawn as torch.nn.Conv1d initialises them") {
  const Problem problem = conv_problem({{"dim", size(500)}, {"bias", true}, {"width", size(3)}});
  for (const char* name : {"weight", "bias"}) {
    double most = 0;
    for (const double value : input_values(problem, name, {})) most = std::max(most, std::abs(value));
    CHECK(most < 1 / std::sqrt(3.0) * 1.0001);
    CHECK(most > 0.97 / std::sqrt(3.0));
  }
}

TEST_CASE("convolutions survive a file, in both layouts, with and without options") {
  const TemporaryFolder folder;
  std::vector<Problem> problems;
  for (const char* layout : {"bdl", "bld"})
    for (const bool options : {false, true}) {
      const Axes axes{{"layout", layout},    {"dtype", "bf16"}, {"weight_dtype", options ? "f32" : "io"},
                      {"batch", size(2)},    {"dim", size(3)},  {"seqlen", size(5)},
                      {"bias", options},     {"silu", options}, {"initial_states", options},
                      {"final_states", true}};
      problems.push_back(conv_problem(axes));
      problems.push_back(conv_problem(axes, causal_conv1d_bwd()));
    }
  for (const char* layout : {"sdk", "skd"})
    for (const std::int64_t tokens : {1, 3}) {
      const Axes axes{{"layout", layout}, {"batch", size(2)}, {"dim", size(3)}, {"tokens", tokens}};
      problems.push_back(conv_update_problem(axes));
      Axes slots{{"store", "apart"}, {"slots", size(7)}, {"pads", true}, {"state_len", size(5)}};
      slots.merge(Axes(axes));
      problems.push_back(conv_update_problem(slots));
    }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    INFO(problems[i].id());
    const std::string path = folder / std::to_string(i);
    write_spoilt(path, problems[i]);
    CHECK(InterchangeFile(path).read_case("a").problem.id() == problems[i].id());
  }
}

TEST_CASE("a slot below -1, and one that two rows write, is refused where a file is read") {
  const TemporaryFolder folder;
  const Problem problem = conv_update_problem({{"batch", size(3)}, {"store", "last"}, {"slots", size(7)}});
  const auto complaint_of = [&](const char* name, std::int32_t first, std::int32_t second) {
    const std::string path = folder / name;
    write_spoilt(path, problem, [&](const std::vector<HostTensor>& inputs) {
      for (const auto& input : inputs)
        if (input.spec.name == name) {
          auto* slots = static_cast<std::int32_t*>(input.buffer.data());
          slots[0] = first;
          slots[1] = second;
          slots[2] = -1;
        }
    });
    const std::string message = message_of<UsageError>([&] { InterchangeFile(path).read_case("a"); });
    return message.substr(message.find("inputs/") + 7);
  };
  CHECK(complaint_of("source", 2, -2) == "source: row 1 has slot -2");
  CHECK(complaint_of("destination", 5, 5) == "destination: row 1 has slot 5, which an earlier row has");
}
