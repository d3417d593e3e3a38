#pragma once

#include <cstddef>
#include <cuda/atomic>

#include "device/cuda_check.h"
#include "kernels/common/scalar_math.h"
#include "kernels/common/scan/lookback_map.h"

// Single-pass scan across blocks by decoupled look-back: every input is read once.
//
//   chunk of time     0           1            2            3
//   block           scan        scan         scan         scan        all at once, in any order
//   publishes     [state]    (decay,value) (decay,value)    |
//                     ^─────────────^────────────^──────────┘         looks back: combines the maps of the
//                                                                     chunks before until it meets a state
//   then                       [state]      [state]      [state]      publishes the state at its own end
//
// Blocks take tiles by ticket, chunk by chunk: what a tile waits for belongs to blocks that already run, so
// that it ends whatever order the hardware starts blocks in. How far a block looks back depends on timing,
// and with it the order of the roundings: results can differ in the last bits from run to run.
//
// Work: two passes of combinations within a chunk, and a look-back per chunk. Workspace: 16 bytes per
// recurrence and chunk, and the ticket.
//
// Source: Merrill & Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (NVIDIA
// NVR-2016-002), section 4.

namespace ssmbench {

enum class ChunkStatus : unsigned { empty = 0, has_map = 1, has_state = 2 };

/// What a chunk of one recurrence tells those after it.
struct ChunkRecord {
  float decay, value;  ///< the map of the whole chunk, from has_map on
  float state;         ///< the state at its end, from has_state on
  ChunkStatus status;
};

/// The workspace: all bytes are zero before a launch.
struct LookbackWorkspace {
  unsigned long long* next_ticket;
  ChunkRecord* records;
};

inline constexpr std::size_t kTicketBytes = 256;  // keeps the records aligned and the ticket on its own line

inline std::size_t lookback_bytes(std::int64_t records) {
  return kTicketBytes + static_cast<std::size_t>(records) * sizeof(ChunkRecord);
}

inline LookbackWorkspace lookback_workspace(void* memory) {
  return {static_cast<unsigned long long*>(memory),
          reinterpret_cast<ChunkRecord*>(static_cast<std::byte*>(memory) + kTicketBytes)};
}

/// The block's tile number, for all its threads; has a barrier within.
__device__ inline std::int64_t take_ticket(const LookbackWorkspace& workspace) {
  __shared__ unsigned long long ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(workspace.next_ticket, 1ULL);
  __syncthreads();
  return static_cast<std::int64_t>(ticket);
}

using StatusRef = cuda::atomic_ref<ChunkStatus, cuda::thread_scope_device>;

/// The state that enters a chunk, `stride` records after the one before it; published with `whole`, the map
/// of the chunk, on the way. `initial` enters chunk 0. One thread per recurrence and chunk calls this.
__device__ inline float entering_state(ChunkRecord* own, std::int64_t stride, std::int64_t chunk,
                                       DecayValue whole, float initial) {
  float state = initial;
  if (chunk > 0) {
    own->decay = whole.decay;
    own->value = whole.value;
    StatusRef(own->status).store(ChunkStatus::has_map, cuda::memory_order_release);

    DecayValue since{1.0F, 0.0F};
    for (ChunkRecord* other = own - stride;;
         other -= stride) {  // ends at chunk 0 at the latest: it has no map
      ChunkStatus status = ChunkStatus::empty;
      while (status == ChunkStatus::empty) status = StatusRef(other->status).load(cuda::memory_order_acquire);
      if (status == ChunkStatus::has_state) {
        state = since.decay * other->state + since.value;
        break;
      }
      since = combine({other->decay, other->value}, since);
    }
  }
  own->state = whole.decay * state + whole.value;
  StatusRef(own->status).store(ChunkStatus::has_state, cuda::memory_order_release);
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
