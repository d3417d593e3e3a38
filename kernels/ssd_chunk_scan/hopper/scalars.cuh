#pragma once

// The scalar warps of cuda-hopper: Δ, the sums of Δ·A of a chunk, and the decays that products are weighted
// with. A lane has steps 2·lane and 2·lane + 1.
//
// M[t][s] = (C·Bᵀ)[t][s] · Δ_s · decay(s → t) takes one exponential per element. Below the diagonal squares of
// 16 × 16 it is split at the begin k of t's slab: decay(s → k)·decay(k → t), a factor of the column and one of
// the row. Both are at most 1, so that neither overflows, and one underflows only where the product does.

#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd/delta.cuh"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ inline float log2_approximate(float x) {
  float logarithm = 0;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(x));
  return logarithm;
}

/// dt (not yet Δ) and seq_idx of a lane's two steps; loaded a chunk early, since it waits for memory.
struct LaneSteps {
  float dt[2];
  int sequence[2];
  int sequence_before;  ///< of the step before the chunk, to which the state belongs that enters
};

template <class T>
class ScalarWarp {
  using Io = typename T::Io;

 public:
  __device__ ScalarWarp(const HopperArgs& args, const SharedMemory<T>& shared, int index, int lane)
      : in_(args.ssd.in), plan_(args.plan), shared_(shared), share_{index}, lane_(lane) {}

  __device__ void run() {
    const int head = share_.head();
    const auto ring = shared_.scalars(head);
    typename SharedMemory<T>::Scalars::Position at;
    int count = 0;
    for (int i = 0; i < plan_.pieces(blockIdx.x); ++i) {
      const Piece piece = plan_.piece(blockIdx.x, i);
      start(plan_.item(piece.item), piece.first + (share_.has(count) ? 0 : 1));
      LaneSteps next = load();
      for (int chunks = piece.end - piece.first; chunks > 0; --chunks, ++count, at.advance()) {
        if (!share_.has(count)) continue;
        const LaneSteps steps = next;
        const LaneDeltas deltas = deltas_of(steps);
        advance();
        next = load();
        ring.wait_empty(at);
        write(shared_.scalars_of(head, at), steps, deltas);
        warp_arrive(ring.full(at), lane_);
      }
    }
  }

 private:
  static constexpr int kStride = (3 - T::kHeads) * kSteps;  ///< from a chunk of this warp to its next

  struct LaneDeltas {
    float delta[2];
    float sum[2];  ///< of Δ·A·log₂e, from the chunk's first step on
  };

  __device__ void start(const Item& item, int chunk) {
    const int h = item.tile(share_.head()).head;
    A_ = h < 0 ? 0.0F : in_.A[h] * kLog2E;
    bias_ = h < 0 || in_.dt_bias == nullptr ? 0.0F : in_.dt_bias[h];
    b_ = item.b;
    const int step = chunk * kSteps + 2 * lane_;
    left_ = h < 0 ? 0 : static_cast<int>(in_.seqlen) - step;
    dt_ = static_cast<const Io*>(in_.dt) + (b_ * in_.seqlen + step) * in_.nheads + h;
  }
  __device__ void advance() {
    left_ -= kStride;
    dt_ += kStride * in_.nheads;
  }

  __device__ LaneSteps load() const {
    LaneSteps steps{};
    if (left_ > 0) steps.dt[0] = to_float(dt_[0]);
    if (left_ > 1) steps.dt[1] = to_float(dt_[in_.nheads]);
    if (in_.seq_idx == nullptr) return steps;
    const std::int32_t* end = in_.seq_idx + (b_ + 1) * in_.seqlen;  // the last one goes on after it
#pragma unroll
    for (int i = 0; i < 2; ++i) steps.sequence[i] = end[-max(left_ - i, 1)];
    const int before = left_ + 2 * lane_ + 1;
    if (before <= in_.seqlen) steps.sequence_before = end[-max(before, 1)];
    return steps;
  }

  __device__ LaneDeltas deltas_of(const LaneSteps& steps) const {
    const StepRule rule{in_.dt_softplus, in_.dt_low, in_.dt_high};
    LaneDeltas to;
#pragma unroll
    for (int i = 0; i < 2; ++i) to.delta[i] = left_ > i ? step_size(steps.dt[i], bias_, rule) : 0.0F;
    const float first = to.delta[0] * A_;
    float total = first + to.delta[1] * A_;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float before = __shfl_up_sync(kAllLanes, total, distance);
      if (lane_ >= distance) total += before;
    }
    const float before = __shfl_up_sync(kAllLanes, total, 1);
    to.sum[0] = lane_ == 0 ? first : before + first;
    to.sum[1] = total;
    return to;
  }

  /// First step of the slab that is in the sequence of a lane's step i.
  __device__ int run_start(const LaneSteps& steps, int i) const {
    if (in_.seq_idx == nullptr) return 0;
    const int before = __shfl_up_sync(kAllLanes, steps.sequence[1], 1);
    const bool slab_begins = lane_ % 8 == 0;
    const unsigned even = __ballot_sync(kAllLanes, slab_begins || steps.sequence[0] != before);
    const unsigned odd = __ballot_sync(kAllLanes, steps.sequence[1] != steps.sequence[0]);
    const int last_even = 31 - __clz(static_cast<int>(even & (2U << lane_) - 1));
    const int last_odd = 31 - __clz(static_cast<int>(odd & ((i == 0 ? 1U : 2U) << lane_) - 1));
    return max(2 * last_even, 2 * last_odd + 1) % 16;
  }

  __device__ void write(ChunkScalars& to, const LaneSteps& steps, const LaneDeltas& of) const {
    write_rows(to, steps, of);
    const int slot = slot_of_step(2 * lane_ % 16);
    const int slab = lane_ / 8;
    *reinterpret_cast<float2*>(to.diagonal + 16 * slab + slot) =
        make_float2(of.sum[0] - log2_approximate(of.delta[0]), of.sum[1] - log2_approximate(of.delta[1]));
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      const float2 factors = weights_until(8 * k - 1, steps, of);
      if (slab < k) *reinterpret_cast<float2*>(to.below[square_below(k, slab)] + slot) = factors;
    }
    const float2 weights = weights_until(31, steps, of);
    to.weights[slot_of_pair(lane_)] = pack_pair<Io>(weights.x, weights.y);
    if (lane_ == 31)
      to.decay = steps.sequence[1] == steps.sequence_before ? exp2_approximate(of.sum[1]) : 0.0F;
  }

  __device__ void write_rows(ChunkScalars& to, const LaneSteps& steps, const LaneDeltas& of) const {
    const int last_before = lane_ / 8 * 8 - 1;  // lane of the last step before this lane's slab
    const float sum = __shfl_sync(kAllLanes, of.sum[1], max(last_before, 0));
    const int sequence = __shfl_sync(kAllLanes, steps.sequence[1], max(last_before, 0));
    const float sum_before = last_before < 0 ? 0.0F : sum;
    const int sequence_before = last_before < 0 ? steps.sequence_before : sequence;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int step = 2 * lane_ + i;
      const bool carried = steps.sequence[i] == steps.sequence_before;
      const bool within = steps.sequence[i] == sequence_before;
      to.rows[step] = {of.sum[i], within ? exp2_approximate(of.sum[i] - sum_before) : 0.0F,
                       carried ? exp2_approximate(of.sum[i]) : 0.0F,
                       (2U << step % 16) - (1U << run_start(steps, i))};
    }
  }

  /// Δ·(decay to the end of a lane's steps) of this lane's steps, 0 where that is another sequence.
  __device__ float2 weights_until(int lane, const LaneSteps& steps, const LaneDeltas& of) const {
    const float end = __shfl_sync(kAllLanes, of.sum[1], lane);
    const int sequence = __shfl_sync(kAllLanes, steps.sequence[1], lane);
    return {steps.sequence[0] == sequence ? of.delta[0] * exp2_approximate(end - of.sum[0]) : 0.0F,
            steps.sequence[1] == sequence ? of.delta[1] * exp2_approximate(end - of.sum[1]) : 0.0F};
  }

  const SsdInputs& in_;
  const Plan& plan_;
  SharedMemory<T> shared_;
  Share<T::kHeads> share_;
  int lane_;
  int b_ = 0;
  float A_ = 0.0F;
  float bias_ = 0.0F;
  int left_ = 0;           ///< steps from the lane's first one of the next chunk to the sequence's end
  const Io* dt_ = nullptr;  ///< of that step
};

}  // namespace ssmbench::ssd_hopper
