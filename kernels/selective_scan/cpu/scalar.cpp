// cpu-scalar: the plain loop that the definition describes, one (b, d) row after the other on one thread,
// libm exponentials. It is the readable version of what every faster implementation computes.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cpu/io_elements.h"
#include "kernels/common/discretize.h"
#include "kernels/common/index_math.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/cpu/scalar_dense.h"
#include "kernels/selective_scan/cpu/scans.h"
#include "kernels/selective_scan/sequences.h"
#include "ops/selective_scan/x.h"

namespace ssmbench::scalar_scan_fwd {
namespace {

/// What one row takes from step to step, by state.
template <class Value>
struct RowStates {
  explicit RowStates(std::int64_t dstate)
      : A(dstate), state(dstate), previous(dstate), B(dstate), C(dstate) {}

  std::vector<StateA<Value>> A;
  std::vector<Value> state, previous, B, C;  ///< previous: B·u of the step before
};

/// B or C for channel d of batch b at a step: io dtype when variable and real, else Value, f32 or c64.
template <class Value>
void load_projection(const void* data, DType io, bool variable, const ProjectionStrides& s, std::int64_t b,
                     std::int64_t g, std::int64_t d, std::int64_t t, std::vector<Value>& to) {
  const std::int64_t first = b * s.batch + g * s.group + d * s.channel + t * s.time;
  if constexpr (std::is_same_v<Value, float>) {
    if (variable && io != DType::f32) {
      for (std::size_t n = 0; n < to.size(); ++n)
        to[n] = load_element(data, first + static_cast<std::int64_t>(n) * s.state, io);
      return;
    }
  }
  for (std::size_t n = 0; n < to.size(); ++n)
    to[n] = static_cast<const Value*>(data)[first + static_cast<std::int64_t>(n) * s.state];
}

template <class Value, Family family>
void scan_row(const ScanArgs& args, DType io, const MethodParameters& method, std::int64_t b, std::int64_t d,
              RowStates<Value>& states) {
  auto& [A, state, previous, B, C] = states;
  const std::int64_t g = d / args.channels_per_group;
  const std::int64_t row = b * args.sequence.batch + d * args.sequence.dim;
  const std::int64_t state_row = (b * args.dim + d) * args.dstate;
  const Value* A_row = reinterpret_cast<const Value*>(args.A) + d * args.dstate;
  const Value* initial_state = reinterpret_cast<const Value*>(args.initial_state);
  Value* last_state = reinterpret_cast<Value*>(args.last_state);

  for (std::int64_t n = 0; n < args.dstate; ++n) {
    A[n] = StateA<Value>(A_row[n]);
    state[n] = initial_state != nullptr ? initial_state[state_row + n] : Value{};
    previous[n] = {};  // B·u is 0 before the first step
  }

  for (std::int64_t t = 0; t < args.seqlen; ++t) {
    if (args.x != nullptr && t % kStepsOfX == 0) {
      const std::int64_t of_batch = ceil_div(args.seqlen, kStepsOfX);
      const std::int64_t x_row = ((b * of_batch + t / kStepsOfX) * args.dim + d) * args.dstate;
      std::ranges::copy(state, reinterpret_cast<Value*>(args.x) + x_row);
    }
    const std::int64_t at = row + t * args.sequence.time;
    const float u = load_element(args.u, at, io);
    float delta = load_element(args.delta, at, io);
    if (args.delta_bias != nullptr) delta += args.delta_bias[d];
    if (args.delta_softplus) delta = softplus(delta);
    const Step<family> step(method, delta, u);

    load_projection(args.B, io, args.variable_b, args.b_strides, b, g, d, t, B);
    load_projection(args.C, io, args.variable_c, args.c_strides, b, g, d, t, C);
    float y = 0;
    for (std::int64_t n = 0; n < args.dstate; ++n) {
      const auto [decay, input, previous_input] = step(A[n]);
      state[n] = multiply_add(decay, state[n], input * B[n]);
      if constexpr (two_samples(family)) state[n] = multiply_add(previous_input, previous[n], state[n]);
      previous[n] = u * B[n];
      y += real_product(C[n], state[n]);
    }
    if (args.out == nullptr) continue;
    y *= kOutputFactor<Value>;
    if (args.D != nullptr) y += args.D[d] * u;
    if (args.z != nullptr) y *= silu(load_element(args.z, at, io));
    store_element(args.out, at, y, io);
  }
  for (std::int64_t n = 0; n < args.dstate; ++n) last_state[state_row + n] = state[n];
}

template <class Value, Family family>
void scan(const ScanArgs& args, DType io, const MethodParameters& method) {
  RowStates<Value> states(args.dstate);
  for (std::int64_t b = 0; b < args.batch; ++b)
    for (std::int64_t d = 0; d < args.dim; ++d) scan_row<Value, family>(args, io, method, b, d, states);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ScanArgs args = bind_scan(problem, tensors);
  const SelectiveScan shape(problem);
  const ScanCall scan =
      shape.dense ? scalar_dense_scan(shape.method, problem.dtype()) : scalar_scan(shape, problem.dtype());
  return [args, scan, sequences = SequenceScans(problem, tensors)](void*) {
    for (const ScanArgs& sequence : sequences.of(args)) scan(sequence);
  };
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of what std::function frees

const Registration registration{{.name = "cpu-scalar",
                                 .op = "selective_scan_fwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "the plain sequential loop, one thread",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::scalar_scan_fwd

namespace ssmbench {

ScanCall scalar_scan(const SelectiveScan& shape, DType io) {
  const MethodParameters method = method_parameters(shape.method);
  return with_family(shape.method, [&]<Family family>(std::integral_constant<Family, family>) -> ScanCall {
    if (shape.complex)
      return [=](const ScanArgs& args) { scalar_scan_fwd::scan<Complex, family>(args, io, method); };
    return [=](const ScanArgs& args) { scalar_scan_fwd::scan<float, family>(args, io, method); };
  });
}

}  // namespace ssmbench
