#pragma once

// SISO's walks over the states at the borders of chunks and over their gradients: SSD's
// (ssd_chunk_scan/hopper_bwd/states.cuh) with q and k of a head, which a warpgroup makes of Q and K of its group, in
// place, between their copy and their use. Nobody writes them.
//
//   grid    one block per walk of a head, and part of its time, two on a multiprocessor; the gradients' first, which
//           take longer
//
//     warpgroup    registers  role
//     0 producer      32, 40  warp 0 loads, warp 1 stores the states
//     1 turners       80, 72  K or Q of a chunk to k or q: biases, turned, rounded
//     2 walkers          128  SSD's
//
// Packed sequences, with the second shares of registers: a walk takes the chunks of all of them, and its state starts
// anew with each.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper_bwd/turn.cuh"
#include "kernels/ssd_chunk_scan/handed.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/states.cuh"

namespace ssmbench::mamba3_bwd {

/// Arguments of the kernel: in those of SSD B is K, C is Q.
struct TurningWalkArgs {
  ssd::WalkArgs forward, backward;
  const float *k_bias, *q_bias;  ///< (H, N)
  const PhaseTile* phases;       ///< [row][angle tile]
  int angle_tiles;
  SequenceTable table;            ///< null where sequences are not packed; then a walk takes all of them, and
                                  ///< `chunks` are the most that there can be
  const ssd::GradientMaps* maps;  ///< of each sequence
  int sequences;
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

template <class T, Walk kWalk, ssd::WalkPass kPass, bool kPacked>
class TurningWalkBlock : public ssd::WalkBlock<T, kWalk, kPass, 1, TurningWalkLayout<T>> {
  using Base = ssd::WalkBlock<T, kWalk, kPass, 1, TurningWalkLayout<T>>;
  using typename Base::Layout;
  using typename Base::Left;
  using typename Base::Right;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ TurningWalkBlock(const TurningWalkArgs& args, const ssd::WalkArgs& walk, int index)
      : Base(walk, index, 0), all_(args) {
    if constexpr (!kPacked) return;
    const int part = this->index_ % walk.parts;
    const int chunks = __ldg(args.table.begins + args.sequences);
    const int share = chunks / walk.parts;
    const int rest = chunks - share * walk.parts;
    this->begin_ = part * share + min(part, rest);
    if (kWalk == Walk::backward)
      this->begin_ += walk.chunks - chunks;  // chunks that are not there are last in time
    this->end_ = this->begin_ + share + (part < rest ? 1 : 0);
    if (!Base::kImages && this->begin_ < this->end_) skip_to_tail();
  }

  __device__ bool idle() const {
    if constexpr (!kPacked) return Base::idle();
    return Base::kImages ? this->begin_ == this->end_ : is_last_part();
  }

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
    if (kPacked && this->begin_ == this->end_) return;
    int acquired = -1;
    prefetch_phases(this->begin_);
    load_left(this->begin_, left_at, acquired);
    for (int i = this->begin_; i < this->end_; ++i) {
      load_right(i, right_at);
      if (i + 1 >= this->end_) break;
      prefetch_phases(i + 1);
      load_left(i + 1, left_at, acquired);
    }
  }

  /// By a warpgroup, as Base::walk(), with fewer registers: all rings have two slots, coordinates are asked
  /// for anew, the operands of the next chunk are rounded, and no instruction has more sums than fit in the
  /// registers at launch.
  __device__ void walk() const {
    float state[T::kStates / 2];
    enter(state);
    float all_decay = 1.0F;
    typename Layout::Weighed next;
    typename Left::Position at;  // of all rings
    float decay = 1.0F;
    int ends = 0;
    if (!kPacked || this->begin_ < this->end_) {
      ends = ends_of(this->begin_);
      decay = this->weigh(next, ssd::group_thread(), at).decay;
    }
    for (int i = this->begin_; i < this->end_; ++i) {
      if (kPacked && (ends & kFrom) != 0) {
        restart(state, i);
        all_decay = kStartsAnew;
      }
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
      const int ends_here = ends;
      if (i + 1 < this->end_) {
        ends = ends_of(i + 1);
        decay = this->weigh(next, ssd::group_thread(), at).decay;
      }
      hopper::wgmma_wait<0>();
      hopper::pin_registers(state);
      ssd::warp_arrive(this->right_ring().empty(here), ssd::group_thread() % 32);
      if (kPacked && Base::kImages && (ends_here & kTo) != 0 && this->args_.last != nullptr)
        this->finish(state, ssd::group_thread(), state_row(i));
    }
    if constexpr (Base::kImages)
      leave(state);
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
  /// SequenceSpan::ends of chunks at which the walk of a sequence begins and ends.
  static constexpr int kFrom = kWalk == Walk::forward ? SequenceSpan::kOpens : SequenceSpan::kCloses;
  static constexpr int kTo = kFrom ^ SequenceSpan::kOpens ^ SequenceSpan::kCloses;

  __device__ bool is_last_part() const {
    return this->index_ % this->args_.parts == this->args_.parts - 1;
  }
  /// Only the state that a part leaves is asked for: what is before the last sequence that starts in it does
  /// not count, and nothing does where a sequence ends with it.
  __device__ void skip_to_tail() {
    const SequenceSpan last = sequence_chunk(this->end_ - 1);
    if ((last.ends & kTo) != 0) {
      this->begin_ = this->end_;
      return;
    }
    const std::int32_t* const begins = all_.table.begins + last.sequence;
    const int start = kWalk == Walk::forward
                          ? __ldg(begins)
                          : this->args_.chunks - __ldg(begins + 1);  // its place in the walk
    this->begin_ = max(this->begin_, start);
  }
  __device__ SequenceSpan sequence_chunk(int i) const {
    return load_span(all_.table.spans + this->chunk_of(i));
  }
  __device__ int sequence_of(int i) const {
    return sequence_chunk(i).sequence;
  }
  /// (sequence, head) of chunk i. (Of 32 bits: the other operands would stay in registers.)
  __device__ int state_row(int i) const {
    return sequence_of(i) * static_cast<int>(this->args_.in.nheads) + this->head_;
  }
  /// 0 where sequences are not packed: enter() and leave() do it then.
  __device__ int ends_of(int i) const {
    return kPacked ? sequence_chunk(i).ends : 0;
  }

  __device__ void enter(float (&state)[T::kStates / 2]) const {
    if constexpr (!kPacked) return Base::enter(state, ssd::group_thread());
    if (Base::kImages && this->index_ % this->args_.parts > 0)
      return this->take_over(state, ssd::group_thread());
    this->clear(state);
  }
  __device__ void leave(float (&state)[T::kStates / 2]) const {
    if constexpr (!kPacked) Base::leave(state, ssd::group_thread());
  }
  /// The state that the sequence of chunk i starts from.
  __device__ void restart(float (&state)[T::kStates / 2], int i) const {
    this->clear(state);
    if (this->args_.first != nullptr) this->start(state, ssd::group_thread(), state_row(i));
  }

  /// As Base's, of a packed sequence by its own maps. `acquired`: the sequence whose maps have been; `left` is ahead.
  __device__ void load_left(int i, typename Left::Position& at, [[maybe_unused]] int& acquired) const {
    if constexpr (!kPacked) {
      Base::load_left(i, at);
    } else {
      const SequenceSpan of = sequence_chunk(i);
      const ssd::GradientMaps& maps = all_.maps[of.sequence];
      const CUtensorMap& left = kWalk == Walk::forward ? maps.x : maps.dout;
      if (of.sequence != acquired) {
        acquired = of.sequence;
        hopper::acquire_map(left);
        if constexpr (T::kGated) hopper::acquire_map(maps.z);
        hopper::acquire_map(kWalk == Walk::forward ? maps.B : maps.C);
      }
      this->left_ring().wait_empty(at);
      const std::uint32_t full = this->left_ring().full(at);
      hopper::barrier_arrive_expect(full, Layout::kLeft + ssd::kStepsBytes);
      hopper::load_bytes(this->steps_address(at, 0), this->args_.steps + this->row_of(i) * 4 * kSteps,
                         ssd::kStepsBytes, full);
      const hopper::TileOrigin from{{0, this->head_, of.start, 0}};
      hopper::load_tile(this->left_tile(at, 0), left, from, full);
      if constexpr (T::kGated) hopper::load_tile(this->gate_tile(at, 0), maps.z, from, full);
      at.advance();
    }
  }
  __device__ void load_right(int i, typename Right::Position& at) const {
    if constexpr (!kPacked) {
      Base::load_right(i, at);
    } else {
      const SequenceSpan of = sequence_chunk(i);
      const ssd::GradientMaps& maps = all_.maps[of.sequence];
      const CUtensorMap& right = kWalk == Walk::forward ? maps.B : maps.C;
      const int group = this->head_ / static_cast<int>(this->args_.in.heads_per_group);
      this->right_ring().wait_empty(at);
      const std::uint32_t full = this->right_ring().full(at);
      hopper::barrier_arrive_expect(full, Layout::kHalves * kTile);
#pragma unroll
      for (int half = 0; half < Layout::kHalves; ++half)
        hopper::load_tile(this->right_tile(at) + half * kTile, right, {{64 * half, group, of.start, 0}},
                          full);
      at.advance();
    }
  }

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
template <int kStates, bool kGated, ssd::WalkPass kPass, bool kPacked, class Visit>
__device__ __forceinline__ void visit_walk(const TurningWalkArgs& args, const Visit& visit) {
  using Io = __nv_bfloat16;
  const ssd::WalkArgs& backward = args.backward;
  const int blocks = static_cast<int>(backward.in.batch * backward.in.nheads) * backward.parts;
  int block = 0;  // volatile, so that each role takes its own
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  if (block < blocks)
    visit(TurningWalkBlock<ssd::Traits<Io, kStates, kGated>, Walk::backward, kPass, kPacked>(args, backward,
                                                                                             block));
  else
    visit(TurningWalkBlock<ssd::Traits<Io, kStates, false>, Walk::forward, kPass, kPacked>(args, args.forward,
                                                                                           block - blocks));
}

template <int kStates, bool kGated, ssd::WalkPass kPass, bool kPacked>
__global__ void __launch_bounds__(kTurningWalkThreads, 2)
    mamba3_turning_walks_kernel(const __grid_constant__ TurningWalkArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const auto visit_block = [&](const auto& visit) {
    visit_walk<kStates, kGated, kPass, kPacked>(args, visit);
  };
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
    warpgroup_reg_dealloc<kPacked ? 40 : 32>();
    const int thread = ssd::group_thread();
    if (thread == 0)
      visit_block([](const auto& block) { block.load(); });
    else if (kPass == ssd::WalkPass::images && thread == 32)
      visit_block([](const auto& block) { block.store(); });
  } else if (group == 1) {
    if constexpr (kPacked)
      warpgroup_reg_dealloc<72>();
    else
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
