#pragma once

// What the scan that rotates q and k itself needs before it (rotation.cuh): a kernel.
//
//   phases   a thread has four pairs of a head through a chunk: the phase behind each step, from the chunk's
//            begin, rounded to 16 bits, and what the whole chunk adds, in 32
//   weights  s and γ, a thread for each step of a head, in the blocks behind those of phases
//
// Chunks of packed sequences begin with their sequence, and are in places of packed.h.
//
// 16 bits of a turn are 5e-5 rad off at most, a fortieth of what rounding q and k to bf16 leaves. What chunks add
// is not rounded, so that angles do not drift.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/mamba3/hopper/increments.h"
#include "kernels/mamba3/hopper/prepare.cuh"
#include "kernels/ssd_chunk_scan/hopper/packed.h"

namespace ssmbench::mamba3_hopper {

inline constexpr int kPhasePairs = 4;  ///< of a thread
inline constexpr int kPhaseSteps = 4;  ///< whose rates are loaded at once

/// Increments of four pairs at a step, of at most half a turn unless `wide`.
template <class Io>
__device__ __forceinline__ void add_increments(std::uint32_t (&sums)[kPhasePairs], const uint2& rates,
                                               float dt, bool wide) {
  const float2 two = unpack_pair<Io>(rates.x);
  const float2 others = unpack_pair<Io>(rates.y);
  float turns[kPhasePairs]{two.x, two.y, others.x, others.y};  // 2^-32 of them
  const float scale = 0x1p31F * dt;
#pragma unroll
  for (float& turn : turns) turn = scale * fast_tanh(turn);
  if (wide)
#pragma unroll
    for (float& turn : turns) turn -= 0x1p32F * rintf(0x1p-32F * turn);
#pragma unroll
  for (int pair = 0; pair < kPhasePairs; ++pair)
    sums[pair] += static_cast<std::uint32_t>(__float2int_rn(turns[pair]));
}

/// The upper 16 bits of two phases.
__device__ inline std::uint32_t upper_halves(std::uint32_t first, std::uint32_t second) {
  return __byte_perm(first, second, 0x7632);
}

/// Vector `index` of the rows (chunk, head, four pairs) of all `chunks`.
template <class Io, bool kPacked>
__device__ __forceinline__ void add_phases(const Mamba3Args& args, const ChunkPhases& to, std::int64_t chunks,
                                           std::int64_t index) {
  const Mamba3& scan = args.scan;
  const int vectors = static_cast<int>(scan.nheads * scan.angles) / kPhasePairs;
  const std::int64_t row = index / vectors;
  if (row >= chunks) return;
  const int vector = static_cast<int>(index - row * vectors);
  const std::int64_t batch = kPacked ? 0 : row / static_cast<int>(ceil_div(scan.seqlen, kSegment));
  const auto slot = static_cast<int>(row - batch * ceil_div(scan.seqlen, kSegment));
  const PreparePart chunk = part_at<kPacked>(args, batch, slot, kSegment);
  const std::int64_t first = chunk.first;
  const int steps = chunk.steps;
  const int head = vector * kPhasePairs / static_cast<int>(scan.angles);
  const float* dt = args.dt + (batch * scan.nheads + head) * scan.seqlen + first;
  const std::int64_t at = (batch * scan.seqlen + first) * vectors + vector;
  const uint2* rates = static_cast<const uint2*>(args.rates) + at;
  uint2* phases = reinterpret_cast<uint2*>(to.of_steps) + at;

  constexpr std::uint32_t kHalf = 0x8000;  // so that cutting off rounds
  std::uint32_t sums[kPhasePairs]{kHalf, kHalf, kHalf, kHalf};
#pragma unroll 1
  for (int done = 0; done < steps; done += kPhaseSteps) {
    uint2 ahead[kPhaseSteps];
    float of_step[kPhaseSteps];
    float longest = 0.0F;
#pragma unroll
    for (int i = 0; i < kPhaseSteps; ++i) {
      const bool exists = done + i < steps;
      ahead[i] = exists ? rates[i * vectors] : make_uint2(0, 0);
      of_step[i] = exists ? dt[i] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kPhaseSteps; ++i) longest = fmaxf(longest, of_step[i]);
#pragma unroll
    for (int i = 0; i < kPhaseSteps; ++i) {
      add_increments<Io>(sums, ahead[i], of_step[i], longest > 1.0F);
      if (done + i < steps)
        phases[i * vectors] = make_uint2(upper_halves(sums[0], sums[1]), upper_halves(sums[2], sums[3]));
    }
    rates += kPhaseSteps * vectors;
    phases += kPhaseSteps * vectors;
    dt += kPhaseSteps;
  }
  reinterpret_cast<uint4*>(to.of_chunks)[row * vectors + vector] =
      make_uint4(sums[0] - kHalf, sums[1] - kHalf, sums[2] - kHalf, sums[3] - kHalf);
}

/// `chunks`, of all sequences; `steps`, of all heads, too. The first `phase_blocks` blocks have phases.
template <class Io, bool kPacked>
__global__ void __launch_bounds__(kPrepareThreads, 4)
    phases_kernel(const Mamba3Args args, const PreparedRows weights, const ChunkPhases to,
                  const int phase_blocks, const std::int64_t chunks, const std::int64_t steps) {
  hopper::launch_dependents();  // the scan, which waits for what is written here
  const int block = static_cast<int>(blockIdx.x);
  const auto index = [](int of) { return std::int64_t{of} * kPrepareThreads + threadIdx.x; };
  if (block < phase_blocks)
    add_phases<Io, kPacked>(args, to, chunks, index(block));
  else
    weigh_step<Io, kPacked>(args, weights, steps, index(block - phase_blocks));
}

}  // namespace ssmbench::mamba3_hopper
