#pragma once

#include <cstddef>

#include "base/cuda_check.h"
#include "kernels/common/scalar_math.h"
#include "kernels/common/scan/lookback_map.h"

// Single-pass scan across blocks by decoupled look-back: every input is read once.
//
//   tile of time     0           1            2            3
//   block           scan        scan         scan         scan        all at once, in any order
//   publishes     [state]    (decay,value) (decay,value)    |
//                     ^─────────────^────────────^──────────┘         looks back: combines the maps of the
//                                                                     tiles before until it meets a state
//   then                       [state]      [state]      [state]      publishes the state at its own end
//
// Blocks take tiles by ticket, in the order of time: what a tile waits for belongs to blocks that already
// run, so that it ends whatever order the hardware starts blocks in. How far a block looks back depends on
// timing, and with it the order of the roundings: results are nondeterministic in the last bits.
//
// Work: two passes of combinations within a tile, and a look-back per tile. Workspace: 16 bytes per
// recurrence and tile, and the ticket.
//
// Source: Merrill & Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (NVIDIA
// NVR-2016-002), section 4.

namespace ssmbench {

enum class TileStatus : unsigned { empty = 0, has_map = 1, has_state = 2 };

/// What a tile of one recurrence tells those after it.
struct TileRecord {
  float decay, value;  ///< the map of the whole tile, from has_map on
  float state;         ///< the state at its end, from has_state on
  TileStatus status;
};

/// The workspace: all bytes are zero before a launch.
struct LookbackWorkspace {
  unsigned long long* next_ticket;
  TileRecord* records;
};

inline constexpr std::size_t kTicketBytes = 256;  // keeps the records aligned and the ticket on its own line

inline std::size_t lookback_bytes(std::int64_t records) {
  return kTicketBytes + static_cast<std::size_t>(records) * sizeof(TileRecord);
}

inline LookbackWorkspace lookback_workspace(void* memory) {
  return {static_cast<unsigned long long*>(memory),
          reinterpret_cast<TileRecord*>(static_cast<std::byte*>(memory) + kTicketBytes)};
}

/// The block's tile number, for all its threads; has a barrier within.
__device__ inline std::int64_t take_ticket(const LookbackWorkspace& workspace) {
  __shared__ unsigned long long ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(workspace.next_ticket, 1ULL);
  __syncthreads();
  return static_cast<std::int64_t>(ticket);
}

/// The status that another block has published; what it wrote before is seen after.
__device__ inline TileStatus load_acquire(const TileStatus* status) {
  unsigned value = 0;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(status) : "memory");
  return static_cast<TileStatus>(value);
}
/// Publishes a status, and what was written before.
__device__ inline void store_release(TileStatus* to, TileStatus status) {
  asm volatile("st.release.gpu.u32 [%0], %1;" : : "l"(to), "r"(static_cast<unsigned>(status)) : "memory");
}

/// The state that enters a tile, `stride` records after the one before it; published with `whole`, the map
/// of the tile, on the way. `initial` enters tile 0. One thread per recurrence and tile calls this.
__device__ inline float entering_state(TileRecord* own, std::int64_t stride, std::int64_t tile,
                                       DecayValue whole, float initial) {
  float state = initial;
  if (tile > 0) {
    own->decay = whole.decay;
    own->value = whole.value;
    store_release(&own->status, TileStatus::has_map);

    DecayValue since{1.0F, 0.0F};
    for (TileRecord* other = own - stride;; other -= stride) {  // ends at tile 0 at the latest: it has no map
      TileStatus status = TileStatus::empty;
      while (status == TileStatus::empty) status = load_acquire(&other->status);
      if (status == TileStatus::has_state) {
        state = since.decay * other->state + since.value;
        break;
      }
      since = combine({other->decay, other->value}, since);
    }
  }
  own->state = whole.decay * state + whole.value;
  store_release(&own->status, TileStatus::has_state);
  return state;
}

/// A launch of `kernel(args, workspace)` on `blocks` blocks, with the workspace zeroed before.
template <class Args>
auto lookback_launch(void (*kernel)(Args, LookbackWorkspace), Args args, void* memory, std::int64_t records,
                     std::int64_t blocks, int threads) {
  return [=](void* stream) {
    const auto queue = static_cast<cudaStream_t>(stream);
    check_cuda(cudaMemsetAsync(memory, 0, lookback_bytes(records), queue));
    kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, queue>>>(
        args, lookback_workspace(memory));
    check_cuda(cudaGetLastError());
  };
}

}  // namespace ssmbench
