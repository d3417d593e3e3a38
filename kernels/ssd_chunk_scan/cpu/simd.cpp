// cpu-simd: the recurrence with vectors over head dims, threads share out the heads of all sequences. Time is
// cut into tiles whose inputs are converted to f32 once; every pair of vectors of head dims then walks over
// the tile with its states, [state][head dim], in a first-level cache (128 states of 32 head dims: 16 KB).
//
//   lane p:   h[n][p] = a_t·h[n][p] + (Δ_t·x_t[p])·B_t[n]      for n = 0, 1, …: B and C are broadcast
//             y_t[p] += C_t[n]·h[n][p]                          two sums, for even and odd n, against latency
//
// A head is computed by one thread, so results do not depend on the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd_chunk_scan/cpu/simd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/cpu/scans.h"
#include "kernels/ssd_chunk_scan/cpu/simd.h"
#include "kernels/ssd_chunk_scan/sequences.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// One state's step for `kVectors` vectors of head dims.
template <std::size_t kVectors>
HWY_INLINE void advance_state(FloatVec decay, const FloatVec (&input)[2], FloatVec B, FloatVec C,
                              float* state, FloatVec (&sum)[2]) {
  const FloatTag tag;
  for (std::size_t v = 0; v < kVectors; ++v) {
    float* at = state + v * hn::Lanes(tag);
    const auto h = hn::MulAdd(decay, hn::Load(tag, at), hn::Mul(input[v], B));
    hn::Store(h, tag, at);
    sum[v] = hn::MulAdd(C, h, sum[v]);
  }
}

template <class Io>
class HeadScan {
 public:
  HeadScan(const SsdArgs& args, const SsdSequence& sequence, std::int64_t index, std::int64_t head,
           SsdScratch& scratch)
      : args_(args), in_(args.in), sequence_(sequence), index_(index), head_(head), s_(scratch) {}

  void run() {
    load_states();
    for (std::int64_t begin = 0; begin < sequence_.steps; begin += kSsdTile) {
      const auto steps = static_cast<std::size_t>(std::min<std::int64_t>(kSsdTile, sequence_.steps - begin));
      for (std::size_t t = 0; t < steps; ++t) load_step(t, begin + static_cast<std::int64_t>(t));
      std::size_t p = 0;
      for (; p + lanes_ < padded_; p += 2 * lanes_) scan_tile<2>(p, steps);
      if (p < padded_) scan_tile<1>(p, steps);
      for (std::size_t t = 0; t < steps && args_.out != nullptr; ++t)
        store_step(t, begin + static_cast<std::int64_t>(t));
    }
    if (args_.final_states != nullptr) store_states();
  }

 private:
  using Storage = typename Io::Storage;

  std::int64_t step_at(std::int64_t t) const { return sequence_.begin + t; }
  std::int64_t row_at(std::int64_t t) const { return (step_at(t) * in_.nheads + head_) * in_.headdim; }

  void load_states() {
    std::fill_n(s_.state, states_ * padded_, 0.0F);
    if (in_.initial_states == nullptr) return;
    const float* from = in_.initial_states + (index_ * in_.nheads + head_) * in_.headdim * in_.dstate;
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_; ++n) s_.state[n * padded_ + p] = from[p * states_ + n];
  }

  void store_states() const {
    float* to = args_.final_states + (index_ * in_.nheads + head_) * in_.headdim * in_.dstate;
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_; ++n) to[p * states_ + n] = s_.state[n * padded_ + p];
  }

  void load_step(std::size_t at, std::int64_t t) {
    const std::int64_t group = head_ / in_.heads_per_group;
    const std::int64_t projection = (step_at(t) * in_.groups + group) * in_.dstate;
    load_row<Io>(static_cast<const Storage*>(in_.B) + projection, states_, s_.B + at * kSsdStates);
    load_row<Io>(static_cast<const Storage*>(in_.C) + projection, states_, s_.C + at * kSsdStates);
    load_row<Io>(static_cast<const Storage*>(in_.x) + row_at(t), headdim_, s_.x + at * kSsdStates);
    float delta = Io::load(static_cast<const Storage*>(in_.dt)[step_at(t) * in_.nheads + head_]);
    if (in_.dt_bias != nullptr) delta += in_.dt_bias[head_];
    if (in_.dt_softplus) delta = softplus(delta);
    s_.delta[at] = std::clamp(delta, in_.dt_low, in_.dt_high);
    s_.decay[at] = expf(s_.delta[at] * in_.A[head_]);
    s_.starts[at] = in_.seq_idx != nullptr && t > 0 && in_.seq_idx[step_at(t)] != in_.seq_idx[step_at(t - 1)];
  }

  /// Head dims from p on, one or two vectors of them.
  template <std::size_t kVectors>
  void scan_tile(std::size_t p, std::size_t steps) {
    const FloatTag tag;
    for (std::size_t t = 0; t < steps; ++t) {
      if (s_.starts[t])
        for (std::size_t n = 0; n < states_; ++n)
          std::fill_n(s_.state + n * padded_ + p, kVectors * lanes_, 0.0F);
      const float* x = s_.x + t * kSsdStates + p;
      const float* B = s_.B + t * kSsdStates;
      const float* C = s_.C + t * kSsdStates;
      const auto decay = hn::Set(tag, s_.decay[t]);
      const auto delta = hn::Set(tag, s_.delta[t]);
      const auto zero = hn::Zero(tag);
      const std::size_t second = kVectors == 2 ? lanes_ : 0;
      const FloatVec input[2] = {hn::Mul(delta, hn::Load(tag, x)), hn::Mul(delta, hn::Load(tag, x + second))};
      FloatVec even[2] = {zero, zero};
      FloatVec odd[2] = {zero, zero};
      std::size_t n = 0;
      float* state = s_.state + p;
      for (; n + 2 <= states_; n += 2, state += 2 * padded_) {
        advance_state<kVectors>(decay, input, hn::Set(tag, B[n]), hn::Set(tag, C[n]), state, even);
        advance_state<kVectors>(decay, input, hn::Set(tag, B[n + 1]), hn::Set(tag, C[n + 1]), state + padded_,
                                odd);
      }
      if (n < states_)
        advance_state<kVectors>(decay, input, hn::Set(tag, B[n]), hn::Set(tag, C[n]), state, even);
      float* y = s_.y + t * kSsdStates + p;
      hn::Store(hn::Add(even[0], odd[0]), tag, y);
      if constexpr (kVectors == 2) hn::Store(hn::Add(even[1], odd[1]), tag, y + lanes_);
    }
  }

  /// out = (y + D·x)·silu(z).
  void store_step(std::size_t at, std::int64_t t) {
    const FloatTag tag;
    float* y = s_.y + at * kSsdStates;
    const float* x = s_.x + at * kSsdStates;
    if (in_.z != nullptr) load_row<Io>(static_cast<const Storage*>(in_.z) + row_at(t), headdim_, s_.z);
    for (std::size_t p = 0; p < padded_; p += lanes_) {
      auto value = hn::Load(tag, y + p);
      if (in_.D != nullptr) value = hn::MulAdd(skip(p), hn::Load(tag, x + p), value);
      if (in_.z != nullptr) value = hn::Mul(value, vector_silu(hn::Load(tag, s_.z + p)));
      hn::Store(value, tag, y + p);
    }
    store_row<Io>(y, headdim_, static_cast<Storage*>(args_.out) + row_at(t));
  }

  FloatVec skip(std::size_t p) const {
    const FloatTag tag;
    if (!in_.skip_per_headdim) return hn::Set(tag, in_.D[head_]);
    alignas(64) float row[kMaxLanes] = {};
    load_row<F32>(in_.D + head_ * in_.headdim + static_cast<std::int64_t>(p), std::min(lanes_, headdim_ - p),
                  row);
    return hn::Load(tag, row);
  }

  const SsdArgs& args_;
  const SsdInputs& in_;
  SsdSequence sequence_;
  std::int64_t index_, head_;  ///< of the sequence among all
  SsdScratch& s_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t headdim_ = static_cast<std::size_t>(in_.headdim);
  std::size_t states_ = static_cast<std::size_t>(in_.dstate);
  std::size_t padded_ = round_up(headdim_, lanes_);
};

void scan_head(const SsdArgs& args, DType dtype, const SsdSequence& sequence, std::int64_t index,
               std::int64_t head, SsdScratch& scratch) {
  with_io_type(dtype, [&](auto io) { HeadScan<decltype(io)>(args, sequence, index, head, scratch).run(); });
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>
#include <vector>

namespace ssmbench::simd {
namespace {

HWY_EXPORT(scan_head);

/// One thread per element of `scratch`.
void scan(const SsdArgs& args, const SsdSequenceTable& sequences, DType dtype,
          std::vector<SsdScratch>& scratch) {
  const auto scan_one = HWY_DYNAMIC_DISPATCH(scan_head);
  const std::int64_t heads = sequences.count * args.in.nheads;
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(scratch.size()))
  for (std::int64_t i = 0; i < heads; ++i)
    scan_one(args, dtype, sequences.at(i / args.in.nheads), i / args.in.nheads, i % args.in.nheads,
             scratch[omp_get_thread_num()]);
}

/// One for each thread. Shared because a Launch is copyable; launches of one binding must not overlap.
std::shared_ptr<std::vector<SsdScratch>> scratch_for(std::int64_t heads) {
  return std::make_shared<std::vector<SsdScratch>>(std::min<std::int64_t>(omp_get_max_threads(), heads));
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const SsdArgs args = bind_ssd(problem, tensors);
  const SsdSequenceTable sequences = bind_ssd_sequences(problem, tensors);
  const auto scratch = scratch_for(sequences.count * args.in.nheads);
  return [=, dtype = problem.dtype()](void*) { scan(args, sequences, dtype, *scratch); };
}

const Registration registration{{.name = "cpu-simd",
                                 .op = "ssd_chunk_scan_fwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "head dims across SIMD lanes, heads across threads (Highway)",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd

namespace ssmbench {

SsdCall simd_ssd_scan(DType io, std::int64_t heads) {
  return [io, scratch = simd::scratch_for(heads)](const SsdArgs& args) {
    const SsdSequenceTable sequences{.count = args.in.batch, .seqlen = args.in.seqlen, .cu_seqlens = nullptr};
    simd::scan(args, sequences, io, *scratch);
  };
}

}  // namespace ssmbench

#endif  // HWY_ONCE
