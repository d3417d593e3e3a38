#pragma once

// What enters and leaves a scan in parts (handed.h) whose parts were all scanned from zeros, the last ones too.

#include "base/cuda_check.h"
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
///   grid     a thread for each element of the sequences' states, as they lie in memory (handed.h)
///
/// `before`: gets the states after the parts but the last, of sequence · parts + part, or null. `leaving`,
/// (B, H, P, N): gets the state after the last part, or null. place(sequence, tile): TileOfState.
template <class Place>
__global__ void __launch_bounds__(kEndsThreads)
    ends_kernel(const __grid_constant__ EndsArgs args, const __grid_constant__ Place place, float* before,
                float* leaving) {
  constexpr int kThreads = 128;  // that have a tile's state in registers
  const Parts& of = args.of;
  const std::int64_t of_block = std::int64_t{of.tiles} * of.vectors * 4;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kEndsThreads + threadIdx.x;
  const std::int64_t sequence = index / of_block;
  if (sequence >= of.sequences) return;
  const auto in_block = static_cast<int>(index - sequence * of_block);
  const int thread = in_block % kThreads;
  const int registers = of.vectors * 4 / kThreads;
  const int slot = in_block / kThreads % registers;
  const int which = in_block / kThreads / registers;
  const TileOfState tile = place(sequence, which);
  const std::int64_t p = tile.row + thread / 32 * 16 + thread % 32 / 4 + slot % 4 / 2 * 8;
  const std::int64_t n = slot / 4 * 8 + thread % 4 * 2 + slot % 2;
  const bool exists = tile.head >= 0 && p < args.headdim && n < args.dstate;
  const std::int64_t at = ((tile.b * args.nheads + tile.head) * args.headdim + p) * args.dstate + n;
  float state = exists && args.entering != nullptr ? args.entering[at] : 0.0F;
#pragma unroll 4
  for (int part = 0; part < of.parts; ++part) {
    const std::int64_t block = sequence * args.stride + part;
    const float own = args.from.states[block * of_block + in_block];
    const float decay = args.from.decays[block * of.tiles + which];
    // What is 0 stays so, and is not multiplied by a decay that overflows.
    state = state == 0.0F ? own : fmaf(decay, state, own);
    if (before != nullptr && part + 1 < of.parts)
      before[(sequence * of.parts + part) * of_block + in_block] = state;
  }
  if (leaving != nullptr && exists) leaving[at] = state;
}

template <class Place>
void launch_ends(const EndsArgs& args, const Place& place, float* before, float* leaving,
                 cudaStream_t stream) {
  const std::int64_t elements = args.of.sequences * args.of.tiles * args.of.vectors * 4;
  ends_kernel<<<static_cast<unsigned>(ceil_div(elements, std::int64_t{kEndsThreads})), kEndsThreads, 0,
                stream>>>(args, place, before, leaving);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
