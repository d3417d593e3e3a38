#pragma once

// What enters and leaves a scan in parts (handed.h) whose parts were all scanned from zeros, the last ones too.

#include "base/cuda_check.h"
#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/index_math.h"
#include "kernels/ssd_chunk_scan/handed.h"

namespace ssmbench {

inline constexpr int kEndsThreads = 256;

/// A row tile of a sequence: 64 rows of a head's state from `row` on. Negative `head`: the tile is absent.
struct TileOfState {
  int b, head, row;
};

/// States of all parts from zeros, and where their elements are in (B, H, P, N) tensors.
struct EndsArgs {
  HandedStates from;    ///< of sequence · stride + part
  std::int64_t stride;  ///< blocks of a sequence there; its parts or more
  Parts of;
  std::int64_t nheads, headdim, dstate;
  const float* entering;  ///< before the first part; null: zeros
};

/// The states after each part, in their order.
///
///   grid     a thread for every 4 elements of the sequences' states, as they lie in memory (handed.h): those
///            of a row in every other column
///
/// `before`: gets the states after the parts but the last, of sequence · parts + part, or null. `leaving`,
/// (B, H, P, N): gets the state after the last part, or null. place(sequence, tile): TileOfState. A kernel
/// that may begin early does with this one.
template <class Place>
__global__ void __launch_bounds__(kEndsThreads)
    ends_kernel(const __grid_constant__ EndsArgs args, const __grid_constant__ Place place, float* before,
                float* leaving) {
  hopper::launch_dependents();
  constexpr int kThreads = 128;  // that have a tile's state in registers
  constexpr int kElements = 4;
  const Parts& of = args.of;
  const int of_block = of.tiles * of.vectors;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kEndsThreads + threadIdx.x;
  const std::int64_t sequence = index / of_block;
  if (sequence >= of.sequences) return;
  const auto in_block = static_cast<int>(index - sequence * of_block);
  const int thread = in_block * kElements % kThreads;  // the first
  const int registers = of.vectors * kElements / kThreads;
  const int slot = in_block * kElements / kThreads % registers;
  const int which = in_block / of.vectors;
  const TileOfState tile = place(sequence, which);
  const std::int64_t p = tile.row + thread / 32 * 16 + thread % 32 / 4 + slot % 4 / 2 * 8;
  const std::int64_t n = slot / 4 * 8 + slot % 2;
  const bool exists = tile.head >= 0 && p < args.headdim;
  const std::int64_t at = ((tile.b * args.nheads + tile.head) * args.headdim + p) * args.dstate + n;
  float state[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i)
    state[i] =
        exists && n + 2 * i < args.dstate && args.entering != nullptr ? args.entering[at + 2 * i] : 0.0F;
  const auto* const from =
      reinterpret_cast<const float4*>(args.from.states) + sequence * args.stride * of_block + in_block;
  auto* const to = reinterpret_cast<float4*>(before) + sequence * of.parts * of_block + in_block;
#pragma unroll 4
  for (int part = 0; part < of.parts; ++part) {
    const float4 all = from[std::int64_t{part} * of_block];
    const float own[kElements] = {all.x, all.y, all.z, all.w};
    const float decay = args.from.decays[(sequence * args.stride + part) * of.tiles + which];
    // What is 0 stays so, and is not multiplied by a decay that overflows.
#pragma unroll
    for (int i = 0; i < kElements; ++i) state[i] = state[i] == 0.0F ? own[i] : fmaf(decay, state[i], own[i]);
    if (before != nullptr && part + 1 < of.parts)
      to[std::int64_t{part} * of_block] = make_float4(state[0], state[1], state[2], state[3]);
  }
  if (leaving == nullptr || !exists) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i)
    if (n + 2 * i < args.dstate) leaving[at + 2 * i] = state[i];
}

template <class Place>
void launch_ends(const EndsArgs& args, const Place& place, float* before, float* leaving,
                 cudaStream_t stream) {
  const std::int64_t vectors = args.of.sequences * args.of.tiles * args.of.vectors;
  ends_kernel<<<static_cast<unsigned>(ceil_div(vectors, std::int64_t{kEndsThreads})), kEndsThreads, 0,
                stream>>>(args, place, before, leaving);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
