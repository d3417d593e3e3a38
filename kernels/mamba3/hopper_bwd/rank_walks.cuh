#pragma once

// MIMO's walks over the states at the borders of chunks and over their gradients, which make their operands
// themselves, from K and V, or Q and dout, once for each head. The recurrence is that of SSD's walks
// (ssd_chunk_scan/hopper_bwd/states.cuh), rows are (step, rank):
//
//   state_after   = e^decay_last · state_before + Σ_i leave_i·s_i·v_i ⊗ k_i     v = V·MIMO_V
//   dstate_before = e^decay_last · dstate_after + Σ_i enter_i·dy_i ⊗ q_i        dy = dout·MIMO_Out·silu(Z·MIMO_Z)
//
//   grid    one block per walk of a head, and part of its time, two on a multiprocessor; the gradients' first, which
//           take longer. Where there are few heads, time is in parts as in SSD's walks.
//
//     warpgroup    registers  role
//     0 producer          32  warp 0 loads, warp 1 stores the states
//     1 makers            96  v or dy, stored, and times its weights an operand of the walk's products
//     2 walkers          112  the state in f32, P by N: 64 registers; K or Q of the next chunk to k or q in place
//                             while products run: biases, turned, rounded
//
// Of packed sequences a walk has the chunks of all, and its state starts anew with each.
//
// A slot of the ring is loaded with rows of K or Q and the chunk's numbers of steps. It is made once walkers have
// turned these rows and makers have put those of v or dy beside them.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper_bwd/turn.cuh"
#include "kernels/mamba3/tensor_bwd/factors.h"
#include "kernels/ssd_chunk_scan/handed.h"

namespace ssmbench::mamba3_bwd {

/// Arguments of the kernel.
struct RankWalkArgs {
  CUtensorMap of_k, of_q;  ///< K and Q, (B, L·R, G, N), the states of a pair side by side
  Mamba3BwdArgs bwd;
  Plan plan;
  Workspace work;
  const float* first_state;       ///< (B, H, P, N), that sequences start with, or null
  const float* first_dstate;      ///< the same of the gradients of those that they end with
  float* last_dstate;             ///< where the gradients of those that they start with go, or null
  HandedStates handed;            ///< of forward walks, then of backward ones
  int parts;                      ///< of the time of a walk
  const ssd::GradientMaps* maps;  ///< of each packed sequence
};

inline constexpr int kWalkThreads = 3 * ssd::kGroupThreads;

/// Offsets in bytes; tiles are aligned to 1024.
template <int kPaddedStates>
struct RankWalkLayout {
  static constexpr int kStates = kPaddedStates;
  static constexpr int kHalves = kStates / 64;
  static constexpr int kStages = 3;
  static constexpr int kVectors = kHalves * kTile;
  static constexpr int kSlot = kVectors + kTile;          ///< rows of k or q, then those of v or dy
  static constexpr int kImages = kStages * kSlot;         ///< two
  static constexpr int kBiases = kImages + 2 * kVectors;  ///< Workspace::biases of the head's k or q
  static constexpr int kStepRows = kBiases + kMaxRanks * kStates * 4;
  static constexpr int kBarriers = kStepRows + kStages * ssd::kStepsBytes;
  static constexpr int kBytes = kBarriers + 256 + 1024;  // the start is not aligned to 1024
  static_assert(2 * (kBytes + 1024) <= 228 * 1024);
};

/// What a launch computes: the states before all chunks, or those that parts but the last leave.
enum class RankWalkPass { images, parts };

/// A block as one of its roles sees it.
template <int kStates, bool kPacked>
class RankWalkBlock {
  using Io = __nv_bfloat16;
  using Layout = RankWalkLayout<kStates>;
  using Slots = hopper::RelayRing<Layout::kStages>;  ///< loaded, made, and read by products
  using Images = hopper::Ring<2>;
  using State = float[Layout::kHalves][32];
  static constexpr auto kAcross = hopper::Major::rows;
  static constexpr int kLeftRows = 4;  ///< of a maker
  static constexpr int kLeftApart = kSteps / kLeftRows;
  static constexpr int kPrefetched = 3;  ///< chunks from one that is made to one that makers prefetch

 public:
  __device__ RankWalkBlock(const RankWalkArgs& args, RankWalkPass pass)
      : args_(args), has_images_(pass == RankWalkPass::images) {
    const auto nheads = static_cast<int>(args.plan.nheads);
    const int walks = static_cast<int>(args.plan.batch) * nheads * args.parts;
    int block = 0;  // volatile, so that each role takes its own
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    is_forward_ = block >= walks;
    index_ = is_forward_ ? block - walks : block;
    const int row = index_ / args.parts;
    const int part = index_ - row * args.parts;
    b_ = row / nheads;
    head_ = row - b_ * nheads;
    if constexpr (kPacked) chunks_ = __ldg(args.work.table.begins + args.plan.sequences) * args.plan.ranks;
    const int share = chunks() / args.parts;
    const int rest = chunks() - share * args.parts;
    begin_ = part * share + min(part, rest);
    end_ = begin_ + share + (part < rest ? 1 : 0);
    if (!is_forward_) index_ += walks;
    if (kPacked && !has_images_ && begin_ < end_) skip_to_tail();
  }

  /// Whether nobody asks for what the part leaves.
  __device__ bool idle() const {
    if (!has_images_) return end_ == chunks();
    return kPacked && begin_ == end_;
  }

  /// By all threads, which synchronize behind it.
  __device__ void begin() const {
    if (threadIdx.x == 0) {
      slots().init(1, 2 * kWarpsOfGroup, kWarpsOfGroup);
      images().init(kWarpsOfGroup, 1);
      hopper::barrier_init_fence();
    }
    const int count = args_.plan.ranks * kStates;
    const float* const biases = args_.work.biases + (2 * head_ + (is_forward_ ? 1 : 0)) * count;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kWalkThreads)
      pointer<float>(Layout::kBiases)[i] = biases[i];
  }

  /// By one thread.
  __device__ void load() const {
    const Plan& plan = args_.plan;
    const CUtensorMap* map = is_forward_ ? &args_.of_k : &args_.of_q;
    const int group = head_ / static_cast<int>(plan.nheads / plan.groups);
    int acquired = -1;  // the sequence whose map has been
    typename Slots::Position at;
#pragma unroll 1
    for (int i = begin_; i < end_; ++i, at.advance()) {
      int row = chunk_of(i) * kSteps;
      if constexpr (kPacked) {
        const SequenceSpan of = packed_chunk(i);
        row = of.start * plan.ranks;
        if (of.sequence != acquired) {
          acquired = of.sequence;
          map = is_forward_ ? &args_.maps[acquired].B : &args_.maps[acquired].C;
          hopper::acquire_map(*map);
        }
      }
      slots().wait_empty(at);
      const std::uint32_t full = slots().full(at);
      hopper::barrier_arrive_expect(full, Layout::kVectors + ssd::kStepsBytes);
      hopper::load_bytes(steps_address(at), args_.work.steps + row_of(i) * kStepFloats * kSteps,
                         ssd::kStepsBytes, full);
#pragma unroll
      for (int half = 0; half < Layout::kHalves; ++half)
        hopper::load_tile(vectors_tile(at) + half * kTile, *map, {{64 * half, group, row, b_}}, full);
      const int angles = plan.angle_tiles * plan.angle_elements();
      hopper::prefetch_bytes(args_.work.phases + row_of(i) * angles, 4 * angles);
    }
  }

  /// By one thread.
  __device__ void store_images() const {
    if (!has_images_) return;
    void* const to = is_forward_ ? args_.work.states : args_.work.dstates;
    typename Images::Position at;
#pragma unroll 1
    for (int i = begin_; i < end_; ++i, at.advance()) {
      images().wait_full(at);
      hopper::store_bytes(static_cast<unsigned char*>(to) + row_of(i) * Layout::kVectors, image_tile(at),
                          Layout::kVectors);
      hopper::wait_stores_read();
      hopper::barrier_arrive(images().empty(at));
    }
  }

  /// By a warpgroup.
  __device__ void make(int thread) const {
    if (kPacked && begin_ == end_) return;
    if (is_forward_)
      make_all<Walk::forward>(thread);
    else
      make_all<Walk::backward>(thread);
  }

  /// By a warpgroup.
  __device__ void walk(int thread) const {
    State state;
    enter(state, thread);
    float all_decay = 1.0F;
    typename Slots::Position at, turned_at;
    typename Images::Position image_at;
    OwnPhases phases{};
    if (!kPacked || begin_ < end_) {
      phases = load_first_phases(begin_, thread);
      turn_next(begin_, turned_at, phases, thread);
    }
    for (int i = begin_; i < end_; ++i) {
      const int ends = kPacked ? packed_chunk(i).ends : 0;
      if (kPacked && (ends & from_end()) != 0) {
        start(state, packed_chunk(i).sequence, thread);
        all_decay = kStartsAnew;
      }
      if (has_images_) publish(state, thread, image_at);
      const float decay = steps(at)[kStepEnter][kSteps - 1];
      all_decay *= decay;
#pragma unroll
      for (auto& half : state)
#pragma unroll
        for (float& value : half) value *= decay;
      slots().wait_done(at);
      const std::uint64_t left = ssd::tile_operand(rows_tile(at));
#pragma unroll
      for (auto& half : state) hopper::pin_registers(half);
      hopper::wgmma_fence();
#pragma unroll
      for (int half = 0; half < Layout::kHalves; ++half) {
        const std::uint64_t right = ssd::tile_operand(vectors_tile(at) + half * kTile);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          hopper::wgmma<Io, kAcross, kAcross>(state[half], hopper::operand_step<kAcross>(left, k, kTile),
                                              hopper::operand_step<kAcross>(right, k, kTile), true);
      }
      hopper::wgmma_commit();
      if (i + 1 < end_) turn_next(i + 1, turned_at, phases, thread);
      hopper::wgmma_wait<0>();
#pragma unroll
      for (auto& half : state) hopper::pin_registers(half);
      ssd::warp_arrive(slots().empty(at), thread % 32);
      at.advance();
      image_at.advance();
      if (kPacked && has_images_ && (ends & to_end()) != 0) leave(state, packed_chunk(i).sequence, thread);
    }
    if (!has_images_)
      hand_over(state, thread, all_decay);
    else if (!kPacked && end_ == chunks())
      leave(state, b_, thread);
  }

 private:
  __device__ std::uint32_t base() const {
    return (shared_address(ssd::dynamic_shared) + 1023) & ~1023U;
  }
  template <class Element>
  __device__ Element* pointer(int offset) const {
    return reinterpret_cast<Element*>(ssd::dynamic_shared + (base() - shared_address(ssd::dynamic_shared)) +
                                      offset);
  }
  __device__ Slots slots() const {
    return {{base() + Layout::kBarriers}};
  }
  __device__ Images images() const {
    return {base() + Layout::kBarriers + Slots::kBytes};
  }
  __device__ std::uint32_t vectors_tile(typename Slots::Position at) const {
    return base() + at.slot * Layout::kSlot;
  }
  __device__ std::uint32_t rows_tile(typename Slots::Position at) const {
    return vectors_tile(at) + Layout::kVectors;
  }
  __device__ std::uint32_t image_tile(typename Images::Position at) const {
    return base() + Layout::kImages + at.slot * Layout::kVectors;
  }
  __device__ std::uint32_t steps_address(typename Slots::Position at) const {
    return base() + Layout::kStepRows + at.slot * ssd::kStepsBytes;
  }
  __device__ const float (&steps(typename Slots::Position at) const)[kStepFloats][kSteps] {
    return *pointer<const float[kStepFloats][kSteps]>(Layout::kStepRows +
                                                      static_cast<int>(at.slot) * ssd::kStepsBytes);
  }

  __device__ int chunks() const {
    return kPacked ? chunks_ : static_cast<int>(args_.plan.chunks);
  }
  __device__ int chunk_of(int i) const {
    return is_forward_ ? i : chunks() - 1 - i;
  }
  __device__ std::int64_t row_of(int i) const {
    return args_.plan.row(b_, chunk_of(i), head_, args_.plan.nheads);
  }

  // Packed sequences.

  __device__ SequenceSpan packed_chunk(int i) const {
    const int rank_bits = __ffs(args_.plan.ranks) - 1;
    const int chunk = chunk_of(i);
    return chunk_of_span(load_span(args_.work.table.spans + (chunk >> rank_bits)),
                         chunk & args_.plan.ranks - 1, kSteps >> rank_bits);
  }
  /// SequenceSpan::ends of chunks at which the walk of a sequence begins and ends.
  __device__ int from_end() const {
    return is_forward_ ? SequenceSpan::kOpens : SequenceSpan::kCloses;
  }
  __device__ int to_end() const {
    return from_end() ^ SequenceSpan::kOpens ^ SequenceSpan::kCloses;
  }
  /// Only the state that a part leaves is asked for: what is before the last sequence that starts in it does
  /// not count, and nothing does where a sequence ends with it.
  __device__ void skip_to_tail() {
    const SequenceSpan last = packed_chunk(end_ - 1);
    if ((last.ends & to_end()) != 0) {
      begin_ = end_;
      return;
    }
    const std::int32_t* const begins = args_.work.table.begins + last.sequence;
    const int ranks = args_.plan.ranks;
    const int first = is_forward_ ? __ldg(begins) * ranks : chunks_ - __ldg(begins + 1) * ranks;
    begin_ = max(begin_, first);
  }
  /// A chunk's first step, counted through the batch, and how many follow in the sequence.
  struct Steps {
    int first, left;
  };
  __device__ __forceinline__ Steps steps_of(int i) const {
    if constexpr (kPacked) {
      const SequenceSpan of = packed_chunk(i);
      return {of.start, of.steps};
    }
    const int first = chunk_of(i) * args_.plan.chunk_steps;
    return {first, static_cast<int>(args_.plan.seqlen) - first};
  }

  // Makers.

  /// 16 bytes of V, or of dout and Z, for each of a maker's rows. It has every kLeftApart-th row, all of one rank.
  template <Walk kWalk>
  struct Sources {
    uint4 rows[kLeftRows];
    uint4 gates[kWalk == Walk::backward ? kLeftRows : 1];
  };
  /// Factors of a maker's 8 head dims.
  struct Factors {
    Octet outer;  ///< MIMO_V; or MIMO_Out, times MIMO_Z where Z is
    Octet inner;  ///< −log₂e·MIMO_Z
  };
  /// What a maker has of the rows of v or dy.
  struct LeftPlace {
    int row, rank, column;
    bool exists;  ///< its head dims do
  };

  template <Walk kWalk>
  __device__ __forceinline__ void make_all(int thread) const {
    const int rank_bits = __ffs(args_.plan.ranks) - 1;
    const LeftPlace place{thread / 8, thread / 8 & args_.plan.ranks - 1, thread % 8 * kOctet,
                          thread % 8 * kOctet < args_.plan.headdim};
    const Factors factors = load_factors<kWalk>(place);
    Sources<kWalk> sources;
    const SourceRows first = sources_of<kWalk>(place, begin_);
#pragma unroll
    for (int k = 0; k < kLeftRows; ++k) load_source<kWalk>(sources, first, place, k, rank_bits);
    typename Slots::Position at;
    for (int i = begin_; i < end_; ++i, at.advance()) {
      slots().wait_full(at);
      make_rows<kWalk>(sources, factors, place, i, rank_bits, at);
      hopper::fence_async_proxy();
      ssd::warp_arrive(slots().done(at), thread % 32);
      if (i + kPrefetched < end_) prefetch_sources<kWalk>(i + kPrefetched, thread);
    }
  }

  /// What load_source() loads of chunk i to the L2, a row of a head by each thread: the first 64 have V or dout, the
  /// others Z.
  template <Walk kWalk>
  __device__ __forceinline__ void prefetch_sources(int i, int thread) const {
    const Plan& plan = args_.plan;
    const bool is_gate = thread >= kSteps;
    const int ranks = kWalk == Walk::forward || is_gate || args_.bwd.in.scan.reduces_ranks ? 1 : plan.ranks;
    const auto* const from = static_cast<const Io*>(is_gate                  ? args_.bwd.in.Z
                                                    : kWalk == Walk::forward ? args_.bwd.in.V
                                                                             : args_.bwd.dout);
    const int row = thread % kSteps;
    const Steps steps = steps_of(i);
    if (row >= min(plan.chunk_steps, steps.left) * ranks) return;
    if (is_gate && (kWalk == Walk::forward || from == nullptr)) return;
    const std::int64_t at = ((b_ * plan.seqlen + steps.first) * ranks + row) * plan.nheads + head_;
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(__cvta_generic_to_global(from + at * plan.headdim)));
  }

  template <Walk kWalk>
  __device__ Factors load_factors(const LeftPlace& place) const {
    const Mamba3Args& in = args_.bwd.in;
    const auto factor = [&](const float* all, int i) {
      return place.exists ? factor_of(all, args_.plan, head_, place.rank, place.column + i) : 0.0F;
    };
    Factors factors{};
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      factors.outer.state[i] = factor(kWalk == Walk::forward ? in.mimo_v : in.mimo_out, i);
      if (kWalk == Walk::backward && in.Z != nullptr) {
        const float gate = factor(in.mimo_z, i);
        factors.outer.state[i] *= gate;
        factors.inner.state[i] = -kLog2E * gate;
      }
    }
    return factors;
  }

  /// The step of row k of a maker, from the chunk's first one on.
  __device__ static int step_of(const LeftPlace& place, int k, int rank_bits) {
    return place.row + k * kLeftApart >> rank_bits;
  }
  /// Where a maker finds the rows of a chunk.
  struct SourceRows {
    const Io *rows, *gates;
    int steps;     ///< that exist
    bool reduced;  ///< a row for each step, not for each step and rank
  };
  template <Walk kWalk>
  __device__ __forceinline__ SourceRows sources_of(const LeftPlace& place, int i) const {
    const Plan& plan = args_.plan;
    const Steps steps = steps_of(i);
    const int pitch = static_cast<int>(plan.nheads) * plan.headdim;
    const std::int64_t step = b_ * plan.seqlen + steps.first;
    const int of_head = head_ * plan.headdim + place.column;
    const bool reduced = kWalk == Walk::forward || args_.bwd.in.scan.reduces_ranks;
    return {static_cast<const Io*>(kWalk == Walk::forward ? args_.bwd.in.V : args_.bwd.dout) +
                step * pitch * (reduced ? 1 : plan.ranks) + of_head,
            static_cast<const Io*>(args_.bwd.in.Z) + step * pitch + of_head, steps.left, reduced};
  }
  /// Row k of a maker.
  template <Walk kWalk>
  __device__ __forceinline__ void load_source(Sources<kWalk>& to, const SourceRows& of,
                                              const LeftPlace& place, int k, int rank_bits) const {
    const int pitch = static_cast<int>(args_.plan.nheads) * args_.plan.headdim;
    const int t = step_of(place, k, rank_bits);
    const bool exists = place.exists && t < of.steps;
    const uint4 none = make_uint4(0, 0, 0, 0);
    const int from = (of.reduced ? t : place.row + k * kLeftApart) * pitch;
    to.rows[k] = exists ? __ldg(reinterpret_cast<const uint4*>(of.rows + from)) : none;
    if constexpr (kWalk == Walk::backward) {
      if (args_.bwd.in.Z != nullptr)
        to.gates[k] = exists ? __ldg(reinterpret_cast<const uint4*>(of.gates + t * pitch)) : none;
    }
  }

  /// v or dy of chunk i, to memory and, times their weights, to the slot. `sources`: of the chunk, then of the next one:
  /// each row is on its way once the one before it in its registers is made.
  template <Walk kWalk>
  __device__ __forceinline__ void make_rows(Sources<kWalk>& sources, const Factors& factors,
                                            const LeftPlace& place, int i, int rank_bits,
                                            typename Slots::Position at) const {
    const auto& of_steps = steps(at);
    const int first = place.row * 8 + (place.column / kOctet ^ place.row % 8);
    auto* const to = static_cast<uint4*>(kWalk == Walk::forward ? args_.work.v : args_.work.dy) +
                     row_of(i) * (kTile / 16) + first;
    auto* const tile = pointer<uint4>(static_cast<int>(rows_tile(at) - base())) + first;
    const bool is_followed = i + 1 < end_;
    const SourceRows next = sources_of<kWalk>(place, is_followed ? i + 1 : i);
#pragma unroll
    for (int k = 0; k < kLeftRows; ++k) {
      const int row = place.row + k * kLeftApart;
      uint4 made;
      if constexpr (kWalk == Walk::forward) {
        made = multiply(sources.rows[k], factors.outer);
      } else {
        if (args_.bwd.in.Z == nullptr)
          made = multiply(sources.rows[k], factors.outer);
        else
          made = gate(sources.rows[k], sources.gates[k], factors);
      }
      if (is_followed) load_source<kWalk>(sources, next, place, k, rank_bits);
      if (has_images_) to[k * kLeftApart * 8] = made;
      const float weight = kWalk == Walk::forward ? of_steps[kStepDelta][row] * of_steps[kStepLeave][row]
                                                  : of_steps[kStepEnter][row];
      const std::uint32_t high = pack_pair<Io>(weight, weight);
      const float left = weight - unpack_pair<Io>(high).x;
      const std::uint32_t low = pack_pair<Io>(left, left);
      const auto weigh = [&](std::uint32_t pair) { return multiply_pairs<Io>(pair, high, low); };
      tile[k * kLeftApart * 8] = make_uint4(weigh(made.x), weigh(made.y), weigh(made.z), weigh(made.w));
    }
  }

  __device__ __forceinline__ static uint4 multiply(const uint4& from, const Octet& factors) {
    const auto of_pair = [&](std::uint32_t pair, int j) {
      const float2 x = unpack_pair<Io>(pair);
      return pack_pair<Io>(x.x * factors.state[2 * j], x.y * factors.state[2 * j + 1]);
    };
    return make_uint4(of_pair(from.x, 0), of_pair(from.y, 1), of_pair(from.z, 2), of_pair(from.w, 3));
  }
  /// dout·MIMO_Out·silu(Z·MIMO_Z). Where e^-z overflows the gate is 0 and not the -1e-36 or less that it should be.
  __device__ __forceinline__ static uint4 gate(const uint4& from, const uint4& gates,
                                               const Factors& factors) {
    const auto one = [&](float dout, float z, int n) {
      const float open = reciprocal_approximate(1.0F + exp2_approximate(z * factors.inner.state[n]));
      return dout * z * factors.outer.state[n] * open;
    };
    const auto of_pair = [&](std::uint32_t pair, std::uint32_t of_gates, int j) {
      const float2 dout = unpack_pair<Io>(pair);
      const float2 z = unpack_pair<Io>(of_gates);
      return pack_pair<Io>(one(dout.x, z.x, 2 * j), one(dout.y, z.y, 2 * j + 1));
    };
    return make_uint4(of_pair(from.x, gates.x, 0), of_pair(from.y, gates.y, 1), of_pair(from.z, gates.z, 2),
                      of_pair(from.w, gates.w, 3));
  }

  // Walkers.

  /// k or q of chunk i. `phases`: load_first_phases() of it, then of the next one.
  __device__ __forceinline__ void turn_next(int i, typename Slots::Position& at, OwnPhases& phases,
                                            int thread) const {
    const int tiles = args_.plan.angle_tiles;
    slots().wait_full(at);
#pragma unroll 1
    for (int half = Layout::kHalves - 1; half >= 0; --half) {
      const std::uint32_t tile = vectors_tile(at) + half * kTile;
      if (half >= tiles) {
        turn_half<false>(tile, half, phases, thread);
        continue;
      }
      turn_half<true>(tile, half, phases, thread);
      if (half > 0) phases = load_phases(i, half - 1, thread);
    }
    if (i + 1 < end_) phases = load_first_phases(i + 1, thread);
    hopper::fence_async_proxy();
    ssd::warp_arrive(slots().done(at), thread % 32);
    at.advance();
  }

  /// Of the tile that is turned first.
  __device__ __forceinline__ OwnPhases load_first_phases(int i, int thread) const {
    return load_phases(i, args_.plan.angle_tiles - 1, thread);
  }
  /// A walker's phases of a tile of angles: load_own_phases(), of any rank.
  __device__ __forceinline__ OwnPhases load_phases(int i, int tile, int thread) const {
    const int rank_bits = __ffs(args_.plan.ranks) - 1;
    const int elements = args_.plan.angle_elements();
    const int own = (thread / 32 * 32 >> rank_bits) + (thread % 32 / 4 >> rank_bits) * 4 + thread % 4;
    const auto* const from = reinterpret_cast<const uint4*>(
                                 args_.work.phases + (row_of(i) * args_.plan.angle_tiles + tile) * elements) +
                             own;
    const int apart = ssd::kGroupThreads >> rank_bits;
    OwnPhases phases;
#pragma unroll
    for (int j = 0; j < kOwnVectors; ++j) phases.vectors[j] = __ldg(from + j * apart);
    return phases;
  }

  /// 64 states of a warp's 16 rows of K or Q, in place.
  template <bool kTurned>
  __device__ __forceinline__ void turn_half(std::uint32_t tile, int half, const OwnPhases& phases,
                                            int thread) const {
    const int lane = thread % 32;
    const int ranks = args_.plan.ranks;
    const std::uint32_t fragment = tile + hopper::fragment_offset(thread / 32, lane);
    const float4* const biases =
        pointer<const float4>(Layout::kBiases) + (4 * half * ranks + (lane / 4 & ranks - 1)) * 4 + lane % 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t x[4];
      load_matrices(x, fragment ^ j * 32);
      const float4 bias = biases[j * ranks * 4];
      const uint4 vector = phases.vectors[j];
      const std::uint32_t own[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float2 pair = plus(x[i], bias, i);
        if constexpr (kTurned) pair = turn_pair(pair, turn_of(own[i]));
        x[i] = pack_pair<Io>(pair.x, pair.y);
      }
      hopper::store_matrices(fragment ^ j * 32, x[0], x[1], x[2], x[3]);
    }
  }

  /// The state as a chunk's image.
  __device__ __forceinline__ void publish(const State& state, int thread,
                                          typename Images::Position at) const {
    images().wait_empty(at);
    const std::uint32_t tile = image_tile(at) + hopper::fragment_offset(thread / 32, thread % 32);
#pragma unroll
    for (int j = 0; j < kStates / 16; ++j) {
      const float* const from = state[j / 4] + 8 * (j % 4);
      hopper::store_matrices((tile ^ j % 4 * 32) + j / 4 * kTile, pack_pair<Io>(from[0], from[1]),
                             pack_pair<Io>(from[2], from[3]), pack_pair<Io>(from[4], from[5]),
                             pack_pair<Io>(from[6], from[7]));
    }
    hopper::fence_async_proxy();
    ssd::warp_arrive(images().full(at), thread % 32);
  }

  /// visit(where in a (B, H, P, N) tensor, a pair of values) for this thread's elements that exist. N is a multiple
  /// of 8.
  template <class Visit>
  __device__ void for_each_pair(State& state, int sequence, int thread, const Visit& visit) const {
    const Plan& plan = args_.plan;
    const int p = thread / 32 * 16 + thread % 32 / 4;
    const std::int64_t upper =
        ((sequence * plan.nheads + head_) * plan.headdim + p) * plan.dstate + thread % 4 * 2;
    const std::int64_t lower = upper + 8 * plan.dstate;
#pragma unroll
    for (int e = 0; e < kStates / 8; ++e) {
      if (8 * e >= plan.dstate) break;
      float* const values = state[e / 8] + 4 * (e % 8);
      if (p < plan.headdim) visit(upper + 8 * e, values[0], values[1]);
      if (p + 8 < plan.headdim) visit(lower + 8 * e, values[2], values[3]);
    }
  }

  __device__ void enter(State& state, int thread) const {
    if (has_images_ && begin_ > 0) {  // what the part before has left
      const float* const from = handed(index_ - 1) + thread;
#pragma unroll
      for (int i = 0; i < kStates / 2; ++i) state[i / 32][i % 32] = from[i * ssd::kGroupThreads];
      return;
    }
    // The first chunk of packed ones starts its own.
    start(state, kPacked || begin_ > 0 ? -1 : b_, thread);
  }
  /// The state that a sequence starts from; 0 where there is none.
  __device__ void start(State& state, int sequence, int thread) const {
#pragma unroll
    for (int i = 0; i < kStates / 2; ++i) state[i / 32][i % 32] = 0.0F;
    const float* const from = is_forward_ ? args_.first_state : args_.first_dstate;
    if (from == nullptr || sequence < 0) return;
    for_each_pair(state, sequence, thread, [&](std::int64_t at, float& first, float& second) {
      const float2 pair = *reinterpret_cast<const float2*>(from + at);
      first = pair.x;
      second = pair.y;
    });
  }

  /// The gradient of the state that a sequence starts from.
  __device__ void leave(State& state, int sequence, int thread) const {
    if (is_forward_ || args_.last_dstate == nullptr) return;
    for_each_pair(state, sequence, thread, [&](std::int64_t at, float first, float second) {
      *reinterpret_cast<float2*>(args_.last_dstate + at) = make_float2(first, second);
    });
  }

  __device__ float* handed(int index) const {
    return args_.handed.states + static_cast<std::int64_t>(index) * (kStates / 2) * ssd::kGroupThreads;
  }
  __device__ void hand_over(const State& state, int thread, float decay) const {
    float* const to = handed(index_) + thread;
#pragma unroll
    for (int i = 0; i < kStates / 2; ++i) to[i * ssd::kGroupThreads] = state[i / 32][i % 32];
    if (thread == 0) args_.handed.decays[index_] = decay;
  }

  const RankWalkArgs& args_;
  bool has_images_, is_forward_;
  int index_;  ///< of the part, among those of all walks
  int b_, head_;
  int begin_, end_;  ///< chunks of the part, in the order of the walk
  int chunks_;       ///< of packed sequences
};

/// `pass`: what is computed.
template <int kStates, bool kPacked>
__global__ void __launch_bounds__(kWalkThreads, 2)
    mamba3_rank_walks_kernel(const __grid_constant__ RankWalkArgs args, RankWalkPass pass) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Block = RankWalkBlock<kStates, kPacked>;
  if (Block(args, pass).idle()) return;
  Block(args, pass).begin();
  __syncthreads();
  // Uniform, and known to be so.
  const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / ssd::kGroupThreads, 0);
  if (group == 0) {
    warpgroup_reg_dealloc<32>();
    const int thread = ssd::group_thread();
    if (thread == 0)
      Block(args, pass).load();
    else if (thread == 32)
      Block(args, pass).store_images();
  } else if (group == 1) {
    warpgroup_reg_alloc<kPacked ? 88 : 96>();
    Block(args, pass).make(ssd::group_thread());
  } else {
    warpgroup_reg_alloc<kPacked ? 120 : 112>();
    Block(args, pass).walk(ssd::group_thread());
  }
#else
  __trap();
#endif
}

}  // namespace ssmbench::mamba3_bwd
