#pragma once

// The fast kernels of selective_scan_bwd: the kernel that goes back in time, warp-specialized. The picture is
// in kernel.cuh, the producers in producer.cuh.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/selective_scan/fused_bwd/producer.cuh"
#include "kernels/selective_scan/fused_bwd/step_back.cuh"

namespace ssmbench::fused_bwd {

/// Threads of a block with so many consumer warps, and as many of producers.
inline constexpr int gradient_threads(int warps) {
  return 2 * warps * 32;
}

// Registers of a thread; together not more than the kernel is launched with.
inline constexpr int kProducerRegisters = 40;
inline constexpr int kConsumerRegisters = 216;
static_assert(kProducerThreads * kProducerRegisters + kConsumerThreads * kConsumerRegisters <=
              h200::kRegisters);

/// The lane of this thread. Read again each time, so that what depends on it is computed again and not
/// spilled: a warp would wait for it at the start of each tile.
__device__ __forceinline__ LaneMap lane_again() {
  int lane = 0;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return {lane};
}

/// A consumer thread: two channels and four states of each, through all tiles of the block's segments, last
/// first. Its states are not members: the compiler keeps arrays in registers only where no scalar that it
/// needs early lies beside them.
template <class Io, bool given_states, int warps>
class Consumer {
 public:
  using Shared = GradientShared<Io, warps, given_states>;
  using Tile = typename Shared::Tile;

  __device__ __forceinline__ Consumer(const KernelArgs& kernel, std::int64_t first_segment, Shared& shared)
      : args_(kernel.args.scan),
        plan_(kernel.plan),
        kernel_(kernel),
        shared_(shared),
        own_(args_, plan_, blockIdx.x, __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0), first_segment,
             plan_.run()),
        run_(own_.segment / plan_.run()),
        run_carry_(kernel.workspace + kernel.at.carries + run_ * plan_.state_floats() + own_.lane_at),
        D_(shared.D[own_.warp * kWarpChannels + own_.lane.channel(0)]) {}

  __device__ __forceinline__ void load_segment(LaneStates& A, LaneStates& carry) const {
    load_exponents(A, kernel_, own_);
    if (!plan_.in_turn || own_.end < args_.seqlen)
      load_lane(carry, run_carry_);
    else if (kernel_.args.dlast_state != nullptr)
      for_states([&](int r, int s, std::int64_t at) { carry[r][s] = kernel_.args.dlast_state[at]; });
  }

  __device__ __forceinline__ int tiles() const { return static_cast<int>(own_.tiles()); }
  __device__ __forceinline__ bool has_channels() const { return own_.warp_count > 0; }

  /// One half of a tile: forward through it from the states before it, and back.
  __device__ __forceinline__ void do_half(Tile& tile, typename Shared::Factors& factors, int half,
                                          const LaneStates& A, LaneStates& carry, LaneStates& dA) {
    StepRecord* const records = tile.sequences[own_.warp] + half * kKeptSteps * kRowPitch;
    StepFactors* const half_factors = factors[own_.warp] + half * kKeptSteps * kRowPitch;
    const float* const B_of_half = tile.projections[0] + half * kKeptSteps * kProjectionPitch;
    const float* const C_of_half = tile.projections[1] + half * kKeptSteps * kProjectionPitch;
    const LaneMap lane = lane_again();
    // The lane's own channel, step of a pair and state, once sums over states and channels are done.
    const int own_record = row_index((lane.lane & 2) != 0 ? 1 : 0, lane.channel(0));
    const int own_sum = (lane.lane & 1) * kPaddedStates + lane.state(0);
    LaneStates h, before[kKeptSteps], decay[kKeptSteps];
    restore(h, A, tile, half, lane);
#pragma unroll
    for (int t = 0; t < kKeptSteps; ++t) {
#pragma unroll
      for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s) before[t][r][s] = h[r][s];
      step_forward(h, decay[t], A, records, B_of_half, t, lane);
    }
    // What a pair of steps leaves in this lane: one channel and step, one state and step. It is stored after
    // the next pair's operands are loaded: a load cannot be moved above a store, and would wait for the
    // shuffles that the store waits for.
    StepGradients gradients;
    float dB, dC;
    const auto store_pair = [&](int pair) {
      __syncwarp();  // all lanes have read these steps
      auto* const to = reinterpret_cast<float*>(half_factors + 2 * pair * kRowPitch) + own_sum;
      to[0] = dB;
      to[2 * kPaddedStates] = dC;
      records[2 * pair * kRowPitch + own_record].out = gradients;
    };
#pragma unroll
    for (int pair = kKeptSteps / 2 - 1; pair >= 0; --pair) {
      float B[2][kLaneStates], C[2][kLaneStates];
      StepInputs step[2][kLaneChannels];
#pragma unroll
      for (int k = 1; k >= 0; --k) {
        load_vectors(B[k], B_of_half + projection_at(lane, 2 * pair + k));
        load_vectors(C[k], C_of_half + projection_at(lane, 2 * pair + k));
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r)
          step[k][r] = records[row_index(2 * pair + k, lane.channel(r))].in;
      }
      const StepFactors own_factors = half_factors[2 * pair * kRowPitch + own_record];
      const StepInputs own_step = records[2 * pair * kRowPitch + own_record].in;
      if (pair < kKeptSteps / 2 - 1) store_pair(pair + 1);
      StepSums sums[2];
#pragma unroll
      for (int k = 1; k >= 0; --k) {
        const int t = 2 * pair + k;
#pragma unroll
        for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
          for (int s = 0; s < kLaneStates; ++s) {
            const float after = t + 1 < kKeptSteps ? before[(t + 1) % kKeptSteps][r][s] : h[r][s];
            step_back(carry[r][s], dA[r][s], sums[k], r, s, step[k][r], decay[t][r][s], A[r][s], B[k][s],
                      C[k][s], before[t][r][s], after);
          }
      }
      add_over_states(sums[0], sums[1], lane.lane);
      add_over_channels(sums[0], sums[1], lane.lane);
      const float ddelta =
          (kLn2 * sums[0].by_exponent[0] + own_step.u * sums[0].by_input[0]) * own_factors.slope;
      dD_ += own_step.dy * own_step.u;
      ddelta_bias_ += ddelta;
      gradients = {fmaf(own_step.delta, sums[0].by_input[0], D_ * own_step.dy), ddelta,
                   fmaf(D_, own_step.u, sums[0].y[0]) * own_factors.dz_by_y, 0.0F};
      dB = sums[0].dB[0];
      dC = sums[0].dC[0];
    }
    store_pair(0);
  }

  /// Sums over time, and the carry.
  __device__ __forceinline__ void store_segment(const LaneStates& carry, const LaneStates& dA) {
    float* const workspace = kernel_.workspace;
    store_lane(workspace + kernel_.at.states + own_.segment * plan_.state_floats() + own_.lane_at, dA);
    // The other lane that has this channel has the other step of each pair.
    dD_ += shuffle_xor(dD_, 2);
    ddelta_bias_ += shuffle_xor(ddelta_bias_, 2);
    if ((own_.lane.lane & 2) == 0) {
      const std::int64_t row = run_ * plan_.rows() + own_.row() + own_.lane.channel(0);
      workspace[kernel_.at.dD + row] = dD_;
      workspace[kernel_.at.ddelta_bias + row] = ddelta_bias_;
    }
    if (own_.segment > 0) {
      if (plan_.in_turn) store_lane(run_carry_ - plan_.state_floats(), carry);
      return;
    }
    if (kernel_.args.dinitial_state == nullptr) return;
    for_states([&](int r, int s, std::int64_t at) { kernel_.args.dinitial_state[at] = carry[r][s]; });
  }

 private:
  /// Calls call(r, s, index in (B, D, N) tensors) for the thread's states that exist.
  template <class Call>
  __device__ __forceinline__ void for_states(const Call& call) const {
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r)
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s)
        if (own_.exists(r, s, kernel_.round))
          call(r, s, own_.block.b * args_.dim * args_.dstate + own_.state_at(r, s, args_.dstate));
  }

  /// h before the half: from zero at the segment's start, plus what is left of the true state there; or as it
  /// is given, in order and not in the lane's.
  __device__ __forceinline__ void restore(LaneStates& h, const LaneStates& A, const Tile& tile, int half,
                                          const LaneMap& lane) const {
    const int first = own_.warp * 32 + lane.lane;
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      if constexpr (given_states) {
        const float* const states = tile.states[half][r * warps * 32 + first];
#pragma unroll
        for (int s = 0; s < kLaneStates; ++s) h[r][s] = states[s ^ lane.order()];
        continue;
      }
      const float elapsed = tile.elapsed[half][own_.warp * kWarpChannels + lane.channel(r)];
      float local[kLaneStates], at_start[kLaneStates];
      load_vectors(local, tile.states[half][r * warps * 32 + first]);
      load_vectors(at_start, tile.states[kHalves][r * warps * 32 + first]);
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s)
        h[r][s] = fmaf(exp2_approximate(elapsed * A[r][s]), at_start[s], local[s]);
    }
  }

  /// One step of all of a thread's states, whose decays it leaves.
  __device__ __forceinline__ void step_forward(LaneStates& h, LaneStates& decay, const LaneStates& A,
                                               const StepRecord* records, const float* B_of_tile, int t,
                                               const LaneMap& lane) const {
    float B[kLaneStates];
    load_vectors(B, B_of_tile + projection_at(lane, t));
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      const StepInput step = records[row_index(t, lane.channel(r))].in;
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) {
        decay[r][s] = exp2_approximate(step.delta * A[r][s]);
        h[r][s] = fmaf(decay[r][s], h[r][s], step.delta_u * B[s]);
      }
    }
  }

  const ScanArgs& args_;
  const BackwardPlan& plan_;
  const KernelArgs& kernel_;
  Shared& shared_;
  const WarpCoordinates own_;
  const std::int64_t run_;
  float* const run_carry_;
  const float D_;

  float dD_ = 0.0F, ddelta_bias_ = 0.0F;
};

/// Where there are `idle_warps`, those without channels only meet the others at barriers.
template <class Io, bool idle_warps, bool given_states, int warps>
__device__ __forceinline__ void consume(const KernelArgs& kernel, std::int64_t first_segment,
                                        GradientShared<Io, warps, given_states>& shared) {
  Consumer<Io, given_states, warps> consumer(kernel, first_segment, shared);
  LaneStates A, carry = {}, dA = {};
  consumer.load_segment(A, carry);
  const int tiles = consumer.tiles();
  int factor_slot = 0;
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    auto& tile = shared.tiles[i % 2];
    auto& factors = shared.factors[factor_slot];
    factor_slot =
        factor_slot == GradientShared<Io, warps, given_states>::kFactorSlots - 1 ? 0 : factor_slot + 1;
    block_barrier();
    if constexpr (idle_warps)
      if (!consumer.has_channels()) continue;
#pragma unroll
    for (int half = kHalves - 1; half >= 0; --half) consumer.do_half(tile, factors, half, A, carry, dA);
  }
  block_barrier();
  consumer.store_segment(carry, dA);
}

/// `rounds`: states are done in several rounds. `given_states`: by x. Small blocks have half of the `warps`.
template <class Io, bool vectorized, bool idle_warps, bool rounds, bool given_states, int warps>
__global__ void __launch_bounds__(gradient_threads(warps), kBlockWarps / warps)
    gradient_kernel(const KernelArgs kernel, const std::int64_t first_segment) {
#if __CUDA_ARCH__ < 900
  __trap();  // blocks have too little shared memory there
#else
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<GradientShared<Io, warps, given_states>*>(memory);
  load_channels(
      shared.bias, shared.D, 0, warps * kWarpChannels, kernel.args.scan,
      WarpCoordinates(kernel.args.scan, kernel.plan, blockIdx.x, 0, first_segment, kernel.plan.run()));
  __syncthreads();
  if (threadIdx.x < warps * 32) {
    warpgroup_reg_alloc<kConsumerRegisters>();
    consume<Io, idle_warps, given_states, warps>(kernel, first_segment, shared);
  } else {
    warpgroup_reg_dealloc<kProducerRegisters>();
    produce<Io, vectorized, idle_warps, rounds, given_states, warps>(kernel, first_segment, shared);
  }
#endif
}

}  // namespace ssmbench::fused_bwd
