// cpu-step: one decoding step, head after head, threads over batch × heads. The states of a row lie side by
// side, so that the loops over them run on SIMD lanes; what depends on the head alone is worked out once for
// its rows.

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_state_update/bind.h"
#include "ops/selective_scan/selective_scan.h"

namespace ssmbench {
namespace {

using Row = std::array<float, kMaxDState>;

// Below this many states, some ten microseconds, waking threads costs more than it gains.
constexpr std::int64_t kWorthThreads = 16384;

template <class Io, class State>
void update_head(const StateUpdateArgs& args, std::int64_t index) {
  using Storage = typename Io::Storage;
  const std::int64_t head = index % args.heads;
  const std::int64_t group = index / args.heads * args.groups + head / (args.heads / args.groups);

  float delta = Io::load(static_cast<const Storage*>(args.dt)[index]);
  if (args.dt_bias != nullptr) delta += args.dt_bias[head];
  if (args.dt_softplus) delta = softplus(delta);

  Row decay, B, C;
  if (args.rate_per_state)
    for (std::int64_t n = 0; n < args.dstate; ++n)
      decay[n] = std::exp(delta * args.A[head * args.dstate + n]);
  else
    std::fill_n(decay.begin(), args.dstate, std::exp(delta * args.A[head]));
  for (std::int64_t n = 0; n < args.dstate; ++n) {
    B[n] = Io::load(static_cast<const Storage*>(args.B)[group * args.dstate + n]);
    C[n] = Io::load(static_cast<const Storage*>(args.C)[group * args.dstate + n]);
  }

  for (std::int64_t row = index * args.headdim; row < (index + 1) * args.headdim; ++row) {
    const float x = Io::load(static_cast<const Storage*>(args.x)[row]);
    const float delta_x = delta * x;
    auto* const state = static_cast<typename State::Storage*>(args.state) + row * args.dstate;
    float y = 0;
#pragma omp simd reduction(+ : y)
    for (std::int64_t n = 0; n < args.dstate; ++n) {
      const float h = decay[n] * State::load(state[n]) + delta_x * B[n];
      state[n] = State::store(h);
      y += C[n] * h;
    }
    if (args.D != nullptr) y += args.D[head] * x;
    if (args.z != nullptr) y *= silu(Io::load(static_cast<const Storage*>(args.z)[row]));
    static_cast<Storage*>(args.out)[row] = Io::store(y);
  }
}

template <class Io, class State>
void update(const StateUpdateArgs& args) {
  const std::int64_t states = args.batch * args.heads * args.headdim * args.dstate;
#pragma omp parallel for schedule(static) if (states > kWorthThreads)
  for (std::int64_t index = 0; index < args.batch * args.heads; ++index) update_head<Io, State>(args, index);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const StateUpdateArgs args = bind_state_update(problem, tensors);
  return with_io_type(problem.dtype(), [&]<class Io>(Io) {
    return with_io_type(StateUpdate(problem).state_dtype, [&args]<class State>(State) -> Launch {
      return [args](void*) { update<Io, State>(args); };
    });
  });
}

const Registration registration{{.name = "cpu-step",
                                 .op = "selective_state_update",
                                 .device = DeviceKind::cpu,
                                 .summary = "one decoding step, all threads, states of a row on SIMD lanes",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
