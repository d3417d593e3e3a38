// One step of the recurrence in fp64, with the error bound of scan_tile_zoh.cpp for a scan of one step: with
// z = Δ·A and the magnitude m = |e^z·h| + |Δ·x·B|, in units of the roundoff of the implementation under test,
//   Δ       is off by           ε, see below
//   e^z     has relative error  |A|·(ε + Δ) + 2
//   Δ·x·B   is off by           (ε + 2·Δ)·|x·B|
//   state   is off by           the former, times |e^z·h|, plus the latter, plus 2·m
// since the state that enters is exact, whatever its dtype. out is bounded as in selective_scan.cpp: it is
// made from the new state before that is rounded.
//
// ε is that of the selective scan, and 1 more with softplus: mamba_ssm's Triton kernel takes log(1 + e^x),
// and rounding 1 + e^x is worth 1 in Δ whatever its size (its outputs in tests/golden have the very errors of
// that formula in f32). A scan would add such errors up over its steps and is held to log1p; a step does not.

#include <array>
#include <cmath>

#include "base/errors.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "reference/common/activations.h"
#include "reference/reference.h"
#include "reference/selective_scan/step.h"

namespace ssmbench {
namespace {

/// What the rows of a head share, by state.
struct Coefficients {
  std::array<double, kMaxDState> decay, decay_error, B, C;  ///< e^z, its relative error
};

class Update {
 public:
  Update(const Problem& problem, const TensorSet& inputs, ReferenceOutput& out, ReferenceOutput& state)
      : shape_(problem),
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
        out_(out),
        state_(state) {}

  /// Head `index` of batch × heads.
  void run(std::int64_t index) {
    const std::int64_t head = index % shape_.heads;
    const std::int64_t group = index / shape_.heads * shape_.groups + head / shape_.heads_per_group();
    const double bias = dt_bias_ == nullptr ? 0 : dt_bias_[head];
    const StepSize step = step_size(load_as_double(dt_.data, index, dt_.dtype),
                                    dt_bias_ == nullptr ? nullptr : &bias, shape_.dt_softplus);
    const BoundedValue delta{step.delta,
                             step.relative_error * std::abs(step.delta) + (shape_.dt_softplus ? 1 : 0)};
    Coefficients by_state;
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      const double rate = rate_[shape_.rate_per_state ? head * shape_.dstate + n : head];
      by_state.decay[n] = std::exp(delta.value * rate);
      by_state.decay_error[n] = std::abs(rate) * (delta.error + std::abs(delta.value)) + 2 +
                                relative_underflow_error(by_state.decay[n]);
      by_state.B[n] = load_as_double(B_.data, group * shape_.dstate + n, B_.dtype);
      by_state.C[n] = load_as_double(C_.data, group * shape_.dstate + n, C_.dtype);
    }
    for (std::int64_t p = 0; p < shape_.headdim; ++p)
      update_row(index * shape_.headdim + p, head, delta, by_state);
  }

 private:
  const float* floats(const char* name) const {
    const TensorView* view = inputs_.find(name);
    return view == nullptr ? nullptr : static_cast<const float*>(view->data);
  }

  void update_row(std::int64_t row, std::int64_t head, const BoundedValue& delta,
                  const Coefficients& by_state) {
    const double x = load_as_double(x_.data, row, x_.dtype);
    StateSum y{0, 0, 0};
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      const std::int64_t at = row * shape_.dstate + n;
      const double kept = by_state.decay[n] * load_as_double(state_in_.data, at, state_in_.dtype);
      const double added = delta.value * x * by_state.B[n];
      const double size = std::abs(kept) + std::abs(added);
      const double error = by_state.decay_error[n] * std::abs(kept) +
                           (delta.error + 2 * std::abs(delta.value)) * std::abs(x * by_state.B[n]) +
                           2 * size + kUnderflowError * (std::abs(delta.value) + std::abs(by_state.B[n]));
      state_.expected[at] = kept + added;
      state_.bound[at] = static_cast<float>(error);
      y.value += by_state.C[n] * (kept + added);
      y.error += std::abs(by_state.C[n]) * error;
      y.magnitude += std::abs(by_state.C[n]) * size;
    }
    const double skip = skip_ != nullptr ? skip_[head] * x : 0;
    const Rounded<double> gate = gate_of(z_ != nullptr ? load_as_double(z_->data, row, z_->dtype) : 0).value;
    const BoundedValue out = scan_output(y, roundings_of_output(shape_.dstate),
                                         skip_ != nullptr ? &skip : nullptr, z_ != nullptr ? &gate : nullptr);
    out_.expected[row] = out.value;
    out_.bound[row] = static_cast<float>(out.error);
  }

  StateUpdate shape_;
  const TensorSet& inputs_;
  const float *rate_, *skip_, *dt_bias_;
  const TensorView &state_in_, &x_, &dt_, &B_, &C_;
  const TensorView* z_;
  ReferenceOutput& out_;
  ReferenceOutput& state_;
};

/// Threads over heads; out, and state after the step.
ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  const StateUpdate shape(problem);
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const auto count = static_cast<std::size_t>(element_count(tensor.shape));
    outputs[tensor.name] = {tensor.shape, std::vector<double>(count), std::vector<float>(count)};
  }
  Update update(problem, inputs, outputs.at("out"), outputs.at("state"));
  constexpr double kWorthThreads = 16384;  // below, waking threads costs more than it gains
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
