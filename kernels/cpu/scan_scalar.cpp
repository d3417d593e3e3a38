// cpu-scalar: the plain loop that the definition describes, one (b, d) row after the other on one thread,
// libm exponentials. It is the readable version of what every faster implementation computes.

#include <cmath>
#include <vector>

#include "kernels/common/scalar_math.h"
#include "kernels/cpu/io_types.h"
#include "kernels/selective_scan/args.h"

namespace ssmbench {
namespace {

/// Element of B or C for channel d of batch b: io dtype when variable, f32 when constant.
template <class Io>
float projection(const void* data, bool variable, const ProjectionStrides& s, std::int64_t b, std::int64_t g,
                 std::int64_t d, std::int64_t n, std::int64_t t) {
  const std::int64_t offset = b * s.batch + g * s.group + d * s.channel + n * s.state + t * s.time;
  return variable ? Io::load(static_cast<const typename Io::Storage*>(data)[offset])
                  : static_cast<const float*>(data)[offset];
}

template <class Io>
void scan_row(const ScanArgs& args, std::int64_t b, std::int64_t d, std::vector<float>& state) {
  using Storage = typename Io::Storage;
  const std::int64_t g = d / args.channels_per_group;
  const std::int64_t row = b * args.sequence.batch + d * args.sequence.dim;
  const std::int64_t state_row = (b * args.dim + d) * args.dstate;
  const float* A = args.A + d * args.dstate;

  for (std::int64_t n = 0; n < args.dstate; ++n)
    state[n] = args.initial_state != nullptr ? args.initial_state[state_row + n] : 0.0F;

  for (std::int64_t t = 0; t < args.seqlen; ++t) {
    const std::int64_t at = row + t * args.sequence.time;
    const float u = Io::load(static_cast<const Storage*>(args.u)[at]);
    float delta = Io::load(static_cast<const Storage*>(args.delta)[at]);
    if (args.delta_bias != nullptr) delta += args.delta_bias[d];
    if (args.delta_softplus) delta = softplus(delta);

    float y = 0;
    for (std::int64_t n = 0; n < args.dstate; ++n) {
      const float B = projection<Io>(args.B, args.variable_b, args.b_strides, b, g, d, n, t);
      const float C = projection<Io>(args.C, args.variable_c, args.c_strides, b, g, d, n, t);
      state[n] = expf(delta * A[n]) * state[n] + delta * B * u;
      y += C * state[n];
    }
    if (args.D != nullptr) y += args.D[d] * u;
    if (args.z != nullptr) y *= silu(Io::load(static_cast<const Storage*>(args.z)[at]));
    static_cast<Storage*>(args.out)[at] = Io::store(y);
  }
  for (std::int64_t n = 0; n < args.dstate; ++n) args.last_state[state_row + n] = state[n];
}

template <class Io>
void scan(const ScanArgs& args) {
  std::vector<float> state(args.dstate);
  for (std::int64_t b = 0; b < args.batch; ++b)
    for (std::int64_t d = 0; d < args.dim; ++d) scan_row<Io>(args, b, d, state);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ScanArgs args = bind_scan(problem, tensors);
  return with_io_type(problem.dtype(),
                      [&args](auto io) -> Launch { return [args](void*) { scan<decltype(io)>(args); }; });
}

const Registration registration{{.name = "cpu-scalar",
                                 .op = "selective_scan_fwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "the plain sequential loop, one thread",
                                 .unsupported = not_real_zoh,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .work = scan_work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
