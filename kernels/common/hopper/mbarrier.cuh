#pragma once

// Barriers in shared memory (mbarrier), and ring buffers that are guarded by pairs of them. Addresses are
// those of shared memory, 32 bits wide.
//
// Source: PTX ISA, "mbarrier"; the naming of full and empty barriers is CUTLASS's.

#include <cstdint>

// Older GPUs than compute capability 9.0 trap; code for them compiles.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SSMBENCH_NEEDS_SM90(...) __trap()
#else
#define SSMBENCH_NEEDS_SM90(...) __VA_ARGS__
#endif

namespace ssmbench::hopper {

inline constexpr int kBarrierBytes = 8;

/// A phase of the barrier ends with `arrivals` arrivals and all bytes that arrivals announced.
__device__ inline void barrier_init(std::uint32_t barrier, int arrivals) {
  SSMBENCH_NEEDS_SM90(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals)
                                   : "memory"));
}

/// After the initialization of all barriers, before the block's barrier that lets others use them.
__device__ inline void barrier_init_fence() {
  SSMBENCH_NEEDS_SM90(asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"));
  SSMBENCH_NEEDS_SM90(asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"));
}

__device__ inline void barrier_arrive(std::uint32_t barrier) {
  SSMBENCH_NEEDS_SM90(asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n" ::"r"(barrier)
                                   : "memory"));
}

/// Arrives, and announces the bytes of the copies that complete on the barrier.
__device__ inline void barrier_arrive_expect(std::uint32_t barrier, int bytes) {
  SSMBENCH_NEEDS_SM90(asm volatile(
      "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
      : "memory"));
}

/// Waits for a while, and says whether the barrier's phase of this parity has ended. A loop of these is one that
/// the compiler knows: it moves code ahead of it, which it does not with barrier_wait().
__device__ inline bool barrier_try_wait(std::uint32_t barrier, std::uint32_t parity) {
  unsigned has_ended = 0;
  SSMBENCH_NEEDS_SM90(
      asm volatile("{\n"
                   ".reg .pred done;\n"
                   "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n"
                   "selp.u32 %0, 1, 0, done;\n"
                   "}\n"
                   : "=r"(has_ended)
                   : "r"(barrier), "r"(parity)
                   : "memory"));
  return has_ended != 0;
}

/// Waits until the barrier's phase of this parity has ended. The phase before a barrier's first counts as
/// ended: parity 1 does not wait on a fresh barrier.
__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  SSMBENCH_NEEDS_SM90(
      asm volatile("{\n"
                   ".reg .pred done;\n"
                   "WAIT:\n"
                   "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
                   "@done bra DONE;\n"
                   "bra WAIT;\n"
                   "DONE:\n"
                   "}\n" ::"r"(barrier),
                   "r"(parity)
                   : "memory"));
}

/// What this thread wrote to shared memory is seen by tensor cores and copy engine once the thread that
/// starts them has synchronized with this one.
__device__ inline void fence_async_proxy() {
  SSMBENCH_NEEDS_SM90(asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"));
}

/// The slot of a ring that a role is at, and the parity of its use.
template <int kDepth>
struct RingPosition {
  std::uint32_t slot = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    if (++slot == kDepth) {
      slot = 0;
      parity ^= 1;
    }
  }
};

/// The positions of a role that goes through several rings in step, one for each depth. Converts to that of
/// any of the rings.
struct RingPositions {
  RingPosition<1> one;
  RingPosition<2> two;
  RingPosition<3> three;
  RingPosition<4> four;

  __device__ void advance() {
    one.advance();
    two.advance();
    three.advance();
    four.advance();
  }
  template <int kDepth>
  __device__ operator RingPosition<kDepth>() const {
    static_assert(kDepth >= 1 && kDepth <= 4);
    if constexpr (kDepth == 1)
      return one;
    else if constexpr (kDepth == 2)
      return two;
    else if constexpr (kDepth == 3)
      return three;
    else
      return four;
  }
};

/// The barriers of a ring buffer: per slot one that says that it is full, and one that it is empty again.
template <int kDepth>
struct Ring {
  static constexpr int kBytes = 2 * kDepth * kBarrierBytes;
  using Position = RingPosition<kDepth>;
  std::uint32_t barriers;

  __device__ std::uint32_t full(const Position& at) const { return barriers + at.slot * kBarrierBytes; }
  __device__ std::uint32_t empty(const Position& at) const {
    return barriers + (kDepth + at.slot) * kBarrierBytes;
  }
  __device__ void init(int fillers, int readers) const {
    for (Position at; at.parity == 0; at.advance()) {
      barrier_init(full(at), fillers);
      barrier_init(empty(at), readers);
    }
  }
  __device__ void wait_full(const Position& at) const { barrier_wait(full(at), at.parity); }
  __device__ void wait_empty(const Position& at) const { barrier_wait(empty(at), at.parity ^ 1); }
};

/// A ring whose slots are worked on in place: filled, then done, then empty again.
template <int kDepth>
struct RelayRing : Ring<kDepth> {
  static constexpr int kBytes = 3 * kDepth * kBarrierBytes;
  using Position = RingPosition<kDepth>;

  __device__ std::uint32_t done(const Position& at) const {
    return this->barriers + (2 * kDepth + at.slot) * kBarrierBytes;
  }
  __device__ void init(int fillers, int workers, int readers) const {
    Ring<kDepth>::init(fillers, readers);
    for (Position at; at.parity == 0; at.advance()) barrier_init(done(at), workers);
  }
  __device__ void wait_done(const Position& at) const { barrier_wait(done(at), at.parity); }
};

}  // namespace ssmbench::hopper
