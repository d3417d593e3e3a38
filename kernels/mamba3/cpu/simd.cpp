// cpu-simd: Mamba-3's scans with vectors over head dims, and its step with vectors over states, which lie side
// by side in memory and are read and written once. Threads share out the heads of all sequences.
//
// Time is cut into tiles whose q, k and V are made once; every pair of vectors of head dims then walks over
// the tile with its states, [state][head dim], in a first-level cache. The state that is carried has the
// weight that later steps see, s_t = γ_t + (1 − λ_{t+1})·DT_{t+1}:
//
//   lane p:   h[n][p] ← α_t·h[n][p],   y_t^r[p] += q_t^r[n]·h[n][p],   h[n][p] += Σ_r s_t·V_t^r[p]·k_t^r[n]
//             for n = 0, 1, …: q and k are broadcast; what a step reads of its own input is γ·(q·k)·V
//
// A head is computed by one thread, so results do not depend on the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mamba3/cpu/simd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>
#include <cmath>
#include <vector>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/cpu/scalar_head.h"
#include "kernels/mamba3/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

class Mamba3Scan : Mamba3ScalarHead {
 public:
  Mamba3Scan(const Mamba3Args& args, DType io, Mamba3Scratch& scratch)
      : Mamba3ScalarHead(args, io), s_(scratch), turns_(static_cast<std::size_t>(scan_.angles)) {}

  void run(std::int64_t index, std::int64_t batch, std::int64_t begin, std::int64_t end, std::int64_t head) {
    choose(index, batch, begin, end, head);
    load_factors();
    load_turns(turns_);
    load_state();
    std::size_t steps = 0;
    for (std::int64_t first = begin; first < end; first += kMamba3Tile) {
      steps = static_cast<std::size_t>(std::min<std::int64_t>(kMamba3Tile, end - first));
      for (std::size_t t = 0; t < steps; ++t) load_step(t, first + static_cast<std::int64_t>(t));
      std::size_t p = 0;
      for (; p + lanes_ < padded_; p += 2 * lanes_) scan_tile<2>(p, steps);
      if (p < padded_) scan_tile<1>(p, steps);
      for (std::size_t t = 0; t < steps; ++t) store_step(t, first + static_cast<std::int64_t>(t));
    }
    if (args_.final_ssm != nullptr) store_states(steps);
  }

  /// A decoding step of a sequence, which updates its states.
  void step(std::int64_t index, std::int64_t head) {
    choose(index, index, 0, 1, head);
    load_factors();
    load_turns(turns_);
    load_step(0, 0);
    load_step_before();
    for (std::size_t p = 0; p < headdim_; ++p) ranks_ == 1 ? update_row<true>(p) : update_row<false>(p);
    store_step(0, 0);
    store_vector_states(1);
  }

 private:
  /// The row of rank r of the tile's step t.
  std::size_t row(std::size_t t, std::size_t r) const { return (t * ranks_ + r) * kMamba3Room; }

  void load_factors() {
    for (std::size_t r = 0; r < ranks_; ++r)
      for (std::size_t p = 0; p < padded_; ++p) {
        const auto rank = static_cast<std::int64_t>(r);
        const auto dim = static_cast<std::int64_t>(std::min(p, headdim_ - 1));
        s_.ups[r * kMamba3Room + p] = factor(args_.mimo_v, rank, dim);
        s_.gates[r * kMamba3Room + p] = factor(args_.mimo_z, rank, dim);
        s_.downs[r * kMamba3Room + p] = factor(args_.mimo_out, rank, dim);
      }
  }

  /// The input state with what the first step adds of the step before.
  void load_state() {
    std::fill_n(s_.state, states_ * padded_, 0.0F);
    if (args_.input_ssm == nullptr) return;
    const Scalars first = begin_ < end_ ? scalars(begin_) : Scalars{};
    const float weight = first.closed * first.dt;
    const float* const from = args_.input_ssm + state_at() * scan_.headdim * scan_.dstate;
    const float* const v = args_.input_v + state_at() * scan_.headdim;
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_; ++n) {
        float& state = s_.state[n * padded_ + p];
        state = from[p * states_ + n];
        for (std::size_t r = 0; r < ranks_; ++r)
          state += weight * v[p] * s_.ups[r * kMamba3Room + p] *
                   args_.input_k[k_state_at(static_cast<std::int64_t>(r)) + static_cast<std::int64_t>(n)];
      }
  }

  void load_step(std::size_t at, std::int64_t t) {
    const Scalars here = scalars(t);
    s_.alpha[at] = here.alpha;
    s_.later[at] = here.gamma;
    if (t + 1 < end_) {
      const Scalars next = scalars(t + 1);
      s_.later[at] += next.closed * next.dt;
    }
    turn(t, turns_);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      s_.sine[i] = sinf(kTurn * turns_[i]);
      s_.cosine[i] = cosf(kTurn * turns_[i]);
    }
    load_row_at(args_.V, step_at(t) * scan_.headdim, io_, headdim_, s_.row);
    for (std::size_t r = 0; r < ranks_; ++r) {
      const auto rank = static_cast<std::int64_t>(r);
      load_vector(args_.Q, args_.Q_bias, t, rank, s_.q + row(at, r));
      load_vector(args_.K, args_.K_bias, t, rank, s_.k + row(at, r));
      for (std::size_t p = 0; p < padded_; ++p)
        s_.v[row(at, r) + p] = p < headdim_ ? s_.row[p] * s_.ups[r * kMamba3Room + p] : 0.0F;
    }
    for (std::size_t r = 0; r < ranks_; ++r)
      for (std::size_t other = 0; other < ranks_; ++other)
        s_.scores[(at * ranks_ + r) * ranks_ + other] =
            here.gamma * dot(s_.q + row(at, r), s_.k + row(at, other));
  }

  /// Q or K of a rank with its bias, turned.
  void load_vector(const void* from, const float* bias, std::int64_t t, std::int64_t rank, float* to) const {
    load_row_at(from, row_at(t, rank), io_, states_, to);
    bias += (head_ * scan_.rank + rank) * scan_.dstate;
    for (std::size_t n = 0; n < states_; ++n) to[n] += bias[n];
    rotate_row(to);
  }

  void rotate_row(float* x) const {
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const std::int64_t first = scan_.first_of_pair(static_cast<std::int64_t>(i));
      const std::int64_t second = scan_.second_of_pair(static_cast<std::int64_t>(i));
      const float x0 = x[first];
      const float x1 = x[second];
      x[first] = x0 * s_.cosine[i] - x1 * s_.sine[i];
      x[second] = x0 * s_.sine[i] + x1 * s_.cosine[i];
    }
  }

  float dot(const float* a, const float* b) const {
    const FloatTag tag;
    auto sum = hn::Zero(tag);
    std::size_t n = 0;
    for (; n + lanes_ <= states_; n += lanes_)
      sum = hn::MulAdd(hn::Load(tag, a + n), hn::Load(tag, b + n), sum);
    float total = hn::GetLane(hn::SumOfLanes(tag, sum));
    for (; n < states_; ++n) total += a[n] * b[n];
    return total;
  }

  /// Head dims from p on, one or two vectors of them.
  template <std::size_t kVectors>
  void scan_tile(std::size_t p, std::size_t steps) {
    for (std::size_t t = 0; t < steps; ++t) {
      for (std::size_t r = 1; r < ranks_; ++r) read_rank<kVectors>(p, t, r);
      ranks_ == 1 ? do_step<kVectors, true>(p, t) : do_step<kVectors, false>(p, t);
    }
  }

  /// y of another rank than the first, from the state before the step.
  template <std::size_t kVectors>
  void read_rank(std::size_t p, std::size_t t, std::size_t r) {
    const FloatTag tag;
    const float* const q = s_.q + row(t, r);
    FloatVec sums[2] = {hn::Zero(tag), hn::Zero(tag)};
    for (std::size_t n = 0; n < states_; ++n)
      for (std::size_t i = 0; i < kVectors; ++i)
        sums[i] =
            hn::MulAdd(hn::Set(tag, q[n]), hn::Load(tag, s_.state + n * padded_ + p + i * lanes_), sums[i]);
    for (std::size_t i = 0; i < kVectors; ++i)
      hn::Store(hn::Mul(hn::Set(tag, s_.alpha[t]), sums[i]), tag, s_.y + row(t, r) + p + i * lanes_);
  }

  /// The state after the step, and y of the first rank.
  template <std::size_t kVectors, bool kOneRank>
  void do_step(std::size_t p, std::size_t t) {
    const FloatTag tag;
    const float* const q = s_.q + row(t, 0);
    const float* const k = s_.k + row(t, 0);
    const auto alpha = hn::Set(tag, s_.alpha[t]);
    const auto later = hn::Set(tag, s_.later[t]);
    FloatVec sums[2] = {hn::Zero(tag), hn::Zero(tag)};
    FloatVec inputs[2] = {hn::Zero(tag), hn::Zero(tag)};
    for (std::size_t i = 0; i < kVectors; ++i)
      inputs[i] = hn::Mul(later, hn::Load(tag, s_.v + row(t, 0) + p + i * lanes_));
    for (std::size_t n = 0; n < states_; ++n)
      for (std::size_t i = 0; i < kVectors; ++i) {
        float* const at = s_.state + n * padded_ + p + i * lanes_;
        auto h = hn::Mul(alpha, hn::Load(tag, at));
        sums[i] = hn::MulAdd(hn::Set(tag, q[n]), h, sums[i]);
        h = hn::MulAdd(hn::Set(tag, k[n]), inputs[i], h);
        if constexpr (!kOneRank)
          for (std::size_t r = 1; r < ranks_; ++r)
            h = hn::MulAdd(hn::Set(tag, s_.later[t] * s_.k[row(t, r) + n]),
                           hn::Load(tag, s_.v + row(t, r) + p + i * lanes_), h);
        hn::Store(h, tag, at);
      }
    for (std::size_t i = 0; i < kVectors; ++i) hn::Store(sums[i], tag, s_.y + row(t, 0) + p + i * lanes_);
  }

  /// k and V^r of the step before, to where the tile's second step is.
  void load_step_before() {
    const Scalars here = scalars(0);
    s_.beta = here.beta;
    for (std::size_t r = 0; r < ranks_; ++r) {
      std::copy_n(args_.input_k + k_state_at(static_cast<std::int64_t>(r)), states_, s_.k + row(1, r));
      for (std::size_t p = 0; p < headdim_; ++p)
        s_.v[row(1, r) + p] = args_.input_v[state_at() * scan_.headdim + static_cast<std::int64_t>(p)] *
                              s_.ups[r * kMamba3Room + p];
    }
  }

  /// Head dim p of the states in memory, and what y has of those before the step and of its input.
  template <bool kOneRank>
  void update_row(std::size_t p) {
    const FloatTag tag;
    const std::size_t ranks = kOneRank ? 1 : ranks_;
    float* const states =
        args_.final_ssm + (state_at() * scan_.headdim + static_cast<std::int64_t>(p)) * scan_.dstate;
    load_row<F32>(states, states_, s_.row);
    FloatVec sums[kMamba3Ranks], before[kMamba3Ranks], own[kMamba3Ranks];
    for (std::size_t r = 0; r < ranks; ++r) {
      sums[r] = hn::Zero(tag);
      before[r] = hn::Set(tag, s_.beta * s_.v[row(1, r) + p]);
      own[r] = hn::Set(tag, s_.later[0] * s_.v[row(0, r) + p]);
    }
    for (std::size_t n = 0; n < states_; n += lanes_) {
      auto h = hn::Mul(hn::Set(tag, s_.alpha[0]), hn::Load(tag, s_.row + n));
      for (std::size_t r = 0; r < ranks; ++r)
        h = hn::MulAdd(before[r], hn::Load(tag, s_.k + row(1, r) + n), h);
      for (std::size_t r = 0; r < ranks; ++r)
        sums[r] = hn::MulAdd(h, hn::Load(tag, s_.q + row(0, r) + n), sums[r]);
      for (std::size_t r = 0; r < ranks; ++r) h = hn::MulAdd(own[r], hn::Load(tag, s_.k + row(0, r) + n), h);
      hn::Store(h, tag, s_.row + n);
    }
    store_row<F32>(s_.row, states_, states);
    for (std::size_t r = 0; r < ranks; ++r) s_.y[row(0, r) + p] = hn::GetLane(hn::SumOfLanes(tag, sums[r]));
  }

  /// out = Σ_r norm(y^r + γ·Σ (q^r·k^r')·V^r' + D·V^r)·silu(Z·MIMO_Z^r)·MIMO_Out^r.
  void store_step(std::size_t at, std::int64_t t) {
    const FloatTag tag;
    const auto skip = hn::Set(tag, args_.D == nullptr ? 0.0F : args_.D[head_]);
    if (args_.Z != nullptr) load_row_at(args_.Z, step_at(t) * scan_.headdim, io_, headdim_, s_.z);
    std::fill_n(s_.sum, padded_, 0.0F);
    for (std::size_t r = 0; r < ranks_; ++r) {
      float* const y = s_.y + row(at, r);
      for (std::size_t p = 0; p < padded_; p += lanes_) {
        auto value = hn::MulAdd(skip, hn::Load(tag, s_.v + row(at, r) + p), hn::Load(tag, y + p));
        for (std::size_t other = 0; other < ranks_; ++other)
          value = hn::MulAdd(hn::Set(tag, s_.scores[(at * ranks_ + r) * ranks_ + other]),
                             hn::Load(tag, s_.v + row(at, other) + p), value);
        hn::Store(value, tag, y + p);
      }
      if (args_.norm != nullptr) normalize(y);
      for (std::size_t p = 0; p < padded_; p += lanes_) {
        auto value = hn::Load(tag, y + p);
        if (args_.Z != nullptr)
          value = hn::Mul(value, vector_silu(hn::Mul(hn::Load(tag, s_.z + p),
                                                     hn::Load(tag, s_.gates + r * kMamba3Room + p))));
        hn::Store(value, tag, y + p);
        hn::Store(hn::MulAdd(value, hn::Load(tag, s_.downs + r * kMamba3Room + p), hn::Load(tag, s_.sum + p)),
                  tag, s_.sum + p);
      }
      if (!scan_.reduces_ranks)
        store_row_at(y, headdim_, args_.out, out_at(t, static_cast<std::int64_t>(r)), io_);
    }
    if (scan_.reduces_ranks) store_row_at(s_.sum, headdim_, args_.out, out_at(t, 0), io_);
  }

  void normalize(float* y) const {
    float squares = 0;
    for (std::size_t p = 0; p < headdim_; ++p) squares += y[p] * y[p];
    const float mean = squares / static_cast<float>(headdim_);
    const float inverse = 1.0F / sqrtf(mean + static_cast<float>(kMamba3NormEps));
    for (std::size_t p = 0; p < headdim_; ++p)
      y[p] *= inverse * args_.norm[head_ * scan_.headdim + static_cast<std::int64_t>(p)];
  }

  /// `steps`: of the last tile; 0 where there was none, and the input states are passed on.
  void store_states(std::size_t steps) const {
    float* const ssm = args_.final_ssm + state_at() * scan_.headdim * scan_.dstate;
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_; ++n) ssm[p * states_ + n] = s_.state[n * padded_ + p];
    store_vector_states(steps);
  }
  /// Those of angles, k and V.
  void store_vector_states(std::size_t steps) const {
    const bool passes = steps == 0;
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const std::int64_t at = state_at() * scan_.angles + static_cast<std::int64_t>(i);
      const bool given = passes && args_.input_angle != nullptr;
      args_.final_angle[at] = given ? args_.input_angle[at] : kTurn * (turns_[i] - floorf(turns_[i]));
    }
    for (std::size_t r = 0; r < ranks_; ++r)
      for (std::size_t n = 0; n < states_; ++n) {
        const std::int64_t at = k_state_at(static_cast<std::int64_t>(r)) + static_cast<std::int64_t>(n);
        const float before = args_.input_k == nullptr ? 0.0F : args_.input_k[at];
        args_.final_k[at] = passes ? before : s_.k[row(steps - 1, r) + n];
      }
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const std::int64_t at = state_at() * scan_.headdim + p;
      const float before = args_.input_v == nullptr ? 0.0F : args_.input_v[at];
      const float last = passes ? before : element(args_.V, step_at(end_ - 1) * scan_.headdim + p);
      if (scan_.is_step)
        static_cast<float*>(args_.final_v)[at] = last;
      else
        store(args_.final_v, at, last);
    }
  }

  Mamba3Scratch& s_;
  std::vector<float> turns_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t headdim_ = static_cast<std::size_t>(scan_.headdim);
  std::size_t states_ = static_cast<std::size_t>(scan_.dstate);
  std::size_t ranks_ = static_cast<std::size_t>(scan_.rank);
  std::size_t padded_ = round_up(headdim_, lanes_);
};

void mamba3_head(const Mamba3Args& args, DType dtype, std::int64_t index, std::int64_t head,
                 Mamba3Scratch& scratch) {
  const bool packed = args.cu_seqlens != nullptr;
  const std::int64_t begin = packed ? args.cu_seqlens[index] : 0;
  const std::int64_t end = packed ? args.cu_seqlens[index + 1] : args.scan.seqlen;
  Mamba3Scan scan(args, dtype, scratch);
  args.scan.is_step ? scan.step(index, head) : scan.run(index, packed ? 0 : index, begin, end, head);
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>

namespace ssmbench::simd::mamba3_fwd {
namespace {

HWY_EXPORT(mamba3_head);

/// One thread per element of `scratch`.
void scan(const Mamba3Args& args, DType dtype, std::vector<Mamba3Scratch>& scratch) {
  const auto scan_one = HWY_DYNAMIC_DISPATCH(mamba3_head);
  const std::int64_t heads = args.scan.sequences * args.scan.nheads;
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(scratch.size()))
  for (std::int64_t i = 0; i < heads; ++i)
    scan_one(args, dtype, i / args.scan.nheads, i % args.scan.nheads, scratch[omp_get_thread_num()]);
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const Mamba3Args args = bind_mamba3(problem, tensors);
  const std::int64_t threads =
      std::min<std::int64_t>(omp_get_max_threads(), args.scan.sequences * args.scan.nheads);
  // Shared because a Launch is copyable; launches of one binding must not overlap.
  const auto scratch = std::make_shared<std::vector<Mamba3Scratch>>(threads);
  return [=, dtype = problem.dtype()](void*) { scan(args, dtype, *scratch); };
}

Implementation simd(const char* op, const char* summary) {
  return {.name = "cpu-simd",
          .op = op,
          .device = DeviceKind::cpu,
          .summary = summary,
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = bind};
}

constexpr const char* kOfScans = "head dims across SIMD lanes, heads across threads (Highway)";
const Registration siso(simd("mamba3_siso_fwd", kOfScans));
const Registration mimo(simd("mamba3_mimo_fwd", kOfScans));
const Registration step(simd("mamba3_step", "states across SIMD lanes, heads across threads (Highway)"));

}  // namespace
}  // namespace ssmbench::simd::mamba3_fwd

#endif  // HWY_ONCE
