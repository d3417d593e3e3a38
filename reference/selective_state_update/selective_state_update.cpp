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
//
// ε is that of the selective scan, and 1 more with softplus: mamba_ssm's Triton kernel takes log(1 + e^x),
// and rounding 1 + e^x is worth 1 in Δ whatever its size (its outputs in tests/golden have the very errors of
// that formula in f32). A scan would add such errors up over its steps and is held to log1p; a few tokens do
// not.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "model/problem.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "reference/common/activations.h"
#include "reference/reference.h"
#include "reference/selective_scan/step.h"

namespace ssmbench {
namespace {

constexpr auto kNoBound = std::numeric_limits<float>::infinity();

/// What the rows of a head share at one token, by state.
struct Coefficients {
  BoundedValue delta;
  std::array<double, kMaxStepDState> decay, decay_error, B, C;  ///< e^z, its relative error
};

/// The state of a row.
struct Row {
  std::array<double, kMaxStepDState> value, magnitude, error;
};

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
        x_(inputs.at("x")),
        dt_(inputs.at("dt")),
        B_(inputs.at("B")),
        C_(inputs.at("C")),
        z_(inputs.find("z")),
        out_(outputs.at("out")),
        state_(outputs.at("state")),
        intermediate_(shape_.has_intermediate ? &outputs.at("intermediate") : nullptr) {}

  /// The state as it came, exactly: states of row `sequence`.
  void keep(std::int64_t sequence) {
    const std::int64_t count = shape_.states_of_sequence();
    for (std::int64_t at = sequence * count; at < (sequence + 1) * count; ++at)
      state_.expected[at] = load_as_double(state_in_.data, at, state_in_.dtype);
  }

  /// Head `index` of batch × heads.
  void run(std::int64_t index) {
    const std::int64_t b = index / shape_.heads;
    const std::int64_t head = index % shape_.heads;
    if (slots_.source(b) < 0) return leave_out(b, head);
    std::vector<Coefficients> by_token(static_cast<std::size_t>(shape_.tokens));
    for (std::int64_t t = 0; t < shape_.tokens; ++t) by_token[t] = coefficients(b, t, head);
    for (std::int64_t p = 0; p < shape_.headdim; ++p) {
      Row row = start(slots_.source(b), head, p);
      for (std::int64_t t = 0; t < shape_.tokens; ++t) {
        const std::int64_t at = ((b * shape_.tokens + t) * shape_.heads + head) * shape_.headdim + p;
        advance(at, head, by_token[t], row);
        const std::int64_t slot = slots_.destination(b, t);
        if (slot >= 0) store(row, state_, (slot * shape_.heads + head) * shape_.headdim + p);
        if (intermediate_ != nullptr) store(row, *intermediate_, at);
      }
    }
  }

 private:
  const float* floats(const char* name) const {
    const TensorView* view = inputs_.find(name);
    return view == nullptr ? nullptr : static_cast<const float*>(view->data);
  }

  Coefficients coefficients(std::int64_t b, std::int64_t t, std::int64_t head) const {
    const std::int64_t token = b * shape_.tokens + t;
    const std::int64_t group = token * shape_.groups + head / shape_.heads_per_group();
    const double bias = dt_bias_ == nullptr ? 0 : dt_bias_[head];
    const StepSize step = step_size(load_as_double(dt_.data, token * shape_.heads + head, dt_.dtype),
                                    dt_bias_ == nullptr ? nullptr : &bias, shape_.dt_softplus);
    Coefficients by_state;
    by_state.delta = {step.delta, step.relative_error * std::abs(step.delta) + (shape_.dt_softplus ? 1 : 0)};
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      const double rate = rate_[shape_.rate_per_state ? head * shape_.dstate + n : head];
      by_state.decay[n] = std::exp(by_state.delta.value * rate);
      by_state.decay_error[n] = std::abs(rate) * (by_state.delta.error + std::abs(by_state.delta.value)) + 2 +
                                relative_underflow_error(by_state.decay[n]);
      by_state.B[n] = load_as_double(B_.data, group * shape_.dstate + n, B_.dtype);
      by_state.C[n] = load_as_double(C_.data, group * shape_.dstate + n, C_.dtype);
    }
    return by_state;
  }

  Row start(std::int64_t slot, std::int64_t head, std::int64_t p) const {
    Row row;
    const std::int64_t first = ((slot * shape_.heads + head) * shape_.headdim + p) * shape_.dstate;
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      row.value[n] = load_as_double(state_in_.data, first + n, state_in_.dtype);
      row.magnitude[n] = std::abs(row.value[n]);
      row.error[n] = 0;
    }
    return row;
  }

  /// One token of one row; `at`: of x and out.
  void advance(std::int64_t at, std::int64_t head, const Coefficients& by_state, Row& row) {
    const BoundedValue& delta = by_state.delta;
    const double x = load_as_double(x_.data, at, x_.dtype);
    StateSum y{0, 0, 0};
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      const double kept = by_state.decay[n] * row.magnitude[n];
      const double added = delta.value * x * by_state.B[n];
      row.value[n] = by_state.decay[n] * row.value[n] + added;
      row.magnitude[n] = kept + std::abs(added);
      row.error[n] = by_state.decay[n] * row.error[n] + by_state.decay_error[n] * kept +
                     (delta.error + 2 * std::abs(delta.value)) * std::abs(x * by_state.B[n]) +
                     2 * row.magnitude[n] +
                     kUnderflowError * (std::abs(delta.value) + std::abs(by_state.B[n]));
      y.value += by_state.C[n] * row.value[n];
      y.error += std::abs(by_state.C[n]) * row.error[n];
      y.magnitude += std::abs(by_state.C[n]) * row.magnitude[n];
    }
    const double skip = skip_ != nullptr ? skip_[head] * x : 0;
    const Rounded<double> gate = gate_of(z_ != nullptr ? load_as_double(z_->data, at, z_->dtype) : 0).value;
    const BoundedValue out = scan_output(y, roundings_of_output(shape_.dstate),
                                         skip_ != nullptr ? &skip : nullptr, z_ != nullptr ? &gate : nullptr);
    out_.expected[at] = out.value;
    out_.bound[at] = static_cast<float>(out.error);
  }

  void store(const Row& row, ReferenceOutput& output, std::int64_t at) const {
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      output.expected[at * shape_.dstate + n] = row.value[n];
      output.bound[at * shape_.dstate + n] = static_cast<float>(row.error[n]);
    }
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
  const TensorView &state_in_, &x_, &dt_, &B_, &C_;
  const TensorView* z_;
  ReferenceOutput &out_, &state_;
  ReferenceOutput* intermediate_;
};

/// Threads over heads; out, the state after the last token, and those in between.
ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  const StateUpdate shape(problem);
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const auto count = static_cast<std::size_t>(element_count(tensor.shape));
    outputs[tensor.name] = {tensor.shape, std::vector<double>(count), std::vector<float>(count)};
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
  return output_bytes(problem, [](const TensorSpec&) { return false; });
}

const ReferenceRegistration registration({.op = "selective_state_update",
                                          .compute = compute,
                                          .bytes = bytes});

}  // namespace
}  // namespace ssmbench
