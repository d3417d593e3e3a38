#pragma once

// The scalar warps of cuda-hopper: Δ, the sums of Δ·A of a chunk, and the decays that products are weighted
// with. A lane has steps 2·lane and 2·lane + 1.
//
// M[t][s] = (C·Bᵀ)[t][s] · Δ_s · decay(s → t) takes one exponential per element. Below the diagonal squares
// of 16 × 16 it is split at the begin k of t's slab: decay(s → k)·decay(k → t), a factor of the column and
// one of the row. Both are at most 1, so that neither overflows, and one underflows only where the product
// does.

#include <type_traits>

#include "kernels/common/hardware.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

__device__ inline float log2_approximate(float x) {
  float logarithm = 0;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(x));
  return logarithm;
}

/// Steps whose Δ is computed from dt. A lane has two of every chunk of its warp, `kStride` steps apart.
template <class Io, int kStride>
class ComputedSteps {
 public:
  /// dt as it is stored: a conversion would wait for it.
  struct Stored {
    Io first, second;
  };
  /// Δ and seq_idx of a lane's two steps.
  struct Lane {
    float delta[2];
    int sequence[2];
    int sequence_before;  ///< of the step before the chunk, to which the state belongs that enters
  };

  __device__ explicit ComputedSteps(const HopperArgs& args) : in_(args.ssd.in) {}

  /// At a chunk of one of an item's tiles.
  __device__ void start(const Item& item, int tile, int chunk, int lane) {
    const int h = item.tile(tile).head;
    A_ = h < 0 ? 0.0F : in_.A[h] * kLog2E;
    bias_ = h < 0 || in_.dt_bias == nullptr ? 0.0F : in_.dt_bias[h];
    b_ = item.b;
    const int step = chunk * kSteps + 2 * lane;
    left_ = h < 0 ? 0 : static_cast<int>(in_.seqlen) - step;
    dt_ = static_cast<const Io*>(in_.dt) + (b_ * in_.seqlen + step) * in_.nheads + h;
  }
  /// The same of a packed sequence.
  __device__ void start(const PackedSegments& sequence, const Item& item, int tile, int chunk, int lane) {
    const int h = item.tile(tile).head;
    A_ = h < 0 ? 0.0F : in_.A[h] * kLog2E;
    bias_ = h < 0 || in_.dt_bias == nullptr ? 0.0F : in_.dt_bias[h];
    const int step = chunk * kSteps + 2 * lane;
    left_ = h < 0 ? 0 : sequence.steps() - step;
    dt_ = static_cast<const Io*>(in_.dt) + (std::int64_t{sequence.begin()} + step) * in_.nheads + h;
  }
  __device__ void advance() {
    left_ -= kStride;
    dt_ += kStride * in_.nheads;
  }

  /// dt of the lane's next two steps.
  __device__ Stored load() const {
    Stored steps{};
    if (left_ > 0) steps.first = dt_[0];
    if (left_ > 1) steps.second = dt_[in_.nheads];
    return steps;
  }

  /// Step sizes of the dt that was loaded last.
  __device__ Lane of(const Stored& dt, int lane) const {
    const StepRule rule{in_.dt_softplus, in_.dt_low, in_.dt_high};
    Lane to{};
    Io next = dt.first;
    constexpr int kAtOnce = kNarrowRange<Io> ? 1 : 2;  // f16 has as much code as the instruction cache holds
#pragma unroll kAtOnce
    for (int i = 0; i < 2; ++i) {
      to.delta[0] = to.delta[1];
      to.delta[1] = left_ > i ? step_size(to_float(next), bias_, rule) : 0.0F;
      next = dt.second;
    }
    if (in_.seq_idx == nullptr) return to;
    const std::int32_t* end = in_.seq_idx + (b_ + 1) * in_.seqlen;  // the last one goes on after it
#pragma unroll
    for (int i = 0; i < 2; ++i) to.sequence[i] = end[-max(left_ - i, 1)];
    const int before = left_ + 2 * lane + 1;
    if (before <= in_.seqlen) to.sequence_before = end[-max(before, 1)];
    return to;
  }
  /// log₂ of a step's decay.
  __device__ float log_decay(const Lane& of, int step) const {
    return of.delta[step] * A_;
  }
  __device__ bool has_sequences() const {
    return in_.seq_idx != nullptr;
  }

 private:
  const SsdInputs& in_;
  int b_ = 0;
  float A_ = 0.0F;
  float bias_ = 0.0F;
  int left_ = 0;            ///< steps from the lane's first one of the next chunk to the sequence's end
  const Io* dt_ = nullptr;  ///< of that step
};

/// Rows with given weights: GivenWeights has what is said of their steps.
template <bool kRanked, bool kPacked, int kStride>
class GivenSteps {
 public:
  struct Stored {
    float log_decay[2], later[2], own[2];
  };
  /// `delta`: what later steps see; decays in bits. There is one sequence.
  struct Lane {
    float delta[2], log_decay[2], own[2];
    int sequence[2]{};
    int sequence_before = 0;
  };

  __device__ explicit GivenSteps(const HopperArgs& args) : in_(args.ssd.in), given_(args.given) {}

  __device__ void start(const Item& item, int tile, int chunk, int lane) {
    row_ = chunk * kSteps + 2 * lane;
    head_ = static_cast<int>(item.b * in_.nheads) + item.tile(tile).head;
  }
  /// The same of a packed sequence.
  __device__ void start(const PackedSegments& sequence, const Item& item, int tile, int chunk, int lane) {
    row_ = sequence.begin() + chunk * kSteps + 2 * lane;
    head_ = item.tile(tile).head;
    end_ = sequence.begin() + sequence.steps();
  }
  __device__ void advance() { row_ += kStride; }
  __device__ Stored load() const {
    Stored steps{};
    const std::int64_t head = head_ * (in_.seqlen >> shift());
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row_ + i >= end()) break;
      const int step = (row_ + i) >> shift();
      // The first row of a step decays, the others are of the same time.
      if (step << shift() == row_ + i) steps.log_decay[i] = given_.log_decay[head + step];
      steps.later[i] = given_.later[head + step];
      steps.own[i] = given_.own[head + step];
    }
    return steps;
  }
  __device__ Lane of(const Stored& from, int /*lane*/) const {
    return {{from.later[0], from.later[1]},
            {from.log_decay[0] * kLog2E, from.log_decay[1] * kLog2E},
            {from.own[0], from.own[1]}};
  }
  __device__ float log_decay(const Lane& of, int step) const {
    return of.log_decay[step];
  }
  __device__ static constexpr bool has_sequences() {
    return false;
  }

 private:
  __device__ int shift() const {
    return kRanked ? given_.rank_shift : 0;
  }
  __device__ std::int64_t end() const {
    if constexpr (kPacked)
      return end_;
    else
      return in_.seqlen;
  }

  const SsdInputs& in_;
  const GivenWeights& given_;
  int row_ = 0;   ///< the lane's first one of the next chunk
  int head_ = 0;  ///< (batch, head): items have one tile, which is there
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<kPacked, int, Nothing> end_{};  ///< of the sequence's rows
};

/// Weights of a lane's two steps for what leaves the chunk. In f16 they are scaled by the power of two that
/// moves the largest of all lanes' to its target (range.h). Those below 2^-14 have fewer bits than their products
/// with x, which may be large: where there are such, each weight gets a power of two of its own.
template <class T>
__device__ __forceinline__ void write_weights(ChunkScalars& to, float2 weights, int lane) {
  using Io = typename T::Io;
  if constexpr (T::kScaled) {
    const float scale = scale_of_lanes(fmaxf(fabsf(weights.x), fabsf(weights.y)), kWeightTarget);
    weights = make_float2(scale * weights.x, scale * weights.y);
    // Below 2^-41 products are less than half of the smallest number.
    const auto is_short = [](float weight) { return fabsf(weight) >= 0x1p-41F && fabsf(weight) < 0x1p-14F; };
    const bool has_powers =
        T::kRotated || __any_sync(kAllLanes, is_short(weights.x) || is_short(weights.y)) != 0;
    if (lane == 0) {
      to.weight_scale = scale;
      to.has_powers = has_powers ? 1 : 0;
    }
    if (has_powers) {
      // The power of two above a weight, as far as f16 has it.
      const auto power_of = [](float weight) {
        return __uint_as_float((__float_as_uint(fmaxf(fabsf(weight), 0x1p-25F)) & 0x7F800000U) + 0x00800000U);
      };
      const float first = power_of(weights.x);
      const float second = power_of(weights.y);
      to.weight_powers[slot_of_pair(lane)] = pack_pair<Io>(first, second);
      weights = make_float2(inverse_of_power(first) * weights.x, inverse_of_power(second) * weights.y);
    }
  }
  const std::uint32_t rounded = pack_pair<Io>(weights.x, weights.y);
  const float2 back = unpack_pair<Io>(rounded);
  to.weights[0][slot_of_pair(lane)] = rounded;
  to.weights[1][slot_of_pair(lane)] = pack_pair<Io>(weights.x - back.x, weights.y - back.y);
}

template <class T>
class ScalarWarp {
  using Io = typename T::Io;

 public:
  __device__ ScalarWarp(const HopperArgs& args, const SharedMemory<T>& shared, int index, int lane)
      : plan_(args.plan), shared_(shared), share_{index}, lane_(lane), steps_(args) {}

  /// What steps are made of is loaded a chunk before they are computed from it, since that takes about as long.
  __device__ void run() {
    const int head = share_.head();
    const auto ring = shared_.scalars(head);
    typename SharedMemory<T>::Scalars::Position at;
    int count = 0;
    for (int i = 0; i < plan_.segments(); ++i) {
      const Segment segment = plan_.segment(i);
      steps_.start(plan_.item(segment), share_.head(), segment.first + share_.until(count), lane_);
      LaneSteps steps = steps_.of(steps_.load(), lane_);
      steps_.advance();
      auto stored = steps_.load();
      for (int chunks = segment.end - segment.first; chunks > 0; --chunks, ++count, at.advance()) {
        if (!share_.has(count)) continue;
        const LaneSums sums = sums_of(steps);
        ring.wait_empty(at);
        write(shared_.scalars_of(head, at), steps, sums);
        hopper::barrier_arrive(ring.full(at));
        steps = steps_.of(stored, lane_);
        steps_.advance();
        stored = steps_.load();
      }
    }
  }

  /// The same of packed sequences. (With one loop for both, registers of run() are dealt out differently.)
  __device__ void run(SegmentsOf<T> segments) {
    const int head = share_.head();
    const auto ring = shared_.scalars(head);
    typename SharedMemory<T>::Scalars::Position at;
    int count = 0;
    for (; !segments.done(); segments.advance()) {
      const Segment segment = segments.segment();
      steps_.start(segments, segments.item(segment), share_.head(), segment.first + share_.until(count),
                   lane_);
      LaneSteps steps = steps_.of(steps_.load(), lane_);
      steps_.advance();
      [[maybe_unused]] typename Steps::Stored stored;
      if constexpr (!kTight) stored = steps_.load();
      for (int chunks = segment.end - segment.first; chunks > 0; --chunks, ++count, at.advance()) {
        if (!share_.has(count)) continue;
        const LaneSums sums = sums_of(steps);
        ring.wait_empty(at);
        write(shared_.scalars_of(head, at), steps, sums);
        hopper::barrier_arrive(ring.full(at));
        if constexpr (kTight)
          steps = steps_.of(steps_.load(), lane_);
        else
          steps = steps_.of(stored, lane_);
        steps_.advance();
        if constexpr (!kTight) stored = steps_.load();
      }
    }
  }

 private:
  static constexpr int kChunks = T::kPass == Pass::outputs ? kOutputStride<T::kHeads> : kPartsStride;
  static constexpr int kStride = kChunks * kSteps;  ///< from a chunk of this warp to its next
  static constexpr int kSlabLanes = 8;
  static constexpr bool kTight =
      T::kRotated && T::kPacked;  ///< no registers are left for steps a chunk ahead
  using Steps =
      std::conditional_t<T::kGiven, GivenSteps<T::kRanked, T::kPacked, kStride>, ComputedSteps<Io, kStride>>;
  using LaneSteps = typename Steps::Lane;

  /// Sums of Δ·A·log₂e.
  struct LaneSums {
    float within[2];  ///< from the slab's first step to the lane's
    float before[4];  ///< from the chunk's first step to each slab
    float end;        ///< of the chunk
  };

  __device__ LaneSums sums_of(const LaneSteps& of) const {
    const float second = steps_.log_decay(of, 1);
    LaneSums to;
    to.within[1] = steps_.log_decay(of, 0) + second;
#pragma unroll
    for (int distance = 1; distance < kSlabLanes; distance *= 2) {
      const float before = __shfl_up_sync(kAllLanes, to.within[1], distance, kSlabLanes);
      if (lane_ % kSlabLanes >= distance) to.within[1] += before;
    }
    to.within[0] = to.within[1] - second;
    to.before[0] = 0.0F;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float sum = to.before[k] + __shfl_sync(kAllLanes, to.within[1], kSlabLanes * k + kSlabLanes - 1);
      if (k < 3)
        to.before[k + 1] = sum;
      else
        to.end = sum;
    }
    return to;
  }

  __device__ void write(ChunkScalars& to, const LaneSteps& of, const LaneSums& sums) const {
    // Again where no register is left to keep the places in.
    const int lane = T::kRotated ? group_thread() % 32 : lane_;
    const int slab = lane / kSlabLanes;
    [[maybe_unused]] const int slot = slot_of_step(2 * lane % 16);
    const float before =
        slab < 2 ? (slab == 0 ? 0.0F : sums.before[1]) : (slab == 2 ? sums.before[2] : sums.before[3]);
    const float2 sum = make_float2(before + sums.within[0], before + sums.within[1]);
    if constexpr (T::kPass == Pass::outputs) {
      write_rows(to, of, sums, sum, lane);
      *reinterpret_cast<float2*>(to.diagonal + 16 * slab + slot) =
          make_float2(sum.x - log2_approximate(of.delta[0]), sum.y - log2_approximate(of.delta[1]));
#pragma unroll
      for (int k = 1; k < 4; ++k) {
        const float2 factors = weights_until(sums.before[k], kSlabLanes * k - 1, of, sum);
        if (slab < k) *reinterpret_cast<float2*>(to.below[square_below(k, slab)] + slot) = factors;
      }
    }
    write_weights<T>(to, weights_until(sums.end, 31, of, sum), lane);
    const bool carried = of.sequence[1] == of.sequence_before;
    if (lane == 31) to.decay = carried ? exp2_approximate(sum.y) : 0.0F;
  }

  /// Decays from the slab's and from the chunk's begin to the lane's steps, 0 from another sequence.
  __device__ void write_rows(ChunkScalars& to, const LaneSteps& of, const LaneSums& sums, float2 sum,
                             int lane) const {
    RowScalars rows[2] = {
        {sum.x, exp2_approximate(sums.within[0]), exp2_approximate(sum.x), (2U << 2 * lane_ % 16) - 1},
        {sum.y, exp2_approximate(sums.within[1]), exp2_approximate(sum.y), (4U << 2 * lane_ % 16) - 1}};
    if constexpr (T::kGiven) {
      rows[0].mask = __float_as_uint(of.own[0]);
      rows[1].mask = __float_as_uint(of.own[1]);
    }
    if (steps_.has_sequences()) {
      const int before_slab = lane_ / kSlabLanes * kSlabLanes - 1;
      const int shuffled = __shfl_sync(kAllLanes, of.sequence[1], max(before_slab, 0));
      const int border = before_slab < 0 ? of.sequence_before : shuffled;
      const int before = __shfl_up_sync(kAllLanes, of.sequence[1], 1);
      const bool begins = lane_ % kSlabLanes == 0 || of.sequence[0] != before;
      const unsigned even = __ballot_sync(kAllLanes, begins);
      const unsigned odd = __ballot_sync(kAllLanes, of.sequence[1] != of.sequence[0]);
      const int last_even = 31 - __clz(static_cast<int>(even & (2U << lane_) - 1));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (of.sequence[i] != border) rows[i].within = 0.0F;
        if (of.sequence[i] != of.sequence_before) rows[i].carry = 0.0F;
        const int last_odd = 31 - __clz(static_cast<int>(odd & ((i == 0 ? 1U : 2U) << lane_) - 1));
        rows[i].mask -= (1U << max(2 * last_even, 2 * last_odd + 1) % 16) - 1;
      }
    }
    to.rows[2 * lane] = rows[0];
    to.rows[2 * lane + 1] = rows[1];
  }

  /// Δ·(decay to the end of the steps of `lane`) of this lane's steps, 0 where that is another sequence.
  __device__ float2 weights_until(float end, int lane, const LaneSteps& of, float2 sum) const {
    float2 weights =
        make_float2(of.delta[0] * exp2_approximate(end - sum.x), of.delta[1] * exp2_approximate(end - sum.y));
    if (steps_.has_sequences()) {
      const int last = __shfl_sync(kAllLanes, of.sequence[1], lane);
      if (of.sequence[0] != last) weights.x = 0.0F;
      if (of.sequence[1] != last) weights.y = 0.0F;
    }
    return weights;
  }

  BlockPlan<T::kCluster> plan_;
  SharedMemory<T> shared_;
  Share<T::kHeads, kChunks> share_;
  int lane_;
  Steps steps_;
};

}  // namespace ssmbench::ssd_hopper
