#pragma once

// The producer warps of the SISO scan of two heads: one loads tiles, one stores out, and one for each head
// has its chunks' decays and the angles before them.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/mamba3/hopper/pairs/turn.cuh"
#include "kernels/ssd_chunk_scan/hopper/scalars.cuh"

namespace ssmbench::mamba3_pairs {

/// A chunk of the block's work, as a thread keeps it that has few registers: its item is computed where it is
/// needed.
class ChunkCursor {
 public:
  __device__ explicit ChunkCursor(const Plan& plan) : plan_(plan) {
    if (!done()) chunk_ = segment().first;
  }
  __device__ bool done() const { return index_ >= plan_.segments(block()); }
  __device__ void advance() {
    if (++chunk_ < segment().end) return;
    ++index_;
    if (!done()) chunk_ = segment().first;
  }
  __device__ int chunk() const { return chunk_; }
  /// Whether the chunk is the first of its item.
  __device__ bool begins() const { return chunk_ == 0; }
  __device__ Item item() const { return plan_.item(segment().item); }

 private:
  __device__ Segment segment() const { return plan_.segment(block(), index_); }
  /// Volatile, so that nothing that follows from it is kept either.
  __device__ static int block() {
    int index = 0;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
  }

  const Plan& plan_;
  int index_ = 0;
  int chunk_ = 0;
};

/// The tile of an item's head, of V, Z or out. That of an absent head lies outside of the tensor.
__device__ inline hopper::TileOrigin head_tile(const HopperArgs& args, const ChunkCursor& cursor, int head) {
  const Item item = cursor.item();
  const RowTile tile = item.tile(head);
  return {{tile.row, tile.head < 0 ? static_cast<int>(args.ssd.in.nheads) : tile.head,
           cursor.chunk() * kSteps, item.b}};
}

/// By one thread.
template <class T>
class TileLoader {
  using Shared = SharedMemory<T>;

 public:
  __device__ explicit TileLoader(const HopperArgs& args) : args_(args) {}

  /// Slots come free in the order K, Q, phases, V, Z: the first two for a chunk ahead, the others for two.
  __device__ void run() {
    ChunkCursor raw(args_.plan);
    ChunkCursor own(args_.plan);
    load_raw(raw);
    for (int ahead = 0; ahead < kLoadDepth && !own.done(); ++ahead) load_own(own);
#pragma unroll 1
    while (!raw.done()) {
      load_raw(raw);
      if (!own.done()) load_own(own);
    }
  }

 private:
  __device__ void load_raw(ChunkCursor& cursor) {
    const Item item = cursor.item();
    const int step = cursor.chunk() * kSteps;
    load_row(shared_.raw_k(), args_.B, shared_.raw_k_tile(raw_at_), item, step);
    load_row(shared_.raw_q(), args_.C, shared_.raw_q_tile(raw_at_), item, step);
    raw_at_.advance();
    cursor.advance();
  }
  __device__ void load_row(const typename Shared::Raw& ring, const CUtensorMap& map, std::uint32_t tile,
                           const Item& item, int step) const {
    ring.wait_empty(raw_at_);
    hopper::barrier_arrive_expect(ring.full(raw_at_), T::Layout::kRow);
#pragma unroll
    for (int half = 0; half < T::Layout::kHalves; ++half)
      hopper::load_tile(tile + half * kTile, map, {{64 * half, item.group, step, item.b}},
                        ring.full(raw_at_));
  }
  __device__ void load_own(ChunkCursor& cursor) {
#pragma unroll 1
    for (int head = 0; head < kHeads; ++head) {
      hopper::TileOrigin from = head_tile(args_, cursor, head);
      from.at[0] = 0;
      load(shared_.phases(head), args_.rotation.phases, shared_.phase_tile(head, at_), kPhaseBytes, from);
    }
#pragma unroll 1
    for (int head = 0; head < kHeads; ++head)
      load(shared_.x(head), args_.x, shared_.x_tile(head, at_), kTile, head_tile(args_, cursor, head));
    if constexpr (T::kGated)
#pragma unroll 1
      for (int head = 0; head < kHeads; ++head)
        load(shared_.gates(head), args_.z, shared_.gate_tile(head, at_), kTile,
             head_tile(args_, cursor, head));
    at_.advance();
    cursor.advance();
  }
  template <class Ring>
  __device__ void load(const Ring& ring, const CUtensorMap& map, std::uint32_t tile, int bytes,
                       const hopper::TileOrigin& from) const {
    ring.wait_empty(at_);
    hopper::barrier_arrive_expect(ring.full(at_), bytes);
    hopper::load_tile(tile, map, from, ring.full(at_));
  }

  const HopperArgs& args_;
  Shared shared_;
  ChunkCount raw_at_, at_;
};

/// By one thread.
template <class T>
__device__ void store_tiles(const HopperArgs& args) {
  const SharedMemory<T> shared;
  ChunkCount at;
#pragma unroll 1
  for (ChunkCursor cursor(args.plan); !cursor.done(); cursor.advance(), at.advance())
#pragma unroll 1
    for (int head = 0; head < kHeads; ++head) {
      const auto ring = shared.gates(head);
      ring.wait_done(at);
      hopper::store_tile(args.out, head_tile(args, cursor, head), shared.gate_tile(head, at));
      hopper::wait_stores_read();
      hopper::barrier_arrive(ring.empty(at));
    }
}

/// A lane has a pair's angle before each chunk.
template <class T>
class AngleSums {
 public:
  __device__ AngleSums(const HopperArgs& args, int head) : args_(args), head_(head) {}

  __device__ void start(const Item& item) {
    const int column = column_of(item);
    sum_ = 0;
    if (column >= 0 && args_.rotation.input_angle != nullptr)
      sum_ = phase_of_radians(args_.rotation.input_angle[item.b * row() + column]);
  }
  /// What the chunk adds.
  __device__ void load(const Item& item, int chunk) {
    const int column = column_of(item);
    next_ = 0;
    if (column >= 0) next_ = args_.rotation.of_chunks[(first_row(item) + chunk) * row() + column];
  }
  __device__ void write(HeadScalars& to) {
    to.angles[pair()] = angle_for_phases(sum_);
    sum_ += next_;
  }
  /// Angles behind the last step, and its k, not rounded.
  __device__ void end(const Item& item) const {
    if (args_.rotation.final_angle == nullptr) return;
    const int head = item.tile(head_).head;
    if (head < 0 || item.tile(head_).row > 0) return;
    const auto& in = args_.ssd.in;
    using Io = typename T::Io;
    const bool turning = pair() < args_.rotation.angles;
    const std::int64_t state = std::int64_t{item.b} * in.nheads + head;
    if (turning) args_.rotation.final_angle[state * args_.rotation.angles + pair()] = radians_of_phase(sum_);
    const std::int64_t row = ((item.b + 1) * in.seqlen - 1) * in.groups + item.group;
    const float radians = radians_of(sum_);
    const float sine = __sinf(radians), cosine = __cosf(radians);
#pragma unroll 1
    for (int n = 2 * pair(); n < in.dstate; n += 64) {
      float2 k = unpack_pair<Io>(
          *reinterpret_cast<const std::uint32_t*>(static_cast<const Io*>(in.B) + row * in.dstate + n));
      const float2 bias = *reinterpret_cast<const float2*>(args_.rotation.B_bias + head * in.dstate + n);
      k = {k.x + bias.x, k.y + bias.y};
      if (turning && n < 64) k = {k.x * cosine - k.y * sine, k.x * sine + k.y * cosine};
      *reinterpret_cast<float2*>(args_.rotation.final_B + state * in.dstate + n) = k;
    }
  }

 private:
  __device__ static int pair() {
    return group_thread() % 32;
  }
  /// Of its row of a chunk; −1: the pair does not turn.
  __device__ int column_of(const Item& item) const {
    const int head = item.tile(head_).head;
    const int angles = args_.rotation.angles;
    return head < 0 || pair() >= angles ? -1 : head * angles + pair();
  }
  __device__ std::int64_t row() const {
    return args_.ssd.in.nheads * args_.rotation.angles;
  }
  /// Of a sequence among all chunks.
  __device__ std::int64_t first_row(const Item& item) const {
    return std::int64_t{item.b} * args_.plan.chunks.value;
  }

  const HopperArgs& args_;
  int head_;
  std::uint32_t sum_ = 0, next_ = 0;
};

/// Decays of a head's chunks. A lane has steps 2·lane and 2·lane + 1.
template <class T>
class Decays {
  using Io = typename T::Io;
  static constexpr int kSlabLanes = 8;

 public:
  __device__ Decays(const HopperArgs& args, int head) : args_(args), head_(head) {}

  __device__ void start() { scale_ = 1.0F; }
  __device__ void load(const Item& item, int chunk) {
    const int head = item.tile(head_).head;
    const int seqlen = static_cast<int>(args_.ssd.in.seqlen);
    const int row = chunk * kSteps + 2 * lane();
    const std::int64_t at = (item.b * args_.ssd.in.nheads + head) * seqlen + row;
    const int rows = head < 0 ? 0 : seqlen - row;  // that there are, from the lane's first on
    const auto load = [&](float(&to)[2], const float* from) {
#pragma unroll
      for (int i = 0; i < 2; ++i) to[i] = i < rows ? from[at + i] : 0.0F;
    };
    load(log_decay_, args_.given.log_decay);
    load(later_, args_.given.later);
    load(own_, args_.given.own);
  }
  /// Of the chunk that was loaded.
  __device__ void write(HeadScalars& to) {
    const Sums sums = sums_of();
    const int slab = lane() / kSlabLanes;
    const int slot = ssd_hopper::slot_of_step(2 * lane() % 16);
    const float before =
        slab < 2 ? (slab == 0 ? 0.0F : sums.before[0]) : (slab == 2 ? sums.before[1] : sums.before[2]);
    const float sum[2] = {before + sums.within[0], before + sums.within[1]};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float carry = exp2_approximate(sum[i]);
      if constexpr (!T::kScaled) carry *= scale_;
      to.rows[2 * lane() + i] = {sum[i], exp2_approximate(sums.within[i]), carry, __float_as_uint(own_[i])};
    }
    *reinterpret_cast<float2*>(to.diagonal + 16 * slab + slot) = make_float2(
        sum[0] - ssd_hopper::log2_approximate(later_[0]), sum[1] - ssd_hopper::log2_approximate(later_[1]));
    const auto weights_until = [&](float end) {
      return make_float2(later_[0] * exp2_approximate(end - sum[0]),
                         later_[1] * exp2_approximate(end - sum[1]));
    };
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      const float2 factors = weights_until(sums.before[k - 1]);
      if (slab < k) *reinterpret_cast<float2*>(to.below[ssd_hopper::square_below(k, slab)] + slot) = factors;
    }
    write_state_weights(to, weights_until(sums.end), exp2_approximate(sums.end));
  }

 private:
  /// Sums of log₂ of decays.
  struct Sums {
    float within[2];  ///< from the slab's first step to the lane's
    float before[3];  ///< from the chunk's first step to each slab but the first
    float end;        ///< of the chunk
  };

  __device__ static int lane() {
    return group_thread() % 32;
  }
  __device__ Sums sums_of() const {
    const float second = kLog2E * log_decay_[1];
    Sums to;
    to.within[1] = kLog2E * log_decay_[0] + second;
#pragma unroll
    for (int distance = 1; distance < kSlabLanes; distance *= 2) {
      const float before = __shfl_up_sync(kAllLanes, to.within[1], distance, kSlabLanes);
      if (lane() % kSlabLanes >= distance) to.within[1] += before;
    }
    to.within[0] = to.within[1] - second;
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum += __shfl_sync(kAllLanes, to.within[1], kSlabLanes * k + kSlabLanes - 1);
      if (k < 3)
        to.before[k] = sum;
      else
        to.end = sum;
    }
    return to;
  }
  /// In bf16 decays go to a scale of the state, which is multiplied where that leaves 2^-64 … 2^64.
  __device__ void write_state_weights(HeadScalars& to, float2 weights, float decay) {
    float rescale = 0.0F;
    if constexpr (T::kScaled) {
      ssd_hopper::write_weights<T>(to, weights, lane());
      __syncwarp();
      const float scale = inverse_of_power(to.weight_scale);
      rescale = decay * scale_ * to.weight_scale;
      scale_ = scale;
    } else {
      const float scale = scale_ * decay;
      const bool keeps = scale > 0x1p-64F && scale < 0x1p64F;
      rescale = keeps ? 1.0F : scale;
      scale_ = keeps ? scale : 1.0F;
      const float inverse = reciprocal_approximate(scale_);
      ssd_hopper::write_weights<T>(to, make_float2(inverse * weights.x, inverse * weights.y), lane());
    }
    if (lane() == 0) {
      to.rescale = rescale;
      to.scale = scale_;
    }
  }

  const HopperArgs& args_;
  int head_;
  float log_decay_[2], later_[2], own_[2];
  float scale_ = 1.0F;  ///< of the state: times this it is the true one
};

/// By one warp.
template <class T>
__device__ void write_scalars(const HopperArgs& args, int head) {
  const SharedMemory<T> shared;
  Decays<T> decays(args, head);
  AngleSums<T> angles(args, head);
  ChunkCount at;
#pragma unroll 1
  for (ChunkCursor cursor(args.plan); !cursor.done(); cursor.advance(), at.advance()) {
    if (cursor.begins()) {
      decays.start();
      angles.start(cursor.item());
    }
    decays.load(cursor.item(), cursor.chunk());
    angles.load(cursor.item(), cursor.chunk());
    shared.scalars(head).wait_empty(at);
    HeadScalars& to = shared.scalars_of(head, at);
    decays.write(to);
    angles.write(to);
    hopper::barrier_arrive(shared.scalars(head).full(at));
    if (cursor.chunk() + 1 == args.plan.chunks.value) angles.end(cursor.item());
  }
}

template <class T>
__device__ __forceinline__ void produce(const HopperArgs& args) {
  const int warp = group_thread() / 32;
  const bool first = group_thread() % 32 == 0;
  if (warp == 0) {
    if (first) TileLoader<T>(args).run();
  } else if (warp == 3) {
    if (first) store_tiles<T>(args);
  } else {
    write_scalars<T>(args, warp - 1);
  }
}

}  // namespace ssmbench::mamba3_pairs
