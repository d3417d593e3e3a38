#pragma once

// SISO's walks over the states at the borders of chunks and over their gradients: SSD's
// (ssd_chunk_scan/hopper_bwd/states.cuh) with q and k of a head, which a warpgroup makes of Q and K of its group, in
// place, between their copy and their use. Nobody writes them.
//
//   grid    one block per walk of a head, and part of its time, two on a multiprocessor; the gradients' first, which
//           take longer
//
//     warpgroup    registers  role
//     0 producer          32  warp 0 loads, warp 1 stores the states
//     1 turners           80  K or Q of a chunk to k or q: biases, turned, rounded
//     2 walkers          128  SSD's

#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper_bwd/turn.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/states.cuh"

namespace ssmbench::mamba3_bwd {

/// Arguments of the kernel: in those of SSD B is K, C is Q.
struct TurningWalkArgs {
  ssd::WalkArgs forward, backward;
  const float *k_bias, *q_bias;  ///< (H, N)
  const PhaseTile* phases;       ///< [row][angle tile]
  int angle_tiles;
};

inline constexpr int kTurningWalkThreads = 3 * ssd::kGroupThreads;

template <class T>
struct TurningWalkLayout {
  static constexpr int kHalves = T::kStates / 64;
  static constexpr int kStages = 2;
  static constexpr int kLeft = (1 + T::kGated) * kTile;
  static constexpr int kLoaded = kLeft + kHalves * kTile;
  static constexpr int kImages = kStages * kLoaded;  ///< two
  static constexpr int kStepRows = kImages + 2 * kHalves * kTile;
  static constexpr int kBiases = kStepRows + kStages * ssd::kStepsBytes;
  static constexpr int kBarriers = kBiases + T::kStates * 4;
  static constexpr int kBytes = kBarriers + 256 + 1024;  // the start is not aligned to 1024
  static_assert(2 * (kBytes + 1024) <= 228 * 1024);

  using Right = hopper::RelayRing<kStages>;
  using Weighed = std::uint32_t[16];  ///< rounded: half of the registers
};

template <class T, Walk kWalk, ssd::WalkPass kPass>
class TurningWalkBlock : public ssd::WalkBlock<T, kWalk, kPass, 1, TurningWalkLayout<T>> {
  using Base = ssd::WalkBlock<T, kWalk, kPass, 1, TurningWalkLayout<T>>;
  using typename Base::Layout;
  using typename Base::Left;
  using typename Base::Right;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ TurningWalkBlock(const TurningWalkArgs& args, const ssd::WalkArgs& walk, int index)
      : Base(walk, index, 0), all_(args) {}

  /// By all threads, which synchronize behind it.
  __device__ void begin() const {
    if (threadIdx.x == 0) {
      this->left_ring().init(1, ssd::kGroupThreads);
      this->right_ring().init(1, kWarpsOfGroup, kWarpsOfGroup);
      this->images(0).init(kWarpsOfGroup, 1);
      hopper::barrier_init_fence();
    }
    const auto dstate = static_cast<int>(this->args_.in.dstate);
    const float* const from =
        (kWalk == Walk::forward ? all_.k_bias : all_.q_bias) + std::int64_t{this->head_} * dstate;
    for (int n = static_cast<int>(threadIdx.x); n < T::kStates; n += kTurningWalkThreads)
      biases()[n] = n < dstate ? from[n] : 0.0F;
  }

  /// By one thread, as Base::load(); phases to the L2, a chunk ahead.
  __device__ void load() const {
    typename Left::Position left_at;
    typename Right::Position right_at;
    prefetch_phases(this->begin_);
    this->load_left(this->begin_, left_at);
    for (int i = this->begin_; i < this->end_; ++i) {
      this->load_right(i, right_at);
      if (i + 1 >= this->end_) break;
      prefetch_phases(i + 1);
      this->load_left(i + 1, left_at);
    }
  }

  /// By a warpgroup, as Base::walk(), with fewer registers: all rings have two slots, places are asked for anew, the operands of the next chunk are
  /// rounded, and no instruction has more sums than fit in the registers at launch.
  __device__ void walk() const {
    float state[T::kStates / 2];
    this->enter(state, ssd::group_thread());
    float all_decay = 1.0F;
    typename Layout::Weighed next;
    typename Left::Position at;  // of all rings
    float decay = this->weigh(next, ssd::group_thread(), at).decay;
    for (int i = this->begin_; i < this->end_; ++i) {
      if constexpr (Base::kImages)
        this->publish(state, 1.0F, 0, ssd::group_thread(), at);
      else
        all_decay *= decay;
#pragma unroll
      for (float& value : state) value *= decay;
      std::uint32_t weighed[16];
#pragma unroll
      for (int k = 0; k < 16; ++k)  // copies that ptxas leaves alone: products are under way as next is made
        weighed[k] = next[k] ^ static_cast<std::uint32_t>(this->args_.chunks < 0);
      this->right_ring().wait_done(at);
      hopper::pin_registers(state);
      hopper::pin_registers(weighed);
      hopper::wgmma_fence();
#pragma unroll
      for (int half = 0; half < Layout::kHalves; ++half) {
        auto& of_half = reinterpret_cast<float(&)[32]>(state[32 * half]);
        const std::uint64_t right = ssd::tile_operand(this->right_tile(at) + half * kTile);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          hopper::wgmma<typename T::Io, kAcross>(of_half, weighed + 4 * k,
                                                 hopper::operand_step<kAcross>(right, k, kTile), true);
      }
      hopper::wgmma_commit();
      hopper::barrier_arrive(this->left_ring().empty(at));  // not in weigh(), as SSD's
      const typename Left::Position here = at;
      at.advance();
      if (i + 1 < this->end_) decay = this->weigh(next, ssd::group_thread(), at).decay;
      hopper::wgmma_wait<0>();
      hopper::pin_registers(state);
      ssd::warp_arrive(this->right_ring().empty(here), ssd::group_thread() % 32);
    }
    if constexpr (Base::kImages)
      this->leave(state, ssd::group_thread());
    else
      this->hand_over(state, ssd::group_thread(), all_decay);
  }

  /// By a warpgroup.
  __device__ void turn(int thread) const {
    const int tiles = all_.angle_tiles;
    typename Right::Position at;
#pragma unroll 1
    for (int i = this->begin_; i < this->end_; ++i, at.advance()) {
      const PhaseTile* const phases = all_.phases + this->row_of(i) * tiles;
      ThreadPhases own = load_thread_phases(phases, thread);
      this->right_ring().wait_full(at);
#pragma unroll 1
      for (int half = 0; half < Layout::kHalves; ++half) {
        const std::uint32_t tile[1] = {this->right_tile(at) + half * kTile};
        const float* const bias[1] = {biases() + 64 * half};
        if (half >= tiles) {
          shift_rows(tile, bias, thread);
          continue;
        }
        if (half > 0) own = load_thread_phases(phases + half, thread);
        turn_rows(tile, bias, own, thread);
      }
      hopper::fence_async_proxy();
      ssd::warp_arrive(this->right_ring().done(at), thread % 32);
    }
  }

 private:
  __device__ float* biases() const {
    const std::uint32_t offset = this->base() + Layout::kBiases - shared_address(ssd::dynamic_shared);
    return reinterpret_cast<float*>(ssd::dynamic_shared + offset);
  }
  __device__ void prefetch_phases(int i) const {
    hopper::prefetch_bytes(all_.phases + this->row_of(i) * all_.angle_tiles,
                           all_.angle_tiles * static_cast<int>(sizeof(PhaseTile)));
  }

  const TurningWalkArgs& all_;
};

/// visit(the block that this one is). The gradients' walks first.
template <int kStates, bool kGated, ssd::WalkPass kPass, class Visit>
__device__ __forceinline__ void visit_walk(const TurningWalkArgs& args, const Visit& visit) {
  using Io = __nv_bfloat16;
  const ssd::WalkArgs& backward = args.backward;
  const int blocks = static_cast<int>(backward.in.batch * backward.in.nheads) * backward.parts;
  int block = 0;  // volatile, so that each role takes its own
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  if (block < blocks)
    visit(TurningWalkBlock<ssd::Traits<Io, kStates, kGated>, Walk::backward, kPass>(args, backward, block));
  else
    visit(TurningWalkBlock<ssd::Traits<Io, kStates, false>, Walk::forward, kPass>(args, args.forward,
                                                                                  block - blocks));
}

template <int kStates, bool kGated, ssd::WalkPass kPass>
__global__ void __launch_bounds__(kTurningWalkThreads, 2)
    mamba3_turning_walks_kernel(const __grid_constant__ TurningWalkArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const auto visit_block = [&](const auto& visit) { visit_walk<kStates, kGated, kPass>(args, visit); };
  bool idle = false;
  visit_block([&](const auto& block) {
    idle = block.idle();
    if (!idle) block.begin();
  });
  if (idle) return;
  __syncthreads();
  // Uniform, and known to be so.
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / ssd::kGroupThreads, 0);
  if (group == 0) {
    warpgroup_reg_dealloc<32>();
    const int thread = ssd::group_thread();
    if (thread == 0)
      visit_block([](const auto& block) { block.load(); });
    else if (kPass == ssd::WalkPass::images && thread == 32)
      visit_block([](const auto& block) { block.store(); });
  } else if (group == 1) {
    warpgroup_reg_alloc<80>();
    visit_block([](const auto& block) { block.turn(ssd::group_thread()); });
  } else {
    warpgroup_reg_alloc<128>();
    visit_block([](const auto& block) { block.walk(); });
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::mamba3_bwd
