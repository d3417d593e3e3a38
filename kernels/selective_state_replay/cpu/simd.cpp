// cpu-simd: the replay head after head, threads over batch × heads. The states of a row lie side by side, so
// that the loops over them run on SIMD lanes, and stay in f32 for all tokens; what depends on head and token
// alone is worked out once for the head's rows. A head is computed by one thread, so results do not depend on
// the number of threads. New tokens go to rows of the ring that nobody reads in this launch.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_state_replay/cpu/simd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_state_replay/bind.h"
#include "kernels/selective_state_update/cpu/step.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// One head of one row of the batch.
template <class Io>
class HeadReplay {
 public:
  HeadReplay(const StateReplayArgs& args, std::int64_t b, std::int64_t head, HeadToken* by_token)
      : args_(args), b_(b), head_(head), slot_(args.slot(b)), by_token_(by_token) {}

  void run() {
    if (slot_ < 0) return clear();
    count_ = args_.count[slot_];
    for (std::int64_t k = 0; k < count_; ++k) load_old(k);
    for (std::int64_t t = 0; t < args_.tokens; ++t) load_new(t);
    for (std::int64_t p = 0; p < args_.headdim; ++p)
      with_io_type(args_.state_dtype, [&](auto state) { run_row<decltype(state)>(p); });
    for (std::int64_t t = 0; t < args_.tokens; ++t) append(t);
  }

 private:
  using Storage = typename Io::Storage;

  static const Storage* at(const void* data, std::int64_t first) {
    return static_cast<const Storage*>(data) + first;
  }
  std::int64_t token(std::int64_t t) const { return b_ * args_.tokens + t; }
  std::int64_t group() const { return head_ / (args_.heads / args_.groups); }
  std::int64_t ring_at(std::int64_t k) const { return args_.ring_at(slot_, head_, args_.ring_row(slot_, k)); }
  std::int64_t ring_b_at(std::int64_t k) const {
    return args_.ring_b_at(slot_, head_, args_.ring_row(slot_, k));
  }

  void set_delta(HeadToken& token, float delta) const {
    token.delta = delta;
    token.decay[0] = std::exp(delta * args_.A[head_]);  // one for all states
  }

  void load_old(std::int64_t k) {
    set_delta(by_token_[k], args_.ring_dt[ring_at(k)]);
    load_row<Io>(at(args_.ring_B, ring_b_at(k) * args_.dstate), dstate_, by_token_[k].B);
  }

  void load_new(std::int64_t t) {
    HeadToken& shared = by_token_[count_ + t];
    const std::int64_t from = token(t) * args_.heads + head_;
    float delta = args_.dt_is_f32 ? static_cast<const float*>(args_.dt)[from] : Io::load(*at(args_.dt, from));
    if (args_.dt_bias != nullptr) delta += args_.dt_bias[head_];
    set_delta(shared, args_.dt_softplus ? softplus(delta) : delta);
    const std::int64_t first = (token(t) * args_.groups + group()) * args_.dstate;
    load_row<Io>(at(args_.B, first), dstate_, shared.B);
    load_row<Io>(at(args_.C, first), dstate_, shared.C);
  }

  template <class State>
  void run_row(std::int64_t p) {
    alignas(64) float h[kStepStates];
    auto* const state = static_cast<typename State::Storage*>(args_.state) +
                        ((slot_ * args_.heads + head_) * args_.headdim + p) * args_.dstate;
    load_row<State>(state, dstate_, h);
    for (std::int64_t k = 0; k < count_; ++k)
      advance(by_token_[k], Io::load(*at(args_.ring_x, ring_at(k) * args_.headdim + p)), h);
    if (args_.stores(slot_)) store_row<State>(h, dstate_, state);
    for (std::int64_t t = 0; t < args_.tokens; ++t) {
      const HeadToken& shared = by_token_[count_ + t];
      const std::int64_t here = (token(t) * args_.heads + head_) * args_.headdim + p;
      const float x = Io::load(*at(args_.x, here));
      advance(shared, x, h);
      float y = contract(shared, h);
      if (args_.D != nullptr) y += args_.D[head_] * x;
      if (args_.z != nullptr) y *= silu(Io::load(*at(args_.z, here)));
      static_cast<Storage*>(args_.out)[here] = Io::store(y);
    }
  }

  void advance(const HeadToken& token, float x, float* h) const {
    const FloatTag tag;
    const auto decay = hn::Set(tag, token.decay[0]);
    const auto input = hn::Set(tag, token.delta * x);
    for (std::size_t n = 0; n < padded_; n += lanes_)
      hn::Store(hn::MulAdd(decay, hn::Load(tag, h + n), hn::Mul(input, hn::Load(tag, token.B + n))), tag,
                h + n);
  }

  float contract(const HeadToken& token, const float* h) const {
    const FloatTag tag;
    auto y = hn::Zero(tag);
    for (std::size_t n = 0; n < padded_; n += lanes_)
      y = hn::MulAdd(hn::Load(tag, token.C + n), hn::Load(tag, h + n), y);
    return hn::GetLane(hn::SumOfLanes(tag, y));
  }

  void append(std::int64_t t) {
    const std::int64_t to = ring_at(count_ + t);
    args_.ring_dt[to] = by_token_[count_ + t].delta;
    std::copy_n(at(args_.x, (token(t) * args_.heads + head_) * args_.headdim), args_.headdim,
                static_cast<Storage*>(args_.ring_x) + to * args_.headdim);
    if (head_ % (args_.heads / args_.groups) != 0) return;  // one head of each group
    std::copy_n(at(args_.B, (token(t) * args_.groups + group()) * args_.dstate), args_.dstate,
                static_cast<Storage*>(args_.ring_B) + ring_b_at(count_ + t) * args_.dstate);
  }

  /// Padding has no state: its outputs are zeros.
  void clear() const {
    for (std::int64_t t = 0; t < args_.tokens; ++t)
      std::fill_n(static_cast<Storage*>(args_.out) + (token(t) * args_.heads + head_) * args_.headdim,
                  args_.headdim, Io::store(0));
  }

  const StateReplayArgs& args_;
  std::int64_t b_, head_, slot_;
  std::int64_t count_ = 0;
  HeadToken* by_token_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t dstate_ = static_cast<std::size_t>(args_.dstate);
  std::size_t padded_ = round_up(dstate_, lanes_);
};

void replay_head(const StateReplayArgs& args, DType io, std::int64_t index, HeadToken* by_token) {
  with_io_type(io, [&](auto type) {
    HeadReplay<decltype(type)>(args, index / args.heads, index % args.heads, by_token).run();
  });
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <vector>

namespace ssmbench::simd::state_replay {
namespace {

HWY_EXPORT(replay_head);

// Below this many states, some ten microseconds, waking threads costs more than it gains.
constexpr std::int64_t kWorthThreads = 16384;

void run(const StateReplayArgs& args, DType io) {
  const auto run_one = HWY_DYNAMIC_DISPATCH(replay_head);
  const std::int64_t states = args.batch * args.heads * args.headdim * args.dstate;
#pragma omp parallel if (states > kWorthThreads)
  {
    std::vector<HeadToken> by_token(static_cast<std::size_t>(args.ring()));
#pragma omp for schedule(static)
    for (std::int64_t index = 0; index < args.batch * args.heads; ++index)
      run_one(args, io, index, by_token.data());
  }
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const StateReplayArgs args = bind_state_replay(problem, tensors);
  return [args, io = problem.dtype()](void*) { run(args, io); };
}

const Registration registration{{.name = "cpu-simd",
                                 .op = "selective_state_replay",
                                 .device = DeviceKind::cpu,
                                 .summary = "states of a row on SIMD lanes, all threads (Highway)",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd::state_replay

#endif  // HWY_ONCE
