// Steps of the recurrence in fp64, with the error bound of selective_scan/tile_zoh.cpp: with z = Δ·A, h₀ exact
// whatever its dtype, and magnitudes m₀ = |h₀|, m_t = e^z·m_{t-1} + |Δ·x·B|, in units of the roundoff of the
// implementation under test,
//   Δ       is off by           ε, see below
//   e^z     has relative error  |A|·(ε + Δ) + 2
//   Δ·x·B   is off by           (ε + 2·Δ)·|x·B|
//   h_t     is off by           e^z·(what h_{t-1} is off by), plus the second times e^z·m_{t-1}, plus the
//                               third, plus 2·m_t
// out is bounded as in selective_scan.cpp: it is made from h_t before that is rounded to be stored. A slot
// that is not stored into is its input, exactly, and so is its bound of 0; rows of padding have no bound.
// States in units of a scale are h when the product with it has been rounded: |h_0| more. stored_row.h says
// how they are stored.
//
// ε is that of the selective scan, and 1 more with softplus: mamba_ssm's Triton kernel takes log(1 + e^x),
// and rounding 1 + e^x is worth 1 in Δ whatever its size (its outputs in tests/golden have the very errors of
// that formula in f32). A scan would add such errors up over its steps and is held to log1p; a few tokens do
// not.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "model/problem.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "reference/common/activations.h"
#include "reference/reference.h"
#include "reference/selective_state_update/recurrence.h"
#include "reference/selective_state_update/stored_row.h"

namespace ssmbench {
namespace {

/// Slots that rows of the batch start from and are stored into, −1 where there is none.
class Slots {
 public:
  /// Throws ContractError where an index is not a slot, or where rows get into each other's way.
  Slots(const StateUpdate& shape, const TensorSet& inputs) : tokens_(shape.tokens) {
    for (std::int64_t b = 0; b < shape.batch; ++b) source_.push_back(b);
    destination_.assign(static_cast<std::size_t>(shape.batch * tokens_), -1);
    for (std::int64_t b = 0; b < shape.batch; ++b) destination_[(b + 1) * tokens_ - 1] = b;
    if (shape.slots == 0) return;
    copy(inputs.at("source"), source_);
    copy(inputs.at("destination"), destination_);
    check(shape);
  }

  std::int64_t source(std::int64_t b) const { return source_[b]; }
  std::int64_t destination(std::int64_t b, std::int64_t t) const { return destination_[b * tokens_ + t]; }

 private:
  static void copy(const TensorView& from, std::vector<std::int64_t>& to) {
    const auto* values = static_cast<const std::int32_t*>(from.data);
    std::copy_n(values, to.size(), to.begin());
  }

  void check(const StateUpdate& shape) const {
    std::vector<std::int64_t> starts(shape.slots, -1);  // the row that does
    std::vector<bool> stored(shape.slots, false);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      check_slot("source", source(b), shape.slots);
      if (source(b) >= 0) starts[source(b)] = b;
    }
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t t = 0; t < tokens_; ++t) {
        const std::int64_t to = destination(b, t);
        check_slot("destination", to, shape.slots);
        if (to < 0) continue;
        if (source(b) < 0)
          throw ContractError(fmt::format("destination {} of row {}, whose source says padding", to, b));
        if (stored[to]) throw ContractError(fmt::format("slot {} is in destination twice", to));
        if (starts[to] >= 0 && source(b) != to)
          throw ContractError(
              fmt::format("destination {} of row {} is the source of row {}", to, b, starts[to]));
        stored[to] = true;
      }
  }

  static void check_slot(const char* name, std::int64_t slot, std::int64_t slots) {
    if (slot < -1 || slot >= slots)
      throw ContractError(
          fmt::format("{} {}: there are slots 0 to {}, and -1 is none", name, slot, slots - 1));
  }

  std::int64_t tokens_;
  std::vector<std::int64_t> source_;
  std::vector<std::int64_t> destination_;  // (batch, tokens)
};

class Update {
 public:
  Update(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : shape_(problem),
        slots_(shape_, inputs),
        inputs_(inputs),
        rate_(floats("A")),
        skip_(floats("D")),
        dt_bias_(floats("dt_bias")),
        state_in_(inputs.at("state")),
        scale_in_(floats("state_scale")),
        x_(inputs.at("x")),
        dt_(inputs.at("dt")),
        B_(inputs.at("B")),
        C_(inputs.at("C")),
        z_(inputs.find("z")),
        out_(outputs.at("out")),
        state_(outputs.at("state")),
        scale_(shape_.has_scale() ? &outputs.at("state_scale") : nullptr),
        intermediate_(shape_.has_intermediate ? &outputs.at("intermediate") : nullptr) {}

  /// The state as it came, exactly: states of row `sequence`.
  void keep(std::int64_t sequence) {
    const std::int64_t count = shape_.states_of_sequence();
    for (std::int64_t at = sequence * count; at < (sequence + 1) * count; ++at) {
      const double number = load_as_double(state_in_.data, at, state_in_.dtype);
      const double scale = scale_in_ == nullptr ? 1 : scale_in_[at / shape_.dstate];
      state_.expected[at] = number * scale;
      // The neighbours are no values that it may have: half a step is the whole of the tolerance.
      if (!state_.step.empty())
        state_.step[at] =
            static_cast<float>(scale * ulp_at(number, state_in_.dtype) / (shape_.stochastic ? 2 : 1));
    }
    const std::int64_t rows = count / shape_.dstate;
    if (scale_ == nullptr) return;
    for (std::int64_t row = sequence * rows; row < (sequence + 1) * rows; ++row)
      scale_->expected[row] = scale_in_[row];
  }

  /// Head `index` of batch × heads.
  void run(std::int64_t index) {
    const std::int64_t b = index / shape_.heads;
    const std::int64_t head = index % shape_.heads;
    if (slots_.source(b) < 0) return leave_out(b, head);
    std::vector<HeadToken> by_token;
    for (std::int64_t t = 0; t < shape_.tokens; ++t) by_token.push_back(head_token(b, t, head));
    for (std::int64_t p = 0; p < shape_.headdim; ++p) {
      StateRow row = start(slots_.source(b), head, p);
      for (std::int64_t t = 0; t < shape_.tokens; ++t) {
        const std::int64_t at = ((b * shape_.tokens + t) * shape_.heads + head) * shape_.headdim + p;
        const double x = load_as_double(x_.data, at, x_.dtype);
        advance(by_token[t], x, shape_.dstate, row);
        put_out(at, head, x, contract(by_token[t], row, shape_.dstate));
        const std::int64_t slot = slots_.destination(b, t);
        if (slot >= 0) store_in_slot(row, (slot * shape_.heads + head) * shape_.headdim + p);
        if (intermediate_ != nullptr) store(row, *intermediate_, at);
      }
    }
  }

 private:
  const float* floats(const char* name) const {
    const TensorView* view = inputs_.find(name);
    return view == nullptr ? nullptr : static_cast<const float*>(view->data);
  }

  HeadToken head_token(std::int64_t b, std::int64_t t, std::int64_t head) const {
    const std::int64_t token = b * shape_.tokens + t;
    const double bias = dt_bias_ == nullptr ? 0 : dt_bias_[head];
    const StepSize step = step_size(load_as_double(dt_.data, token * shape_.heads + head, dt_.dtype),
                                    dt_bias_ == nullptr ? nullptr : &bias, shape_.dt_softplus);
    HeadToken shared;
    set_decays(
        shared, {step.delta, step.relative_error * std::abs(step.delta) + (shape_.dt_softplus ? 1 : 0)},
        rate_ + (shape_.rate_per_state ? head * shape_.dstate : head), shape_.rate_per_state, shape_.dstate);
    const std::int64_t group = token * shape_.groups + head / shape_.heads_per_group();
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      shared.B[n] = load_as_double(B_.data, group * shape_.dstate + n, B_.dtype);
      shared.C[n] = load_as_double(C_.data, group * shape_.dstate + n, C_.dtype);
    }
    return shared;
  }

  StateRow start(std::int64_t slot, std::int64_t head, std::int64_t p) const {
    const std::int64_t at = (slot * shape_.heads + head) * shape_.headdim + p;
    StateRow row = stored_states(state_in_, at, shape_.dstate);
    for (std::int64_t n = 0; n < shape_.dstate && scale_in_ != nullptr; ++n) {
      row.value[n] *= scale_in_[at];
      row.magnitude[n] = row.error[n] = std::abs(row.value[n]);
    }
    return row;
  }

  /// out of one token of one row; `at`: of x and out.
  void put_out(std::int64_t at, std::int64_t head, double x, const StateSum& y) {
    const double skip = skip_ != nullptr ? skip_[head] * x : 0;
    const Rounded<double> gate = gate_of(z_ != nullptr ? load_as_double(z_->data, at, z_->dtype) : 0).value;
    const BoundedValue out = scan_output(y, roundings_of_output(shape_.dstate),
                                         skip_ != nullptr ? &skip : nullptr, z_ != nullptr ? &gate : nullptr);
    out_.expected[at] = out.value;
    out_.bound[at] = static_cast<float>(out.error);
  }

  void store(const StateRow& row, ReferenceOutput& output, std::int64_t at) const {
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      output.expected[at * shape_.dstate + n] = row.value[n];
      output.bound[at * shape_.dstate + n] = static_cast<float>(row.error[n]);
      if (!output.step.empty())
        output.step[at * shape_.dstate + n] = step_around(row.value[n], row.error[n], 1, shape_.state_dtype);
    }
  }

  void store_in_slot(const StateRow& row, std::int64_t at) const {
    store(row, state_, at);
    if (scale_ == nullptr) return;
    const ScaledRow scaled = scaled_row(row, shape_.dstate, shape_.state_dtype);
    scale_->expected[at] = scaled.scale;
    scale_->bound[at] = scaled.scale_bound;
    std::copy_n(scaled.bound.begin(), shape_.dstate, state_.bound.begin() + at * shape_.dstate);
    std::copy_n(scaled.step.begin(), shape_.dstate, state_.step.begin() + at * shape_.dstate);
  }

  /// What a row of padding leaves behind is not judged.
  void leave_out(std::int64_t b, std::int64_t head) {
    for (std::int64_t t = 0; t < shape_.tokens; ++t) {
      const std::int64_t first = ((b * shape_.tokens + t) * shape_.heads + head) * shape_.headdim;
      std::fill_n(out_.bound.begin() + first, shape_.headdim, kNoBound);
      if (intermediate_ != nullptr)
        std::fill_n(intermediate_->bound.begin() + first * shape_.dstate, shape_.headdim * shape_.dstate,
                    kNoBound);
    }
  }

  StateUpdate shape_;
  Slots slots_;
  const TensorSet& inputs_;
  const float *rate_, *skip_, *dt_bias_;
  const TensorView& state_in_;
  const float* scale_in_;
  const TensorView &x_, &dt_, &B_, &C_;
  const TensorView* z_;
  ReferenceOutput &out_, &state_;
  ReferenceOutput *scale_, *intermediate_;
};

bool is_stored_state(const TensorSpec& output) {
  return output.name == "state" || output.name == "intermediate";
}

/// Threads over heads; out, the state after the last token, and those in between.
ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  const StateUpdate shape(problem);
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const auto count = static_cast<std::size_t>(element_count(tensor.shape));
    ReferenceOutput& output = outputs[tensor.name];
    output = {tensor.shape, std::vector<double>(count), std::vector<float>(count)};
    if (!is_stored_state(tensor)) continue;
    output.stochastic = shape.stochastic;
    if (shape.stochastic || shape.has_scale()) output.step.resize(count);
  }
  Update update(problem, inputs, outputs);
  constexpr double kWorthThreads = 16384;  // below, waking threads costs more than it gains
#pragma omp parallel for schedule(static) if (shape.states() > kWorthThreads)
  for (std::int64_t sequence = 0; sequence < shape.state_sequences(); ++sequence)
    if (!stop) update.keep(sequence);
#pragma omp parallel for schedule(static) if (shape.states() > kWorthThreads)
  for (std::int64_t index = 0; index < shape.batch * shape.heads; ++index)
    if (!stop) update.run(index);
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t bytes(const Problem& problem) {
  return output_bytes(problem, is_stored_state);  // their steps
}

const ReferenceRegistration registration({.op = "selective_state_update",
                                          .compute = compute,
                                          .bytes = bytes});

}  // namespace
}  // namespace ssmbench
