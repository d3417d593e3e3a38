#pragma once

// The first warpgroup of the fused MIMO scan. Warp 0 loads Q, K and rates (TMA); the others make what the
// inputs of a chunk's steps are used as:
//
//   warps 1, 2  sines and cosines: of 16 pairs at a time, a lane has one, of half of the steps; angles are
//               32-bit integers (phase.h), and that before a chunk stays in a register
//   warp 3      decays and weights of steps; loads V and Z

#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/hopper/fused/block.cuh"
#include "kernels/mamba3/hopper/increments.h"
#include "kernels/mamba3/phase.h"
#include "kernels/ssd_chunk_scan/scaled.cuh"

namespace ssmbench::mamba3_fused {

/// By a warp, of which one lane starts the copies: so the compiler knows addresses to be the same of all
/// lanes. Rates of each head, which come from memory; Q and K, which all share, and which other blocks have
/// brought to the L2, in parts.
template <class T>
class InputLoader {
 public:
  __device__ InputLoader(const FusedArgs& args, const SharedMemory<T>& shared, int lane)
      : args_(args), shared_(shared), starts_(lane == 0), first_(args, 0) {}

  __device__ void run() {
    load_rates(0);
#pragma unroll 1
    for (int chunk = 0; has_chunk(args_, chunk); ++chunk) {
      if (has_chunk(args_, chunk + 1)) load_rates(chunk + 1);
#pragma unroll 1
      for (int part = 0; part < kParts; ++part) load_part(chunk * kRows + part * kPartRows);
    }
  }

 private:
  __device__ __forceinline__ void load_rates(int chunk) {
#pragma unroll 1
    for (int slot = 0; slot < args_.heads; ++slot) {
      const auto ring = shared_.rates(slot);
      ring.wait_empty(rates_at_);
      if (starts_) {
        const std::uint32_t full = ring.full(rates_at_);
        hopper::barrier_arrive_expect(full, T::Layout::kRates);
        hopper::load_tile(shared_.rate_tile(slot, rates_at_), args_.rates,
                          hopper::TileOrigin{{0, first_.head + slot, chunk * kSteps, first_.batch}}, full);
      }
      __syncwarp();
    }
    rates_at_.advance();
  }
  __device__ __forceinline__ void load_part(int row) {
    const auto ring = shared_.parts();
    ring.wait_empty(part_at_);
    if (starts_) {
      const std::uint32_t full = ring.full(part_at_);
      hopper::barrier_arrive_expect(full, kPart);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        hopper::load_tile(shared_.part(part_at_) + i * kPartTile, i < 2 ? args_.q : args_.k,
                          hopper::TileOrigin{{i % 2 * kHalf, first_.group, row, first_.batch}}, full);
    }
    __syncwarp();
    part_at_.advance();
  }

  const FusedArgs& args_;
  SharedMemory<T> shared_;
  bool starts_;
  Head first_;  ///< of the block's heads
  ChunkCount rates_at_;
  hopper::RingPosition<kPartDepth> part_at_;
};

/// One of the warps that make sines and cosines: of a head of two, or with one head in a block half of its
/// pairs.
template <class T>
class AngleWarp {
  static constexpr int kUnitPairs = 16;
  static constexpr int kUnits = 2;  ///< at most
  static constexpr int kLaneSteps = kSteps / 2;

 public:
  __device__ AngleWarp(const FusedArgs& args, const SharedMemory<T>& shared)
      : args_(args), scan_(args.in.scan), shared_(shared) {
    dt_ = load_dt(0);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int pair = pair_of(unit);
      angle_[unit] =
          args.in.input_angle == nullptr || pair >= scan_.angles
              ? 0U
              : phase_of_radians(args.in.input_angle[item_of(args_, slot()) * scan_.angles + pair]);
    }
  }

  __device__ void run() {
    ChunkCount ring_at;
    const auto rates = shared_.rates(slot());
    const auto turns = shared_.turns(slot());
    for (; has_chunk(args_, static_cast<int>(ring_at.count)); ring_at.advance()) {
      rates.wait_full(ring_at);
      turns.wait_empty(ring_at);
      const bool wide = __any_sync(kAllLanes, !(dt_ <= 1.0F));  // more than half a turn a step
      const float scale = 0x1p31F * dt_;                        // 2^-32 of a turn for tanh of a rate
      dt_ = load_dt(static_cast<int>(ring_at.count) + 1);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
        if (has_unit(unit))
          turn_unit(unit, scale, wide, shared_.rate_tile(slot(), ring_at),
                    shared_.turn_tile(slot(), ring_at));
      warp_arrive(rates.empty(ring_at), lane());
      hopper::barrier_arrive(turns.full(ring_at));
    }
    if (args_.in.final_angle != nullptr) store_final();
  }

 private:
  // Asked for anew where they are needed: no register is left to keep them in.
  __device__ static int lane() {
    return group_thread() % 32;
  }
  __device__ static int warp() {
    return group_thread() / 32 - 1;
  }  ///< of both
  __device__ int slot() const {
    return args_.heads == 2 ? warp() : 0;
  }
  __device__ int index() const {
    return args_.heads == 2 ? 0 : warp();
  }  ///< among the head's
  __device__ int warps() const {
    return args_.heads == 2 ? 1 : 2;
  }
  __device__ int pair_of(int unit) const {
    return (warps() * unit + index()) * kUnitPairs + lane() % kUnitPairs;
  }
  __device__ bool has_unit(int unit) const {
    return (warps() * unit + index()) * kUnitPairs < T::kPairs;
  }
  /// The first of the lane's steps of a chunk.
  __device__ int first_step() const {
    return lane() / kUnitPairs * kLaneSteps;
  }

  /// DT of the chunk's step `lane % 16`; 0 past the end.
  __device__ float load_dt(int chunk) const {
    const int t = chunk * kSteps + lane() % kSteps;
    return t < scan_.seqlen ? args_.in.dt[item_of(args_, slot()) * scan_.seqlen + t] : 0.0F;
  }

  /// Sines and cosines are the hardware's, 2^-21 off on [−π, π].
  __device__ static float2 cosine_sine(std::uint32_t angle) {
    const float radians = static_cast<float>(static_cast<std::int32_t>(angle)) * (kTurnInRadians * 0x1p-32F);
    return {__cosf(radians), __sinf(radians)};
  }

  /// Sums of what a pair's rates add in the lane's steps.
  template <bool kWide>
  __device__ __forceinline__ void add_steps(std::uint32_t (&sums)[kLaneSteps], const float* rates,
                                            float scale) const {
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i) {
      const float of_step = __shfl_sync(kAllLanes, scale, first_step() + i);
      float turn = of_step * mamba3_hopper::fast_tanh(rates[i * T::kPairs]);
      if constexpr (kWide) turn -= 0x1p32F * rintf(0x1p-32F * turn);
      sums[i] = sum += static_cast<std::uint32_t>(__float2int_rn(turn));
    }
  }

  /// Rates are 0 past the end, and of pairs that there are not.
  __device__ __forceinline__ void turn_unit(int unit, float scale, bool wide, std::uint32_t rates,
                                            std::uint32_t turns) {
    const int pair = pair_of(unit);
    const int first = first_step() * T::kPairs;
    const float* const from = shared_.template at_address<float>(rates) + first + pair;
    float2* const to = shared_.template at_address<float2>(turns) + first;
    std::uint32_t sums[kLaneSteps];
    if (wide)
      add_steps<true>(sums, from, scale);
    else
      add_steps<false>(sums, from, scale);
    const std::uint32_t sum = sums[kLaneSteps - 1];
    const std::uint32_t of_first = __shfl_sync(kAllLanes, sum, lane() % kUnitPairs);
    const std::uint32_t of_rest = __shfl_sync(kAllLanes, sum, lane() % kUnitPairs + kUnitPairs);
    const std::uint32_t before = angle_[unit] + (first_step() == 0 ? 0U : of_first);
    angle_[unit] += of_first + of_rest;
#pragma unroll
    for (int i = 0; i < kLaneSteps; ++i)
      to[i * T::kPairs + turn_slot(i, pair)] = cosine_sine(before + sums[i]);
  }

  /// The angles, and k of the last step, not rounded. Lanes of one half have two ranks each of the pairs;
  /// those that do not turn are shared out among the warps.
  __device__ void store_final() const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (!has_unit(unit)) continue;
      const int pair = pair_of(unit);
      if (lane() < kUnitPairs && pair < scan_.angles)
        args_.in.final_angle[item_of(args_, slot()) * scan_.angles + pair] = radians_of_phase(angle_[unit]);
      store_final_k(pair, cosine_sine(angle_[unit]));
    }
    for (int pair = T::kPairs + index() * kUnitPairs + lane() % kUnitPairs; pair < kHalf;
         pair += warps() * kUnitPairs)
      store_final_k(pair, {1.0F, 0.0F});
  }
  __device__ void store_final_k(int pair, float2 turn) const {
    const Head at(args_, slot());
    const std::int64_t step = (at.batch + 1) * scan_.seqlen - 1;
    for (int rank = lane() / kUnitPairs; rank < kRank; rank += 32 / kUnitPairs) {
      const std::int64_t row = ((step * kRank + rank) * scan_.groups + at.group) * kStates + pair;
      const std::int64_t bias = (std::int64_t{at.head} * kRank + rank) * kStates + pair;
      const auto* const k = static_cast<const typename T::Io*>(args_.in.K);
      const float first = to_float(k[row]) + args_.in.K_bias[bias];
      const float second = to_float(k[row + kHalf]) + args_.in.K_bias[bias + kHalf];
      float* const to = args_.in.final_k +
                        ((std::int64_t{at.batch} * kRank + rank) * scan_.nheads + at.head) * kStates + pair;
      to[0] = first * turn.x - second * turn.y;
      to[kHalf] = first * turn.y + second * turn.x;
    }
  }

  const FusedArgs& args_;
  const Mamba3& scan_;
  SharedMemory<T> shared_;
  float dt_;                     ///< of the next chunk
  std::uint32_t angle_[kUnits];  ///< before it
};

/// The warp that makes ChunkScalars and loads V and Z, a half of it for each head. The state's scale takes
/// the decays of chunks, as long as it is not too small: the state itself is seldom multiplied.
template <class T>
class WeightWarp {
  static constexpr float kLeastScale = -32.0F;  ///< log₂

 public:
  __device__ WeightWarp(const FusedArgs& args, const SharedMemory<T>& shared, int lane)
      : args_(args),
        scan_(args.in.scan),
        shared_(shared),
        slot_(lane / kSteps),
        step_(lane % kSteps),
        item_(item_of(args, min(slot_, args.heads - 1))) {
    load_steps(0);
  }

  __device__ void run() {
    ChunkCount ring_at;
    const bool has_head = slot_ < args_.heads;
    for (int chunk = 0; has_chunk(args_, chunk); ++chunk, ring_at.advance()) {
      for (int slot = 0; slot < args_.heads; ++slot) shared_.scalars(slot).wait_empty(ring_at);
      if (has_head) write_scalars(shared_.scalars_of(slot_, ring_at));
      if (has_chunk(args_, chunk + 1)) load_steps(chunk + 1);
      if (has_head) hopper::barrier_arrive(shared_.scalars(slot_).full(ring_at));
      if (has_head && step_ == 0) load_tiles(chunk, ring_at);
    }
  }

 private:
  using Io = typename T::Io;

  /// Of the chunk's step step_; past the end nothing decays and nothing weighs.
  __device__ void load_steps(int chunk) {
    const int t = chunk * kSteps + step_;
    const bool exists = t < scan_.seqlen;
    const std::int64_t at = item_ * scan_.seqlen + t;
    log_decay_ = exists ? args_.log_decay[at] : 0.0F;
    later_ = exists ? args_.later[at] : 0.0F;
    own_ = exists ? args_.own[at] : 0.0F;
  }
  /// V and Z.
  __device__ void load_tiles(int chunk, const ChunkCount& ring_at) const {
    const Head at(args_, slot_);
    const auto ring = shared_.step_inputs(slot_);
    ring.wait_empty(ring_at);
    const std::uint32_t full = ring.full(ring_at);
    const hopper::TileOrigin from{{0, at.head, chunk * kSteps, at.batch}};
    hopper::barrier_arrive_expect(full, (T::kGated ? 2 : 1) * kStepTile);
    hopper::load_tile(shared_.v_tile(slot_, ring_at), args_.v, from, full);
    if constexpr (T::kGated) hopper::load_tile(shared_.z_tile(slot_, ring_at), args_.z, from, full);
  }
  /// Lanes of the head.
  __device__ unsigned lanes() const { return 0xFFFFU << (slot_ * kSteps); }
  __device__ float of_step(float value, int step) const { return __shfl_sync(lanes(), value, step, kSteps); }

  __device__ __forceinline__ void write_scalars(ChunkScalars& to) {
    float sum = log_decay_ * kLog2E;
#pragma unroll
    for (int distance = 1; distance < kSteps; distance *= 2) {
      const float before = __shfl_up_sync(lanes(), sum, distance, kSteps);
      if (step_ >= distance) sum += before;
    }
    const float end = of_step(sum, kSteps - 1);
    if constexpr (T::kScaled)
      write_narrow(to, sum, end);
    else
      write_wide(to, sum, end);
#pragma unroll 4
    for (int row = 0; row < kSteps; ++row) {  // from the lane's step
      const float to_row = later_ * exp2_approximate(of_step(sum, row) - sum);
      to.weight[row][slot_of_step(step_)] = row > step_ ? to_row : row == step_ ? own_ : 0.0F;
    }
  }

  /// What leaves the chunk. `sum`, `end`: log₂ of the decays from its begin to the lane's step, and to its
  /// end.
  __device__ __forceinline__ void write_wide(ChunkScalars& to, float sum, float end) {
    const float behind = scale_ + end;
    const bool rescales = behind < kLeastScale;
    const float next_scale = rescales ? 0.0F : behind;
    const float weight = later_ * exp2_approximate(end - sum - next_scale);
    const std::uint32_t rounded = pack_pair<Io>(weight, weight);
    const float left = weight - unpack_pair<Io>(rounded).x;
    to.later[0][slot_of_step(step_)] = rounded;
    to.later[1][slot_of_step(step_)] = pack_pair<Io>(left, left);
    to.carry[slot_of_step(step_)] = exp2_approximate(scale_ + sum);
    if (step_ == 0) {
      to.rescale = rescales ? exp2_approximate(behind) : 1.0F;
      to.scale = exp2_approximate(next_scale);
    }
    scale_ = next_scale;
  }
  /// The same in f16: the state's scale is the power of two that moves the largest weight into 1/2 … 1.
  __device__ __forceinline__ void write_narrow(ChunkScalars& to, float sum, float end) {
    const float weight = later_ * exp2_approximate(end - sum);
    float largest = fmaxf(kLeastWeight, fabsf(weight));
#pragma unroll
    for (int distance = 1; distance < kSteps; distance *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(lanes(), largest, distance, kSteps));
    const float up = scale_to(largest, kWeightTarget).up;
    const float next_scale = 127.0F - static_cast<float>(__float_as_uint(up) >> 23);
    to.later[0][slot_of_step(step_)] = __float_as_uint(up * weight);
    to.carry[slot_of_step(step_)] = exp2_approximate(sum);
    if (step_ == 0) {
      to.rescale = exp2_approximate(scale_ + end - next_scale);
      to.scale = inverse_of_power(up);
    }
    scale_ = next_scale;
  }
  static constexpr float kLeastWeight = 0x1p-60F;  ///< leaves room in f32 for sums that are scaled with it

  const FusedArgs& args_;
  const Mamba3& scan_;
  SharedMemory<T> shared_;
  int slot_, step_, item_;
  float log_decay_, later_, own_;  ///< of the next chunk
  float scale_ = 0.0F;             ///< log₂ of ChunkScalars::scale before it
};

}  // namespace ssmbench::mamba3_fused
