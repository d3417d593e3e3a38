// Replayed steps in fp64, with the error bound of selective_state_update.cpp, from an exact checkpoint: of
// tokens in the ring Δ is an input, and exact; of new ones it is computed, with the error that steps have.
// What is written to the ring is x and B as they came, and Δ with its error. Rows of rings and checkpoints
// that are not written have a bound of 0; rows of padding have none.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "ops/selective_state_replay/selective_state_replay.h"
#include "reference/common/activations.h"
#include "reference/reference.h"
#include "reference/selective_state_update/recurrence.h"

namespace ssmbench {
namespace {

constexpr auto kNoBound = std::numeric_limits<float>::infinity();

class Replay {
 public:
  /// Throws ContractError where an index is none.
  Replay(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : shape_(problem),
        step_(shape_.step),
        inputs_(inputs),
        rate_(floats("A")),
        skip_(floats("D")),
        dt_bias_(floats("dt_bias")),
        ring_dt_(floats("ring_dt")),
        start_(numbers("start")),
        count_(numbers("count")),
        source_(step_.slots > 0 ? numbers("source") : nullptr),
        state_(inputs.at("state")),
        ring_x_(inputs.at("ring_x")),
        ring_B_(inputs.at("ring_B")),
        x_(inputs.at("x")),
        dt_(inputs.at("dt")),
        B_(inputs.at("B")),
        C_(inputs.at("C")),
        z_(inputs.find("z")),
        outputs_(outputs) {
    check();
  }

  /// Head `index` of batch × heads.
  void run(std::int64_t index) {
    const std::int64_t b = index / step_.heads;
    const std::int64_t head = index % step_.heads;
    const std::int64_t slot = slot_of(b);
    if (slot < 0) return leave_out(b, head);
    const std::int64_t count = count_[slot];
    std::vector<HeadToken> tokens;
    for (std::int64_t k = 0; k < count; ++k) tokens.push_back(old_token(slot, head, row_of_ring(slot, k)));
    for (std::int64_t t = 0; t < step_.tokens; ++t) tokens.push_back(new_token(b, head, t));
    for (std::int64_t t = 0; t < step_.tokens; ++t)
      put_delta(slot, head, row_of_ring(slot, count + t), tokens[count + t].delta);
    for (std::int64_t p = 0; p < step_.headdim; ++p) run_row(b, slot, head, p, tokens);
    if (head % step_.heads_per_group() == 0) append_b(b, slot, head / step_.heads_per_group());
  }

 private:
  const float* floats(const char* name) const {
    const TensorView* view = inputs_.find(name);
    return view == nullptr ? nullptr : static_cast<const float*>(view->data);
  }
  const std::int32_t* numbers(const char* name) const {
    return static_cast<const std::int32_t*>(inputs_.at(name).data);
  }
  std::int64_t slot_of(std::int64_t b) const { return source_ == nullptr ? b : source_[b]; }
  std::int64_t row_of_ring(std::int64_t slot, std::int64_t k) const {
    return (start_[slot] + k) % shape_.ring();
  }

  void check() const {
    std::vector<bool> named(static_cast<std::size_t>(step_.state_sequences()), false);
    for (std::int64_t b = 0; b < step_.batch; ++b) {
      const std::int64_t slot = slot_of(b);
      if (slot < -1 || slot >= step_.state_sequences())
        throw ContractError(fmt::format("source {}: there are slots 0 to {}, and -1 is none", slot,
                                        step_.state_sequences() - 1));
      if (slot < 0) continue;
      if (named[slot]) throw ContractError(fmt::format("slot {} is in source twice", slot));
      named[slot] = true;
      if (start_[slot] < 0 || start_[slot] >= shape_.ring())
        throw ContractError(fmt::format("start {} of slot {}: a ring has rows 0 to {}", start_[slot], slot,
                                        shape_.ring() - 1));
      if (count_[slot] < 0 || count_[slot] > shape_.window)
        throw ContractError(
            fmt::format("count {} of slot {}: at most the window of {}", count_[slot], slot, shape_.window));
    }
  }

  /// (slot, head, ring row).
  std::int64_t ring_at(std::int64_t slot, std::int64_t head, std::int64_t row) const {
    return (slot * step_.heads + head) * shape_.ring() + row;
  }
  /// (slot, group, ring row).
  std::int64_t ring_b_at(std::int64_t slot, std::int64_t group, std::int64_t row) const {
    return (slot * step_.groups + group) * shape_.ring() + row;
  }

  HeadToken old_token(std::int64_t slot, std::int64_t head, std::int64_t row) const {
    HeadToken token;
    set_decays(token, {ring_dt_[ring_at(slot, head, row)], 0}, rate_ + head, false, step_.dstate);
    const std::int64_t first = ring_b_at(slot, head / step_.heads_per_group(), row) * step_.dstate;
    for (std::int64_t n = 0; n < step_.dstate; ++n)
      token.B[n] = load_as_double(ring_B_.data, first + n, ring_B_.dtype);
    return token;
  }

  HeadToken new_token(std::int64_t b, std::int64_t head, std::int64_t t) const {
    const std::int64_t at = b * step_.tokens + t;
    const double bias = dt_bias_ == nullptr ? 0 : dt_bias_[head];
    const StepSize step = step_size(load_as_double(dt_.data, at * step_.heads + head, dt_.dtype),
                                    dt_bias_ == nullptr ? nullptr : &bias, step_.dt_softplus);
    HeadToken token;
    set_decays(token, {step.delta, step.relative_error * std::abs(step.delta) + (step_.dt_softplus ? 1 : 0)},
               rate_ + head, false, step_.dstate);
    const std::int64_t first = (at * step_.groups + head / step_.heads_per_group()) * step_.dstate;
    for (std::int64_t n = 0; n < step_.dstate; ++n) {
      token.B[n] = load_as_double(B_.data, first + n, B_.dtype);
      token.C[n] = load_as_double(C_.data, first + n, C_.dtype);
    }
    return token;
  }

  void run_row(std::int64_t b, std::int64_t slot, std::int64_t head, std::int64_t p,
               const std::vector<HeadToken>& tokens) {
    const std::int64_t count = count_[slot];
    const std::int64_t at = (slot * step_.heads + head) * step_.headdim + p;
    StateRow row = stored_states(state_, at, step_.dstate);
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t from = ring_at(slot, head, row_of_ring(slot, k)) * step_.headdim + p;
      advance(tokens[k], load_as_double(ring_x_.data, from, ring_x_.dtype), step_.dstate, row);
    }
    if (shape_.stores(count)) store(row, at);
    for (std::int64_t t = 0; t < step_.tokens; ++t) {
      const std::int64_t here = ((b * step_.tokens + t) * step_.heads + head) * step_.headdim + p;
      const double x = load_as_double(x_.data, here, x_.dtype);
      const HeadToken& token = tokens[count + t];
      advance(token, x, step_.dstate, row);
      put_out(here, head, x, contract(token, row, step_.dstate));
      outputs_.at("ring_x").expected[ring_at(slot, head, row_of_ring(slot, count + t)) * step_.headdim + p] =
          x;
    }
  }

  void put_out(std::int64_t at, std::int64_t head, double x, const StateSum& y) {
    const double skip = skip_ != nullptr ? skip_[head] * x : 0;
    const Rounded<double> gate = gate_of(z_ != nullptr ? load_as_double(z_->data, at, z_->dtype) : 0).value;
    const BoundedValue out = scan_output(y, roundings_of_output(step_.dstate),
                                         skip_ != nullptr ? &skip : nullptr, z_ != nullptr ? &gate : nullptr);
    ReferenceOutput& output = outputs_.at("out");
    output.expected[at] = out.value;
    output.bound[at] = static_cast<float>(out.error);
  }

  void store(const StateRow& row, std::int64_t at) {
    ReferenceOutput& state = outputs_.at("state");
    for (std::int64_t n = 0; n < step_.dstate; ++n) {
      state.expected[at * step_.dstate + n] = row.value[n];
      state.bound[at * step_.dstate + n] = static_cast<float>(row.error[n]);
    }
  }

  void put_delta(std::int64_t slot, std::int64_t head, std::int64_t row, const BoundedValue& delta) {
    ReferenceOutput& ring = outputs_.at("ring_dt");
    ring.expected[ring_at(slot, head, row)] = delta.value;
    ring.bound[ring_at(slot, head, row)] = static_cast<float>(delta.error);
  }

  void append_b(std::int64_t b, std::int64_t slot, std::int64_t group) {
    ReferenceOutput& ring = outputs_.at("ring_B");
    for (std::int64_t t = 0; t < step_.tokens; ++t) {
      const std::int64_t from = ((b * step_.tokens + t) * step_.groups + group) * step_.dstate;
      const std::int64_t to = ring_b_at(slot, group, row_of_ring(slot, count_[slot] + t)) * step_.dstate;
      for (std::int64_t n = 0; n < step_.dstate; ++n)
        ring.expected[to + n] = load_as_double(B_.data, from + n, B_.dtype);
    }
  }

  void leave_out(std::int64_t b, std::int64_t head) {
    ReferenceOutput& out = outputs_.at("out");
    for (std::int64_t t = 0; t < step_.tokens; ++t)
      std::fill_n(out.bound.begin() + ((b * step_.tokens + t) * step_.heads + head) * step_.headdim,
                  step_.headdim, kNoBound);
  }

  StateReplay shape_;
  const StateUpdate& step_;
  const TensorSet& inputs_;
  const float *rate_, *skip_, *dt_bias_, *ring_dt_;
  const std::int32_t *start_, *count_, *source_;
  const TensorView &state_, &ring_x_, &ring_B_, &x_, &dt_, &B_, &C_;
  const TensorView* z_;
  ReferenceOutputs& outputs_;
};

constexpr double kWorthThreads = 16384;  // states; below, waking threads costs more than it gains

/// Threads over heads, after all that is updated in place has been copied.
ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  ReferenceOutputs outputs;
  const StateUpdate step = StateReplay(problem).step;
  const bool is_large = step.states() > kWorthThreads;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const std::int64_t count = element_count(tensor.shape);
    ReferenceOutput& output = outputs[tensor.name] = empty_output(tensor.shape);
    const TensorView* before = inputs.find(tensor.name);
    if (before == nullptr) continue;
#pragma omp parallel for schedule(static) if (is_large)
    for (std::int64_t i = 0; i < count; ++i)
      output.expected[i] = load_as_double(before->data, i, before->dtype);
  }
  Replay replay(problem, inputs, outputs);
#pragma omp parallel for schedule(dynamic) if (is_large)
  for (std::int64_t index = 0; index < step.batch * step.heads; ++index)
    if (!stop) replay.run(index);
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t bytes(const Problem& problem) {
  return output_bytes(problem, [](const TensorSpec&) { return false; });
}

const ReferenceRegistration registration({.op = "selective_state_replay",
                                          .compute = compute,
                                          .bytes = bytes});

}  // namespace
}  // namespace ssmbench
