// A row's tokens are steps from its checkpoint: first those of the ring, whose Δ is ready, then the new ones.

#include "ops/selective_state_replay/parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/portable_math.h"
#include "inputs/unnamed_slots.h"
#include "model/problem.h"
#include "model/tensor_map.h"
#include "ops/selective_state_replay/selective_state_replay.h"

namespace ssmbench {
namespace {

std::optional<std::string> always_applies(const Problem& /*whole*/) {
  return {};
}

double get(const HostTensor& tensor, const Shape& index) {
  return load_as_double(tensor.buffer.data(), offset_of(index, tensor.spec.strides()), tensor.spec.dtype);
}

void set(const HostTensor& tensor, const Shape& index, double value) {
  store_from_double(tensor.buffer.data(), offset_of(index, tensor.spec.strides()), tensor.spec.dtype, value);
}

class InSteps {
 public:
  InSteps(const Problem& whole, const std::vector<HostTensor>& inputs, const RunPart& run)
      : replay_(whole), whole_(whole), inputs_(inputs), run_(run), outputs_(blank_outputs(whole)) {}

  std::vector<HostTensor> compute() {
    for (const auto& output : outputs_)
      if (const HostTensor* before = find_tensor(inputs_, output.spec.name))  // updated in place
        std::memcpy(output.buffer.data(), before->buffer.data(), before->spec.bytes());
    for (std::int64_t b = 0; b < replay_.step.batch; ++b)
      if (const std::int64_t slot = slot_of(b); slot >= 0) row(b, slot);
    return std::move(outputs_);
  }

 private:
  const HostTensor& input(const char* name) const { return *find_tensor(inputs_, name); }
  const HostTensor& output(const char* name) const { return *find_tensor(outputs_, name); }
  std::int64_t number(const char* name, std::int64_t at) const {
    return static_cast<const std::int32_t*>(input(name).buffer.data())[at];
  }
  std::int64_t slot_of(std::int64_t b) const { return replay_.step.slots > 0 ? number("source", b) : b; }

  /// `tokens` steps of one sequence, whose state is in f32: what is in between is not rounded.
  Problem steps(std::int64_t tokens, const Axes& changes) const {
    Axes axes = changes;
    axes.merge(Axes{{"batch", std::int64_t{1}},
                    {"tokens", tokens},
                    {"slots", std::int64_t{0}},
                    {"store", std::string("last")},
                    {"pads", std::int64_t{0}},
                    {"state_dtype", std::string("f32")}});
    return steps_of_replay(whole_).with(axes);
  }

  void row(std::int64_t b, std::int64_t slot) {
    const std::int64_t count = number("count", slot);
    HostTensor state = checkpoint(slot);
    if (count > 0) state = after_ring(slot, count, std::move(state));
    if (replay_.stores(count)) store(state, slot);
    new_tokens(b, std::move(state));
    append(b, slot, count);
  }

  /// In the state's dtype.
  void store(const HostTensor& state, std::int64_t slot) const {
    for (std::int64_t i = 0; i < element_count(state.spec.shape); ++i) {
      Shape index = index_of(i, state.spec.shape);
      index[0] = slot;
      set(output("state"), index, load_as_double(state.buffer.data(), i, DType::f32));
    }
  }

  HostTensor& output_of(const char* name) {
    return *std::ranges::find(outputs_, name, [](const HostTensor& each) { return each.spec.name; });
  }

  static IndexMap in_slot(std::int64_t slot) {
    return [slot](const Shape& here, Shape& there) {
      there = here;
      there[0] = slot;
    };
  }

  HostTensor checkpoint(std::int64_t slot) const {
    const TensorSpec spec = steps(1, {}).tensors().front();
    HostTensor state(spec);
    for (std::int64_t i = 0; i < element_count(spec.shape); ++i) {
      Shape index = index_of(i, spec.shape);
      index[0] = slot;
      store_from_double(state.buffer.data(), i, DType::f32, get(input("state"), index));
    }
    return state;
  }

  HostTensor after_ring(std::int64_t slot, std::int64_t count, HostTensor state) const {
    const Problem part = steps(count, {{"dt_dtype", std::string("f32")},
                                       {"dt_softplus", false},
                                       {"dt_bias", false},
                                       {"D", false},
                                       {"z", false}});
    const std::int64_t start = number("start", slot);
    std::vector<HostTensor> given;
    std::ptrdiff_t place = 0;
    for (const auto& spec : part.tensors()) {
      if (spec.role != Role::input) continue;
      if (spec.name == "state")
        place = std::ssize(given);
      else if (spec.name == "A")
        given.push_back(gathered(spec, input("A"), same_index));
      else if (spec.name == "C")
        given.push_back(zeros(spec));
      else
        given.push_back(of_ring(spec, slot, start));
    }
    given.insert(given.begin() + place, std::move(state));
    auto results = run_(part, given);
    return std::move(results[1]);
  }

  /// Tokens of the ring as an input of steps: (1, T, …) or, of one token, (1, …).
  HostTensor of_ring(const TensorSpec& spec, std::int64_t slot, std::int64_t start) const {
    const HostTensor& from = input(("ring_" + spec.name).c_str());
    HostTensor to(spec);
    for (std::int64_t i = 0; i < element_count(spec.shape); ++i) {
      Shape index = index_of(i, spec.shape);
      if (spec.axes[1] != kTimeLetter) index.insert(index.begin() + 1, 0);
      const std::int64_t at = (start + index[1]) % replay_.ring();
      Shape there{slot, index[2], at};
      if (index.size() > 3) there.push_back(index[3]);
      store_from_double(to.buffer.data(), i, spec.dtype, get(from, there));
    }
    return to;
  }

  void new_tokens(std::int64_t b, HostTensor state) {
    const Problem part = steps(replay_.step.tokens, {});
    const IndexMap of_row = in_slot(b);
    std::vector<HostTensor> given;
    std::ptrdiff_t place = 0;
    for (const auto& spec : part.tensors()) {
      if (spec.role != Role::input) continue;
      const bool is_of_row = spec.axes.front() == 'b';
      if (spec.name == "state")
        place = std::ssize(given);
      else
        given.push_back(gathered(spec, input(spec.name.c_str()), is_of_row ? of_row : same_index));
    }
    given.insert(given.begin() + place, std::move(state));
    const auto results = run_(part, given);
    scatter(results[0], output_of("out"), of_row);
  }

  void append(std::int64_t b, std::int64_t slot, std::int64_t count) {
    const bool has_axis = replay_.step.tokens > 1;
    for (std::int64_t t = 0; t < replay_.step.tokens; ++t) {
      const std::int64_t at = (number("start", slot) + count + t) % replay_.ring();
      const auto new_one = [&](std::initializer_list<std::int64_t> rest) {
        Shape index{b};
        if (has_axis) index.push_back(t);
        index.insert(index.end(), rest);
        return index;
      };
      for (std::int64_t h = 0; h < replay_.step.heads; ++h) {
        set(output("ring_dt"), {slot, h, at}, step_size(get(input("dt"), new_one({h})), h));
        for (std::int64_t p = 0; p < replay_.step.headdim; ++p)
          set(output("ring_x"), {slot, h, at, p}, get(input("x"), new_one({h, p})));
      }
      for (std::int64_t g = 0; g < replay_.step.groups; ++g)
        for (std::int64_t n = 0; n < replay_.step.dstate; ++n)
          set(output("ring_B"), {slot, g, at, n}, get(input("B"), new_one({g, n})));
    }
  }

  double step_size(double dt, std::int64_t head) const {
    if (replay_.step.has_dt_bias) dt += get(input("dt_bias"), {head});
    return replay_.step.dt_softplus ? portable::softplus(dt) : dt;
  }

  StateReplay replay_;
  const Problem& whole_;
  const std::vector<HostTensor>& inputs_;
  const RunPart& run_;
  std::vector<HostTensor> outputs_;
};

std::vector<HostTensor> in_steps(const Problem& whole, const std::vector<HostTensor>& inputs,
                                 const RunPart& run) {
  return InSteps(whole, inputs, run).compute();
}

}  // namespace

PartwiseComputation replay_as_steps() {
  return {.check = "steps",
          .parts_op = "selective_state_update",
          .summary = "a replay against decoding steps, of the tokens in the ring and of the new ones",
          .inapplicable = always_applies,
          .compute = in_steps};
}

PartwiseComputation replay_in_slots() {
  return {.check = "slots",
          .parts_op = "selective_state_replay",
          .summary = "unused slots full of garbage: they keep it, and nothing else changes",
          .inapplicable = no_slots,
          .compute = [](const Problem& whole, const std::vector<HostTensor>& inputs, const RunPart& run) {
            return run_with_garbage_in_unnamed_slots(whole, inputs, run, {"source"});
          }};
}

}  // namespace ssmbench
