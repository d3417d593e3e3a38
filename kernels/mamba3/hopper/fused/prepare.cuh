#pragma once

// The first warpgroup of the fused MIMO scan. Warp 0 loads (one thread, TMA); the others make what the inputs
// of a chunk's steps are used as:
//
//   warps 1, 3  sines and cosines: of 16 pairs at a time, a lane has one, of half of the steps; angles are
//               32-bit integers (phase.h), and that before a chunk stays in a register
//   warp 2      V of ranks, rounded; decays and weights of steps

#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/multiply_pairs.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/hopper/fused/block.cuh"
#include "kernels/mamba3/hopper/increments.h"
#include "kernels/mamba3/phase.h"
#include "kernels/ssd_chunk_scan/scaled.cuh"

namespace ssmbench::mamba3_fused {

/// By one thread. V, Z and rates, which come from memory and are needed first, a chunk ahead of Q and K,
/// which other heads' blocks have brought to the L2.
template <class T>
__device__ void load_inputs(const FusedArgs& args, const SharedMemory<T>& shared, const Head& at) {
  typename SharedMemory<T>::StepInputs::Position steps_at;
  typename SharedMemory<T>::K::Position rows_at;
  const auto load_steps = [&](int chunk) {
    if (!has_chunk(args, chunk)) return;
    const auto ring = shared.step_inputs();
    ring.wait_empty(steps_at);
    const std::uint32_t full = ring.full(steps_at);
    const hopper::TileOrigin from{{0, at.head, chunk * kSteps, at.batch}};
    hopper::barrier_arrive_expect(full, (T::kGated ? 2 : 1) * kStepTile + T::Layout::kRates);
    hopper::load_tile(shared.rates(steps_at), args.rates, from, full);
    hopper::load_tile(shared.v_tile(steps_at), args.v, from, full);
    if constexpr (T::kGated) hopper::load_tile(shared.z_tile(steps_at), args.z, from, full);
    steps_at.advance();
  };
  const auto load_rows = [&](const CUtensorMap& map, std::uint32_t tile, int chunk, std::uint32_t full) {
    hopper::barrier_arrive_expect(full, kOperand);
    for (int half = 0; half < 2; ++half)
      hopper::load_tile(tile + half * kTile, map,
                        hopper::TileOrigin{{half * kHalf, at.group, chunk * kRows, at.batch}}, full);
  };
  load_steps(0);
  for (int chunk = 0; has_chunk(args, chunk); ++chunk, rows_at.advance()) {
    load_steps(chunk + 1);
    shared.k().wait_empty(rows_at);
    load_rows(args.k, shared.k_tile(rows_at), chunk, shared.k().full(rows_at));
    shared.q().wait_empty(rows_at);
    load_rows(args.q, shared.q_tile(rows_at), chunk, shared.q().full(rows_at));
  }
}

/// 8 head dims of a rank: V times MIMO_V, of which `first` has what is rounded and `second` what that leaves,
/// or in f16, which has no room for that, the factors of four head dims each.
template <class Io>
__device__ __forceinline__ uint4 raised(const uint4& v, const uint4& first, const uint4& second) {
  if constexpr (kNarrowRange<Io>) {
    const auto times = [](std::uint32_t pair, std::uint32_t a, std::uint32_t b) {
      const float2 two = unpack_pair<Io>(pair);
      return pack_pair<Io>(two.x * __uint_as_float(a), two.y * __uint_as_float(b));
    };
    return {times(v.x, first.x, first.y), times(v.y, first.z, first.w), times(v.z, second.x, second.y),
            times(v.w, second.z, second.w)};
  } else {
    return {multiply_pairs<Io>(v.x, first.x, second.x), multiply_pairs<Io>(v.y, first.y, second.y),
            multiply_pairs<Io>(v.z, first.z, second.z), multiply_pairs<Io>(v.w, first.w, second.w)};
  }
}

/// V of ranks, rounded, by a warp: a lane has 8 head dims of every fourth step.
template <class T>
__device__ __forceinline__ void raise_steps(const SharedMemory<T>& shared, int lane, std::uint32_t v_tile,
                                            std::uint32_t x_tile) {
  constexpr int kVectors = kHeaddim / 8;  // of a row
  constexpr int kLaneSteps = kSteps * kVectors / 32;
  const int vector = lane % kVectors;
  const auto step = [&](int i) { return lane / kVectors + i * (32 / kVectors); };
  uint4 v[kLaneSteps];
#pragma unroll
  for (int i = 0; i < kLaneSteps; ++i)
    v[i] = *shared.template at_address<uint4>(v_tile + step(i) * 128 + ((vector ^ step(i) & 7) << 4));
  const auto* const factors = shared.template at_address<uint4>(shared.v_factors()) + vector;
#pragma unroll
  for (int rank = 0; rank < kRank; ++rank) {
    const uint4 high = factors[2 * kVectors * rank];
    const uint4 low = factors[2 * kVectors * rank + kVectors];
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      const int row = step(i) * kRank + rank;
      *shared.template at_address<uint4>(x_tile + row * 128 + ((vector ^ row & 7) << 4)) =
          raised<typename T::Io>(v[i], high, low);
    }
  }
  hopper::fence_async_proxy();
}

/// One of the warps that make sines and cosines.
template <class T>
class AngleWarp {
  static constexpr int kUnitPairs = 16;
  static constexpr int kUnits = T::kPairs / kUnitPairs / kAngleWarps;
  static constexpr int kLaneSteps = kSteps / 2;

 public:
  __device__ AngleWarp(const FusedArgs& args, const SharedMemory<T>& shared, const Head& at, int index,
                       int lane)
      : args_(args), scan_(args.in.scan), shared_(shared), at_(at), index_(index), lane_(lane) {
    dt_ = load_dt(0);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int pair = pair_of(unit);
      angle_[unit] = args.in.input_angle == nullptr || pair >= scan_.angles
                         ? 0U
                         : phase_of_radians(args.in.input_angle[state() * scan_.angles + pair]);
    }
  }

  __device__ void run() {
    typename SharedMemory<T>::StepInputs::Position inputs_at;
    typename SharedMemory<T>::Made::Position made_at;
    for (int chunk = 0; has_chunk(args_, chunk); ++chunk, inputs_at.advance(), made_at.advance()) {
      shared_.step_inputs().wait_full(inputs_at);
      shared_.made().wait_empty(made_at);
      const float dt = dt_;
      if (has_chunk(args_, chunk + 1)) dt_ = load_dt(chunk + 1);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
        turn_unit(unit, dt, shared_.rates(inputs_at), shared_.turns(made_at));
      warp_arrive(shared_.step_inputs().empty(inputs_at), lane_);
      hopper::barrier_arrive(shared_.made().full(made_at));
    }
    if (args_.in.final_angle != nullptr) store_final();
  }

 private:
  __device__ int pair_of(int unit) const {
    return (kAngleWarps * unit + index_) * kUnitPairs + lane_ % kUnitPairs;
  }
  /// The first of the lane's steps of a chunk.
  __device__ int first_step() const {
    return lane_ / kUnitPairs * kLaneSteps;
  }
  /// Of (B, H).
  __device__ std::int64_t state() const {
    return at_.batch * scan_.nheads + at_.head;
  }

  /// DT of the chunk's step `lane % 16`; 0 past the end.
  __device__ float load_dt(int chunk) const {
    const int t = chunk * kSteps + lane_ % kSteps;
    return t < scan_.seqlen ? args_.in.dt[state() * scan_.seqlen + t] : 0.0F;
  }

  /// Sines and cosines are the hardware's, 2^-21 off on [−π, π].
  __device__ static float2 cosine_sine(std::uint32_t angle) {
    const float radians = static_cast<float>(static_cast<std::int32_t>(angle)) * (kTurnInRadians * 0x1p-32F);
    return {__cosf(radians), __sinf(radians)};
  }

  /// Rates are 0 past the end, and of pairs that there are not.
  __device__ __forceinline__ void turn_unit(int unit, float dt, std::uint32_t rates, std::uint32_t turns) {
    const int first = first_step() * T::kPairs + pair_of(unit);
    const float* const from = shared_.template at_address<float>(rates) + first;
    float2* const to = shared_.template at_address<float2>(turns) + first;
    const bool wide = __any_sync(kAllLanes, !(dt <= 1.0F));  // more than half a turn a step
    std::uint32_t sum = 0;
    const auto step_sum = [&](int i) {
      const float scale = 0x1p31F * __shfl_sync(kAllLanes, dt, first_step() + i);
      float turn = scale * mamba3_hopper::fast_tanh(from[i * T::kPairs]);  // 2^-32 of one
      if (wide) turn -= 0x1p32F * rintf(0x1p-32F * turn);
      return sum += static_cast<std::uint32_t>(__float2int_rn(turn));
    };
    std::uint32_t sums[kLaneSteps];
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) sums[i] = step_sum(i);
    const std::uint32_t of_first = __shfl_sync(kAllLanes, sum, lane_ % kUnitPairs);
    const std::uint32_t of_rest = __shfl_sync(kAllLanes, sum, lane_ % kUnitPairs + kUnitPairs);
    const std::uint32_t before = angle_[unit] + (first_step() == 0 ? 0U : of_first);
    angle_[unit] += of_first + of_rest;
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) to[i * T::kPairs] = cosine_sine(before + sums[i]);
  }

  /// The angles, and k of the last step, not rounded. Lanes of one half have two ranks each of the pairs;
  /// those that do not turn are shared out among both warps.
  __device__ void store_final() const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int pair = pair_of(unit);
      if (lane_ < kUnitPairs && pair < scan_.angles)
        args_.in.final_angle[state() * scan_.angles + pair] = radians_of_phase(angle_[unit]);
      store_final_k(pair, cosine_sine(angle_[unit]));
    }
    for (int pair = T::kPairs + index_ * kUnitPairs + lane_ % kUnitPairs; pair < kHalf;
         pair += kAngleWarps * kUnitPairs)
      store_final_k(pair, {1.0F, 0.0F});
  }
  __device__ void store_final_k(int pair, float2 turn) const {
    const std::int64_t step = (at_.batch + 1) * scan_.seqlen - 1;
    for (int rank = lane_ / kUnitPairs; rank < kRank; rank += 32 / kUnitPairs) {
      const std::int64_t row = ((step * kRank + rank) * scan_.groups + at_.group) * kStates + pair;
      const std::int64_t bias = (std::int64_t{at_.head} * kRank + rank) * kStates + pair;
      const auto* const k = static_cast<const typename T::Io*>(args_.in.K);
      const float first = to_float(k[row]) + args_.in.K_bias[bias];
      const float second = to_float(k[row + kHalf]) + args_.in.K_bias[bias + kHalf];
      float* const to = args_.in.final_k +
                        ((std::int64_t{at_.batch} * kRank + rank) * scan_.nheads + at_.head) * kStates + pair;
      to[0] = first * turn.x - second * turn.y;
      to[kHalf] = first * turn.y + second * turn.x;
    }
  }

  const FusedArgs& args_;
  const Mamba3& scan_;
  SharedMemory<T> shared_;
  Head at_;
  int index_, lane_;
  float dt_;                     ///< of the next chunk
  std::uint32_t angle_[kUnits];  ///< before it
};

/// The warp that makes ChunkScalars, and V of ranks. The state's scale takes the decays of chunks, as long as
/// it is not too small: the state itself is seldom multiplied.
template <class T>
class WeightWarp {
  static constexpr float kLeastScale = -32.0F;  ///< log₂

 public:
  __device__ WeightWarp(const FusedArgs& args, const SharedMemory<T>& shared, const Head& at, int lane)
      : args_(args), scan_(args.in.scan), shared_(shared), at_(at), lane_(lane) {
    load_steps(0);
  }

  __device__ void run() {
    typename SharedMemory<T>::StepInputs::Position inputs_at;
    typename SharedMemory<T>::Made::Position made_at;
    for (int chunk = 0; has_chunk(args_, chunk); ++chunk, inputs_at.advance(), made_at.advance()) {
      shared_.made().wait_empty(made_at);
      write_scalars(shared_.scalars(made_at));
      if (has_chunk(args_, chunk + 1)) load_steps(chunk + 1);
      shared_.step_inputs().wait_full(inputs_at);
      raise_steps(shared_, lane_, shared_.v_tile(inputs_at), shared_.x_tile(made_at));
      warp_arrive(shared_.step_inputs().empty(inputs_at), lane_);
      hopper::barrier_arrive(shared_.made().full(made_at));
    }
  }

 private:
  using Io = typename T::Io;

  /// Of the chunk's step lane % 16; past the end nothing decays and nothing weighs.
  __device__ void load_steps(int chunk) {
    const int t = chunk * kSteps + lane_ % kSteps;
    const bool exists = t < scan_.seqlen;
    const std::int64_t at = (at_.batch * scan_.nheads + at_.head) * scan_.seqlen + t;
    log_decay_ = exists ? args_.log_decay[at] : 0.0F;
    later_ = exists ? args_.later[at] : 0.0F;
    own_ = exists ? args_.own[at] : 0.0F;
  }

  __device__ __forceinline__ void write_scalars(ChunkScalars& to) {
    const int step = lane_ % kSteps;
    float sum = log_decay_ * kLog2E;
#pragma unroll
    for (int distance = 1; distance < kSteps; distance *= 2) {
      const float before = __shfl_up_sync(kAllLanes, sum, distance, kSteps);
      if (step >= distance) sum += before;
    }
    const float end = __shfl_sync(kAllLanes, sum, kSteps - 1);
    if constexpr (T::kScaled)
      write_narrow(to, sum, end);
    else
      write_wide(to, sum, end);
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {  // to a row of two at a time, from the lane's step
      const int row = 2 * i + lane_ / kSteps;
      const float to_row = later_ * exp2_approximate(__shfl_sync(kAllLanes, sum, row) - sum);
      to.weight[row][slot_of_step(step)] = row > step ? to_row : row == step ? own_ : 0.0F;
    }
  }

  /// What leaves the chunk. `sum`, `end`: log₂ of the decays from its begin to the lane's step, and to its
  /// end.
  __device__ __forceinline__ void write_wide(ChunkScalars& to, float sum, float end) {
    const int step = lane_ % kSteps;
    const float behind = scale_ + end;
    const bool rescales = behind < kLeastScale;
    const float next_scale = rescales ? 0.0F : behind;
    const float weight = later_ * exp2_approximate(end - sum - next_scale);
    const std::uint32_t rounded = pack_pair<Io>(weight, weight);
    const float left = weight - unpack_pair<Io>(rounded).x;
    if (lane_ < kSteps) {
      to.later[0][slot_of_step(step)] = rounded;
      to.later[1][slot_of_step(step)] = pack_pair<Io>(left, left);
      to.carry[step] = exp2_approximate(scale_ + sum);
    }
    if (lane_ == 0) {
      to.rescale = rescales ? exp2_approximate(behind) : 1.0F;
      to.scale = exp2_approximate(next_scale);
    }
    scale_ = next_scale;
  }
  /// The same in f16: the state's scale is the power of two that moves the largest weight into 1/2 … 1.
  __device__ __forceinline__ void write_narrow(ChunkScalars& to, float sum, float end) {
    const int step = lane_ % kSteps;
    const float weight = later_ * exp2_approximate(end - sum);
    const float up = scale_of_lanes(fabsf(weight), kWeightTarget);
    const float next_scale = 127.0F - static_cast<float>(__float_as_uint(up) >> 23);
    if (lane_ < kSteps) {
      to.later[0][slot_of_step(step)] = __float_as_uint(up * weight);
      to.carry[step] = exp2_approximate(sum);
    }
    if (lane_ == 0) {
      to.rescale = exp2_approximate(scale_ + end - next_scale);
      to.scale = inverse_of_power(up);
    }
    scale_ = next_scale;
  }

  const FusedArgs& args_;
  const Mamba3& scan_;
  SharedMemory<T> shared_;
  Head at_;
  int lane_;
  float log_decay_, later_, own_;  ///< of the next chunk
  float scale_ = 0.0F;             ///< log₂ of ChunkScalars::scale before it
};

}  // namespace ssmbench::mamba3_fused
