// cpu-step: decoding steps, head after head, threads over batch × heads. The states of a row lie side by
// side, so that the loops over them run on SIMD lanes; what depends on the head and token alone is worked out
// once for its rows. A row's state stays in a buffer of f32 for all tokens: it is read before any is stored.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_state_update/bind.h"

namespace ssmbench {
namespace {

using Row = std::array<float, kMaxStepDState>;

// Below this many states, some ten microseconds, waking threads costs more than it gains.
constexpr std::int64_t kWorthThreads = 16384;

/// What the rows of a head share at one token.
struct HeadToken {
  float delta;
  Row decay, B, C;
};

/// Head `head` of row `b` of the batch, `token` of it.
template <class Io>
HeadToken head_token(const StateUpdateArgs& args, std::int64_t b, std::int64_t token, std::int64_t head) {
  using Storage = typename Io::Storage;
  HeadToken shared;
  const std::int64_t step = b * args.tokens + token;
  const std::int64_t group = step * args.groups + head / (args.heads / args.groups);
  const std::int64_t at = step * args.heads + head;
  float& delta = shared.delta;
  delta = args.dt_is_f32 ? static_cast<const float*>(args.dt)[at]
                         : Io::load(static_cast<const Storage*>(args.dt)[at]);
  if (args.dt_bias != nullptr) delta += args.dt_bias[head];
  if (args.dt_softplus) delta = softplus(delta);

  if (args.rate_per_state)
    for (std::int64_t n = 0; n < args.dstate; ++n)
      shared.decay[n] = std::exp(delta * args.A[head * args.dstate + n]);
  else
    std::fill_n(shared.decay.begin(), args.dstate, std::exp(delta * args.A[head]));
  for (std::int64_t n = 0; n < args.dstate; ++n) {
    shared.B[n] = Io::load(static_cast<const Storage*>(args.B)[group * args.dstate + n]);
    shared.C[n] = Io::load(static_cast<const Storage*>(args.C)[group * args.dstate + n]);
  }
  return shared;
}

/// One token of a row; `at`: of x, z and out.
template <class Io>
void advance(const StateUpdateArgs& args, const HeadToken& shared, std::int64_t head, std::int64_t at,
             Row& h) {
  using Storage = typename Io::Storage;
  const float x = Io::load(static_cast<const Storage*>(args.x)[at]);
  const float delta_x = shared.delta * x;
  float y = 0;
#pragma omp simd reduction(+ : y)
  for (std::int64_t n = 0; n < args.dstate; ++n) {
    h[n] = shared.decay[n] * h[n] + delta_x * shared.B[n];
    y += shared.C[n] * h[n];
  }
  if (args.D != nullptr) y += args.D[head] * x;
  if (args.z != nullptr) y *= silu(Io::load(static_cast<const Storage*>(args.z)[at]));
  static_cast<Storage*>(args.out)[at] = Io::store(y);
}

template <class State>
void store_row(const StateUpdateArgs& args, const Row& h, void* states, std::int64_t row) {
  auto* const to = static_cast<typename State::Storage*>(states) + row * args.dstate;
  for (std::int64_t n = 0; n < args.dstate; ++n) to[n] = State::store(h[n]);
}

/// Padding has no state: its outputs are zeros.
template <class Io, class State>
void clear_head(const StateUpdateArgs& args, std::int64_t b, std::int64_t head) {
  for (std::int64_t t = 0; t < args.tokens; ++t) {
    const std::int64_t first = ((b * args.tokens + t) * args.heads + head) * args.headdim;
    std::fill_n(static_cast<typename Io::Storage*>(args.out) + first, args.headdim, Io::store(0));
    if (args.intermediate != nullptr)
      std::fill_n(static_cast<typename State::Storage*>(args.intermediate) + first * args.dstate,
                  args.headdim * args.dstate, State::store(0));
  }
}

template <class Io, class State>
void update_head(const StateUpdateArgs& args, std::int64_t index, std::vector<HeadToken>& by_token) {
  const std::int64_t b = index / args.heads;
  const std::int64_t head = index % args.heads;
  const std::int64_t source = args.source != nullptr ? args.source[b] : b;
  if (source < 0) return clear_head<Io, State>(args, b, head);
  for (std::int64_t t = 0; t < args.tokens; ++t) by_token[t] = head_token<Io>(args, b, t, head);
  Row h;
  for (std::int64_t p = 0; p < args.headdim; ++p) {
    const std::int64_t row_of_slot = head * args.headdim + p;
    const std::int64_t rows = args.heads * args.headdim;  // of a slot
    const auto* const from =
        static_cast<const typename State::Storage*>(args.state) + (source * rows + row_of_slot) * args.dstate;
    for (std::int64_t n = 0; n < args.dstate; ++n) h[n] = State::load(from[n]);
    for (std::int64_t t = 0; t < args.tokens; ++t) {
      const std::int64_t at = (b * args.tokens + t) * rows + row_of_slot;
      advance<Io>(args, by_token[t], head, at, h);
      if (args.intermediate != nullptr) store_row<State>(args, h, args.intermediate, at);
      const bool is_last = t == args.tokens - 1;
      const std::int64_t slot = args.destination != nullptr ? args.destination[b * args.tokens + t]
                                : is_last                   ? b
                                                            : -1;
      if (slot >= 0) store_row<State>(args, h, args.state, slot * rows + row_of_slot);
    }
  }
}

template <class Io, class State>
void update(const StateUpdateArgs& args) {
  const std::int64_t states = args.batch * args.heads * args.headdim * args.dstate;
#pragma omp parallel if (states > kWorthThreads)
  {
    std::vector<HeadToken> by_token(static_cast<std::size_t>(args.tokens));
#pragma omp for schedule(static)
    for (std::int64_t index = 0; index < args.batch * args.heads; ++index)
      update_head<Io, State>(args, index, by_token);
  }
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
                                 .summary = "decoding steps, all threads, states of a row on SIMD lanes",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
