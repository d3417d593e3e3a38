// cpu-step: decoding steps, head after head, threads over batch × heads. The states of a row lie side by
// side, so that the loops over them run on SIMD lanes; what depends on the head and token alone is worked out
// once for its rows, and B and C once for the heads of a group. A row's state stays in a buffer of f32 for all
// tokens: it is read before any is stored. One token of states without scales, in whole vectors, does without
// that buffer. A head is computed by one thread, so results do not depend on the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_state_update/cpu/step.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_state_update/bind.h"
#include "kernels/selective_state_update/cpu/state_rows-inl.h"
#include "kernels/selective_state_update/cpu/step.h"
#include "kernels/selective_state_update/cpu/step_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// Steps of one head of one row of the batch.
template <class Io>
class HeadSteps {
 public:
  HeadSteps(const StateUpdateArgs& args, const StateStorage& storage, std::int64_t b, std::int64_t head,
            HeadToken* by_token)
      : args_(args),
        b_(b),
        head_(head),
        by_token_(by_token),
        storage_(storage),
        states_(args.state, storage, dstate_, 0),
        intermediate_(args.intermediate, storage, dstate_, 1) {}

  void run() {
    const std::int64_t source = args_.source != nullptr ? args_.source[b_] : b_;
    if (source < 0) return clear();
    for (std::int64_t t = 0; t < args_.tokens; ++t) load_token(t);
    if (has_one_token())
      return with_io_type(storage_.dtype, [&](auto state) {
        if constexpr (std::is_same_v<decltype(state), Bf16>)
          if (has_pairs()) return run_one_token<Bf16Pairs>(source);
        if constexpr (std::is_same_v<decltype(state), F16>)
          if (dstate_ % (F16Pair::kVectors * lanes_) == 0) return run_one_token<F16Pair>(source);
        run_one_token<StateBlock<decltype(state)>>(source);
      });
    for (std::int64_t p = 0; p < args_.headdim; ++p) run_row(source, head_ * args_.headdim + p);
  }

 private:
  using Storage = typename Io::Storage;

  float io(const void* data, std::int64_t at) const {
    return Io::load(static_cast<const Storage*>(data)[at]);
  }
  std::int64_t step(std::int64_t t) const { return b_ * args_.tokens + t; }
  /// Whether run_one_token() takes it; and in pairs of vectors.
  bool has_one_token() const {
    return args_.tokens == 1 && args_.intermediate == nullptr && storage_.scale == nullptr &&
           storage_.seed == nullptr && dstate_ % lanes_ == 0;
  }
  bool has_pairs() const {
    return has_one_token() && storage_.dtype == DType::bf16 && !args_.rate_per_state &&
           dstate_ % (2 * lanes_) == 0;
  }

  void load_token(std::int64_t t) {
    const FloatTag tag;
    HeadToken& token = by_token_[t];
    const std::int64_t at = step(t) * args_.heads + head_;
    token.delta = args_.dt_is_f32 ? static_cast<const float*>(args_.dt)[at] : io(args_.dt, at);
    if (args_.dt_bias != nullptr) token.delta += args_.dt_bias[head_];
    if (args_.dt_softplus) token.delta = softplus(token.delta);

    if (args_.rate_per_state) {
      load_row<F32>(args_.A + head_ * args_.dstate, dstate_, token.decay);
      for (std::size_t n = 0; n < padded_; n += lanes_)
        hn::Store(exponential(hn::Mul(hn::Set(tag, token.delta), hn::Load(tag, token.decay + n))), tag,
                  token.decay + n);
    } else {
      std::fill_n(token.decay, padded_, quiet(std::exp(token.delta * args_.A[head_])));
    }
    const std::int64_t group = step(t) * args_.groups + head_ / (args_.heads / args_.groups);
    if (token.group == group) return;
    token.group = group;
    load_row<Io>(static_cast<const Storage*>(args_.B) + group * args_.dstate, dstate_, token.B);
    load_row<Io>(static_cast<const Storage*>(args_.C) + group * args_.dstate, dstate_, token.C);
    if (!has_pairs()) return;
    Bf16Pairs::separate(token.B, dstate_);
    Bf16Pairs::separate(token.C, dstate_);
  }

  /// One token, whose states go straight from memory to memory: its bandwidth binds. Several rows are taken
  /// at once, since each is a chain of additions; and what they have one of is on SIMD lanes, too.
  template <class Block>
  void run_one_token(std::int64_t source) const {
    const std::int64_t slot = args_.destination != nullptr ? args_.destination[b_] : b_;
    for (std::int64_t p = 0; p < args_.headdim; p += kStepOutputs)
      run_outputs<Block>(source, slot, head_ * args_.headdim + p,
                         static_cast<std::size_t>(std::min(args_.headdim - p, kStepOutputs)));
  }
  /// `count` ≤ kStepOutputs rows from `row` of a slot on.
  template <class Block>
  void run_outputs(std::int64_t source, std::int64_t slot, std::int64_t row, std::size_t count) const {
    using State = typename Block::Storage;
    const HeadToken& token = by_token_[0];
    const std::int64_t rows = args_.heads * args_.headdim;
    const std::int64_t at = b_ * rows + row;
    alignas(64) float x[kStepOutputs], delta_x[kStepOutputs], y[kStepOutputs];
    load_row<Io>(static_cast<const Storage*>(args_.x) + at, count, x);
    for (std::size_t r = 0; r < count; ++r) delta_x[r] = quiet(token.delta * x[r]);
    auto* const states = static_cast<State*>(args_.state);
    alignas(64) State unused[kStepRows * kStepStates];
    const State* from = states + (source * rows + row) * args_.dstate;
    State* to = slot >= 0 ? states + (slot * rows + row) * args_.dstate : unused;
    const std::size_t written = slot >= 0 ? dstate_ : 0;
    std::size_t r = 0;
    for (; r + kStepRows <= count; r += kStepRows)
      advance_rows<kStepRows, Block>(token, delta_x + r, dstate_, from + r * dstate_, to + r * written,
                                     y + r);
    for (; r < count; ++r)
      advance_rows<1, Block>(token, delta_x + r, dstate_, from + r * dstate_, to + r * written, y + r);
    store_outputs(x, y, at, count);
  }
  /// `count` outputs at `at` from x and Σ C·h of each.
  void store_outputs(const float* x, float* y, std::int64_t at, std::size_t count) const {
    const FloatTag tag;
    alignas(64) float z[kStepOutputs];
    if (args_.z != nullptr) load_row<Io>(static_cast<const Storage*>(args_.z) + at, count, z);
    for (std::size_t i = 0; i < count; i += lanes_) {
      auto out = hn::Load(tag, y + i);
      if (args_.D != nullptr) out = hn::MulAdd(hn::Set(tag, args_.D[head_]), hn::Load(tag, x + i), out);
      if (args_.z != nullptr) out = hn::Mul(out, vector_silu(hn::Load(tag, z + i)));
      hn::Store(out, tag, y + i);
    }
    store_row<Io>(y, count, static_cast<Storage*>(args_.out) + at);
  }
  /// out at `at` from Σ C·h.
  void store_output(float y, float x, std::int64_t at) const {
    if (args_.D != nullptr) y += args_.D[head_] * x;
    if (args_.z != nullptr) y *= silu(io(args_.z, at));
    static_cast<Storage*>(args_.out)[at] = Io::store(y);
  }

  /// `row` of those of a slot.
  void run_row(std::int64_t source, std::int64_t row) {
    alignas(64) float h[kStepStates];
    const std::int64_t rows = args_.heads * args_.headdim;
    states_.load(source * rows + row, h);
    for (std::int64_t t = 0; t < args_.tokens; ++t) {
      const std::int64_t at = step(t) * rows + row;
      const float x = io(args_.x, at);
      const float delta_x = by_token_[t].delta * x;
      float y = 0;
      advance_rows<1, StateBlock<F32>>(by_token_[t], &delta_x, padded_, h, h, &y);
      store_output(y, x, at);
      if (args_.intermediate != nullptr) intermediate_.store(h, at);
      const bool is_last = t == args_.tokens - 1;
      const std::int64_t slot = args_.destination != nullptr ? args_.destination[step(t)] : is_last ? b_ : -1;
      if (slot >= 0) states_.store(h, slot * rows + row);
    }
  }

  /// Padding has no state: its outputs are zeros.
  void clear() const {
    for (std::int64_t t = 0; t < args_.tokens; ++t) {
      const std::int64_t first = (step(t) * args_.heads + head_) * args_.headdim;
      std::fill_n(static_cast<Storage*>(args_.out) + first, args_.headdim, Io::store(0));
      if (args_.intermediate == nullptr) continue;
      alignas(64) const float zeros[kStepStates] = {};
      for (std::int64_t p = 0; p < args_.headdim; ++p) intermediate_.store(zeros, first + p);
    }
  }

  const StateUpdateArgs& args_;
  std::int64_t b_, head_;
  HeadToken* by_token_;
  const StateStorage& storage_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t dstate_ = static_cast<std::size_t>(args_.dstate);
  std::size_t padded_ = round_up(dstate_, lanes_);
  StateRows states_, intermediate_;
};

void run_head(const StateUpdateArgs& args, const StateStorage& storage, DType io, std::int64_t index,
              HeadToken* by_token) {
  with_io_type(io, [&](auto io_type) {
    HeadSteps<decltype(io_type)>(args, storage, index / args.heads, index % args.heads, by_token).run();
  });
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <vector>

namespace ssmbench::simd::state_update {
namespace {

HWY_EXPORT(run_head);

// Below this many states, some ten microseconds, waking threads costs more than it gains.
constexpr std::int64_t kWorthThreads = 16384;

void run(const StateUpdateArgs& args, const StateStorage& storage, DType io) {
  const auto run_one = HWY_DYNAMIC_DISPATCH(run_head);
  const std::int64_t states = args.batch * args.heads * args.headdim * args.dstate;
#pragma omp parallel if (states > kWorthThreads)
  {
    std::vector<HeadToken> by_token(static_cast<std::size_t>(args.tokens));
#pragma omp for schedule(static)
    for (std::int64_t index = 0; index < args.batch * args.heads; ++index)
      run_one(args, storage, io, index, by_token.data());
  }
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const StateUpdateArgs args = bind_state_update(problem, tensors);
  return [args, storage = bind_state_storage(problem, tensors), io = problem.dtype()](void*) {
    run(args, storage, io);
  };
}

const Registration registration{
    {.name = "cpu-step",
     .op = "selective_state_update",
     .device = DeviceKind::cpu,
     .summary = "decoding steps, states of a row on SIMD lanes, all threads (Highway)",
     .unsupported = [](const Problem&) { return std::optional<std::string>(); },
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd::state_update

#endif  // HWY_ONCE
