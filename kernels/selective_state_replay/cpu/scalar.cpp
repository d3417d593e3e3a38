// cpu-scalar: the replay as the definition has it, one row after the other on one thread, f32. It is the
// readable version of what every faster implementation computes.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_state_replay/bind.h"

namespace ssmbench::scalar_state_replay {
namespace {

template <class Io>
class Replay {
 public:
  explicit Replay(const StateReplayArgs& args) : args_(args), h_(static_cast<std::size_t>(args.dstate)) {}

  void run() {
    for (std::int64_t b = 0; b < args_.batch; ++b)
      for (std::int64_t head = 0; head < args_.heads; ++head) {
        const std::int64_t slot = args_.slot(b);
        if (slot < 0) {
          clear(b, head);
          continue;
        }
        for (std::int64_t p = 0; p < args_.headdim; ++p) row(b, slot, head, p);
        append(b, slot, head);
      }
  }

 private:
  using Storage = typename Io::Storage;

  static float io(const void* data, std::int64_t at) {
    return Io::load(static_cast<const Storage*>(data)[at]);
  }
  std::int64_t token(std::int64_t b, std::int64_t t) const { return b * args_.tokens + t; }
  std::int64_t group(std::int64_t head) const { return head / (args_.heads / args_.groups); }

  float delta(std::int64_t b, std::int64_t t, std::int64_t head) const {
    const std::int64_t at = token(b, t) * args_.heads + head;
    float dt = args_.dt_is_f32 ? static_cast<const float*>(args_.dt)[at] : io(args_.dt, at);
    if (args_.dt_bias != nullptr) dt += args_.dt_bias[head];
    return args_.dt_softplus ? softplus(dt) : dt;
  }

  /// B from element `first` on.
  void advance(float step, float x, std::int64_t head, const void* B, std::int64_t first) {
    const float decay = std::exp(step * args_.A[head]);
    for (std::int64_t n = 0; n < args_.dstate; ++n) h_[n] = decay * h_[n] + step * x * io(B, first + n);
  }

  void row(std::int64_t b, std::int64_t slot, std::int64_t head, std::int64_t p) {
    const std::int64_t state = ((slot * args_.heads + head) * args_.headdim + p) * args_.dstate;
    for (std::int64_t n = 0; n < args_.dstate; ++n)
      h_[n] = static_cast<float>(load_as_double(args_.state, state + n, args_.state_dtype));
    for (std::int64_t k = 0; k < args_.count[slot]; ++k) {
      const std::int64_t at = args_.ring_row(slot, k);
      advance(args_.ring_dt[args_.ring_at(slot, head, at)],
              io(args_.ring_x, args_.ring_at(slot, head, at) * args_.headdim + p), head, args_.ring_B,
              args_.ring_b_at(slot, head, at) * args_.dstate);
    }
    if (args_.stores(slot))
      for (std::int64_t n = 0; n < args_.dstate; ++n)
        store_from_double(args_.state, state + n, args_.state_dtype, h_[n]);
    for (std::int64_t t = 0; t < args_.tokens; ++t) {
      const std::int64_t at = (token(b, t) * args_.heads + head) * args_.headdim + p;
      const std::int64_t first = (token(b, t) * args_.groups + group(head)) * args_.dstate;
      const float x = io(args_.x, at);
      advance(delta(b, t, head), x, head, args_.B, first);
      float y = 0;
      for (std::int64_t n = 0; n < args_.dstate; ++n) y += io(args_.C, first + n) * h_[n];
      if (args_.D != nullptr) y += args_.D[head] * x;
      if (args_.z != nullptr) y *= silu(io(args_.z, at));
      static_cast<Storage*>(args_.out)[at] = Io::store(y);
    }
  }

  /// New tokens follow the old ones in the ring.
  void append(std::int64_t b, std::int64_t slot, std::int64_t head) {
    for (std::int64_t t = 0; t < args_.tokens; ++t) {
      const std::int64_t row = args_.ring_row(slot, args_.count[slot] + t);
      const std::int64_t at = args_.ring_at(slot, head, row);
      args_.ring_dt[at] = delta(b, t, head);
      std::copy_n(static_cast<const Storage*>(args_.x) + (token(b, t) * args_.heads + head) * args_.headdim,
                  args_.headdim, static_cast<Storage*>(args_.ring_x) + at * args_.headdim);
      if (head % (args_.heads / args_.groups) != 0) continue;  // one head of each group
      std::copy_n(
          static_cast<const Storage*>(args_.B) + (token(b, t) * args_.groups + group(head)) * args_.dstate,
          args_.dstate,
          static_cast<Storage*>(args_.ring_B) + args_.ring_b_at(slot, head, row) * args_.dstate);
    }
  }

  /// Padding has no state: its outputs are zeros.
  void clear(std::int64_t b, std::int64_t head) const {
    for (std::int64_t t = 0; t < args_.tokens; ++t)
      std::fill_n(static_cast<Storage*>(args_.out) + (token(b, t) * args_.heads + head) * args_.headdim,
                  args_.headdim, Io::store(0));
  }

  const StateReplayArgs& args_;
  std::vector<float> h_;
};

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const StateReplayArgs args = bind_state_replay(problem, tensors);
  return [args, io = problem.dtype()](void*) {
    with_io_type(io, [&](auto type) { Replay<decltype(type)>(args).run(); });
  };
}

const Registration registration{{.name = "cpu-scalar",
                                 .op = "selective_state_replay",
                                 .device = DeviceKind::cpu,
                                 .summary = "a plain loop over rows and tokens, one thread",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::scalar_state_replay
