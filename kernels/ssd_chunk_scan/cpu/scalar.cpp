// cpu-scalar: the recurrence as the definition has it, one head of one sequence after the other on one thread, f32, libm
// exponentials. It is the readable version of what every faster implementation computes.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/sequences.h"

namespace ssmbench::scalar_ssd_fwd {
namespace {

template <class Io>
void load(const void* from, std::int64_t first, std::vector<float>& to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = Io::load(static_cast<const typename Io::Storage*>(from)[first + static_cast<std::int64_t>(i)]);
}

template <class Io>
void scan_head(const SsdArgs& args, const SsdStops& stops, const SsdSequence& sequence, std::int64_t m,
               std::int64_t h, std::vector<float>& state) {
  using Storage = typename Io::Storage;
  const SsdInputs& in = args.in;
  const std::int64_t P = in.headdim;
  const std::int64_t N = in.dstate;
  const std::int64_t head_state = (m * in.nheads + h) * P * N;
  std::vector<float> B(N);
  std::vector<float> C(N);
  const auto store_state = [&](void* to, std::int64_t first) {
    with_io_type(in.state_dtype, [&]<class State>(State) {
      for (std::int64_t i = 0; i < P * N; ++i)
        static_cast<typename State::Storage*>(to)[first + i] = State::store(state[i]);
    });
  };
  if (in.initial_states != nullptr)
    with_io_type(in.state_dtype,
                 [&]<class State>(State) { load<State>(in.initial_states, head_state, state); });
  else
    std::ranges::fill(state, 0.0F);

  for (std::int64_t t = 0; t < sequence.steps; ++t) {
    const std::int64_t step = sequence.begin + t;
    if (in.seq_idx != nullptr && t > 0 && in.seq_idx[step] != in.seq_idx[step - 1])
      std::ranges::fill(state, 0.0F);
    float delta = Io::load(static_cast<const Storage*>(in.dt)[step * in.nheads + h]);
    if (in.dt_bias != nullptr) delta += in.dt_bias[h];
    if (in.dt_softplus) delta = softplus(delta);
    delta = std::clamp(delta, in.dt_low, in.dt_high);
    const float decay = expf(delta * in.A[h]);

    const std::int64_t row = (step * in.nheads + h) * P;
    const std::int64_t projection = (step * in.groups + h / in.heads_per_group) * N;
    load<Io>(in.B, projection, B);
    load<Io>(in.C, projection, C);
    for (std::int64_t p = 0; p < P; ++p) {
      const float x = Io::load(static_cast<const Storage*>(in.x)[row + p]);
      float* states = state.data() + p * N;
      float y = 0;
      for (std::int64_t n = 0; n < N; ++n) {
        states[n] = decay * states[n] + delta * x * B[n];
        y += C[n] * states[n];
      }
      if (in.D != nullptr) y += in.D[in.skip_per_headdim ? h * P + p : h] * x;
      if (in.z != nullptr) y *= silu(Io::load(static_cast<const Storage*>(in.z)[row + p]));
      static_cast<Storage*>(args.out)[row + p] = Io::store(y);
    }
    for (std::int64_t k = 0; k < stops.count; ++k)
      if (stops.states_at[k] == step) store_state(stops.states, (k * in.nheads + h) * P * N);
  }
  if (args.final_states != nullptr) store_state(args.final_states, head_state);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const SsdArgs args = bind_ssd(problem, tensors);
  const SsdSequenceTable sequences = bind_ssd_sequences(problem, tensors);
  const SsdStops stops = bind_ssd_stops(problem, tensors);
  return with_io_type(problem.dtype(), [&]<class Io>(Io) -> Launch {
    return [=](void*) {
      std::vector<float> state(args.in.headdim * args.in.dstate);
      for (std::int64_t m = 0; m < sequences.count; ++m)
        for (std::int64_t h = 0; h < args.in.nheads; ++h)
          scan_head<Io>(args, stops, sequences.at(m), m, h, state);
    };
  });
}

const Registration registration{{.name = "cpu-scalar",
                                 .op = "ssd_chunk_scan_fwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "the plain sequential loop, one thread",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::scalar_ssd_fwd
