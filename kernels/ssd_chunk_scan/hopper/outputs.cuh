#pragma once

// An output warpgroup of cuda-hopper: out of one head, for one chunk after the other,
//
//   Y = carry ∘ (C·Hᵀ) + M·x,   M = (C·Bᵀ) ∘ Δ·decay, on and below the diagonal;   out = (Y + D·x)·silu(z)
//
// Warp w has rows (time steps) 16w … 16w + 15 of all of them. M goes from accumulators to operand without
// leaving registers. In f16, M and the state are scaled by powers of two, and y with M.

#include <type_traits>

#include "kernels/common/activations.h"
#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

template <class T>
class OutputWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  /// In f16 gates take back the scale of y.
  static constexpr bool kFolded = T::kScaled && T::kGated && !T::kRotated;
  /// No register is left to keep a thread's places in: they are made again.
  static constexpr bool kFull =
      T::kRotated || (T::kScaled && T::kHeads == 1 && (T::kPacked || T::kStates == 64));

 public:
  __device__ OutputWarpgroup(const typename T::Args& args, const Shared& shared, int index, int thread)
      : args_(args),
        plan_(args.plan),
        shared_(shared),
        share_{index},
        thread_(thread),
        warp_(thread / 32),
        lane_(thread % 32),
        fragment_(hopper::fragment_offset(warp_, lane_)) {}

  __device__ void run() {
    int count = 0;
    for (SegmentsOf<T> segments(args_); !segments.done(); segments.advance()) {
      const Segment segment = segments.segment();
      load_skip(segments.item(segment));
      for (int chunk = segment.first; chunk < segment.end; ++chunk, ++count) {
        if constexpr (T::kRanked) row_tile_ = row_tile(segments, plan_.item(segment.item), chunk);
        if (share_.has(count)) output();
        at_.advance();
      }
    }
  }

 private:
  /// One chunk of out.
  __device__ __forceinline__ void output() {
    const int head = share_.head();
    shared_.wait_projections(at_);
    // Before the products, which leave little of shared memory's bandwidth to others.
    shared_.scalars(head).wait_full(at_);
    const ChunkScalars& scalars = shared_.scalars_of(head, at_);
    const LaneScalars lane_scalars = load_scalars(scalars);
    float cb[32];
    float y[32];
    std::uint64_t c = hopper::operand_descriptor(shared_.c_tile(at_), kTile);
    multiply(cb, c, hopper::operand_descriptor(shared_.b_tile(at_), kTile));
    shared_.states(head).wait_full(at_);
    if constexpr (T::kStates > 128) asm volatile("" : "+l"(c));  // no register is left to keep its steps in
    multiply(y, c, hopper::operand_descriptor(shared_.state_tile(head, at_), kTile));

    std::uint32_t m[16];
    hopper::wgmma_wait<1>();
    hopper::pin_registers(cb);
    mask(m, cb, lane_scalars);
    [[maybe_unused]] float4 state_scales;
    if constexpr (T::kScaled) state_scales = load_state_scales(shared_.state_scales(head, at_));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    shared_.release_projections(at_, lane_);
    release_state(head, state_scales);
    hopper::barrier_arrive(shared_.scalars(head).empty(at_));
    [[maybe_unused]] float scale = 1.0F;
    if constexpr (T::kScaled) {
      scale = scale_mask(m, cb);
      const float slabs[]{state_scales.x, state_scales.y, state_scales.z, state_scales.w};
#pragma unroll
      for (int i = 0; i < 32; ++i)
        y[i] *= scale * slabs[i / 8] * (i / 2 % 2 == 0 ? lane_scalars.upper.carry : lane_scalars.lower.carry);
    } else {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        y[i] *= i / 2 % 2 == 0 ? lane_scalars.upper.carry : lane_scalars.lower.carry;
    }

    shared_.x(head).wait_full(at_);
    const std::uint32_t x_tile = shared_.x_tile(head, at_);
    std::uint32_t x_pairs[16];
    if (args_.ssd.in.D != nullptr) load_tile_pairs(x_pairs, x_tile + fragment());
    const std::uint32_t gates = gate_tile();
    std::uint32_t z_pairs[16];
    if constexpr (T::kGated) load_tile_pairs(z_pairs, gates);
    const std::uint64_t x = hopper::operand_descriptor(x_tile, kTile);
    hopper::pin_registers(y);
    hopper::pin_registers(m);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, hopper::Major::rows>(y, m + 4 * k,
                                             hopper::operand_step<hopper::Major::rows>(x, k, kTile), true);
    hopper::wgmma_commit();
    finish(y, x_pairs, z_pairs, gates, scale);
  }

  /// C (64 steps × N) times a tile of rows of N.
  __device__ __forceinline__ static void multiply(float (&to)[32], std::uint64_t c, std::uint64_t rows) {
    constexpr auto kAlong = hopper::Major::k;
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < T::kStates / 16; ++k)
      hopper::wgmma<Io, kAlong, kAlong>(to, hopper::operand_step<kAlong>(c, k, kTile),
                                        hopper::operand_step<kAlong>(rows, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  /// What a lane takes of a chunk's scalars: of its two rows, and of its four columns in each of four slabs.
  struct LaneScalars {
    RowScalars upper, lower;
    float4 below[3];
    float4 diagonal;
  };
  __device__ __forceinline__ LaneScalars load_scalars(const ChunkScalars& from) const {
    LaneScalars to;
    const int thread = kFull ? group_thread() : thread_;
    const int warp = kFull ? thread / 32 : warp_;
    const int lane = kFull ? thread % 32 : lane_;
    to.upper = from.rows[16 * warp + lane / 4];
    to.lower = from.rows[16 * warp + lane / 4 + 8];
    const int first = square_below(max(warp, 1), 0);  // those from `warp` on are not used
#pragma unroll
    for (int k = 0; k < 3; ++k)
      to.below[k] = *reinterpret_cast<const float4*>(from.below[min(first + k, 5)] + lane % 4 * 4);
    to.diagonal = *reinterpret_cast<const float4*>(from.diagonal + 16 * warp + lane % 4 * 4);
    return to;
  }

  /// M of this warp's rows, as A of the product with x. In f16 it takes the place of C·Bᵀ instead, not rounded.
  __device__ __forceinline__ void mask(std::uint32_t (&m)[16], float (&cb)[32],
                                       const LaneScalars& scalars) const {
    if (warp_ == 0)
      mask_slab<0>(m, cb, scalars);
    else if (warp_ == 1)
      mask_slab<1>(m, cb, scalars);
    else if (warp_ == 2)
      mask_slab<2>(m, cb, scalars);
    else
      mask_slab<3>(m, cb, scalars);
  }

  /// M in f16, scaled by a power of two that its own largest element gives: Δ may be 10^5 times as large in one
  /// step as in another. Returns the scale.
  __device__ __forceinline__ static float scale_mask(std::uint32_t (&m)[16], const float (&cb)[32]) {
    const float scale = scale_of_lanes(largest_of(cb), kTopTarget);
#pragma unroll
    for (int i = 0; i < 16; ++i) m[i] = pack_pair<Io>(scale * cb[2 * i], scale * cb[2 * i + 1]);
    return scale;
  }

  template <int kSlab>
  __device__ __forceinline__ void mask_slab(std::uint32_t (&m)[16], float (&cb)[32],
                                            const LaneScalars& scalars) const {
    const auto put = [&](int pair, float first, float second) {
      if constexpr (T::kScaled) {
        cb[2 * pair] = first;
        cb[2 * pair + 1] = second;
      } else {
        m[pair] = pack_pair<Io>(first, second);
      }
    };
    const RowScalars& upper = scalars.upper;
    const RowScalars& lower = scalars.lower;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int to = 4 * k;
      const float* from = cb + 8 * k;
      if (k < kSlab) {
        const float4& s = scalars.below[k];
        put(to + 0, from[0] * (upper.within * s.x), from[1] * (upper.within * s.y));
        put(to + 1, from[2] * (lower.within * s.x), from[3] * (lower.within * s.y));
        put(to + 2, from[4] * (upper.within * s.z), from[5] * (upper.within * s.w));
        put(to + 3, from[6] * (lower.within * s.z), from[7] * (lower.within * s.w));
      } else if (k == kSlab) {
        const float4& s = scalars.diagonal;
        const auto element = [&](const RowScalars& row, int bit, float sum, float product, int half = 0) {
          if constexpr (T::kGiven) return given_element(row, half, bit, sum, product);
          const bool kept = (row.mask >> (lane_ % 4 * 2) & 1U << bit) != 0;
          return kept ? product * exp2_approximate(row.sum - sum) : 0.0F;
        };
        put(to + 0, element(upper, 0, s.x, from[0]), element(upper, 1, s.y, from[1]));
        put(to + 1, element(lower, 0, s.x, from[2], 8), element(lower, 1, s.y, from[3], 8));
        put(to + 2, element(upper, 8, s.z, from[4]), element(upper, 9, s.w, from[5]));
        put(to + 3, element(lower, 8, s.z, from[6], 8), element(lower, 9, s.w, from[7], 8));
      } else {
        for (int i = 0; i < 4; ++i) put(to + i, 0.0F, 0.0F);
      }
    }
  }

  /// An element of a square on the diagonal where weights are given: in row lane / 4 + `half`.
  __device__ __forceinline__ float given_element(const RowScalars& row, int half, int bit, float sum,
                                                 float product) const {
    const int shift = T::kRanked ? args_.given.rank_shift : 0;
    const int steps = ((lane_ / 4 + half) >> shift) - ((lane_ % 4 * 2 + bit) >> shift);  // from column to row
    if (steps < 0) return 0.0F;
    return product * (steps == 0 ? __uint_as_float(row.mask) : exp2_approximate(row.sum - sum));
  }

  __device__ __forceinline__ std::uint32_t fragment() const {
    if constexpr (!kFull) return fragment_;
    const int thread = group_thread();
    return hopper::fragment_offset(thread / 32, thread % 32);
  }

  /// An arrival overtakes loads from shared memory whose values nothing has used yet. This one uses the state's
  /// scales, which are not NaN.
  __device__ __forceinline__ void release_state(int head, const float4& scales) const {
    const std::uint32_t empty = shared_.states(head).empty(at_);
    if constexpr (T::kScaled) {
      __syncwarp();
      if (lane_ == 0 && scales.x == scales.x) hopper::barrier_arrive(empty);
    } else {
      warp_arrive(empty, lane_);
    }
  }

  /// By lane 0, which arrives for the warp, and from there to all lanes.
  __device__ __forceinline__ float4 load_state_scales(const float* from) const {
    float4 scales = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (lane_ == 0) scales = *reinterpret_cast<const float4*>(from);
    const auto of_lane_0 = [](float value) { return __shfl_sync(0xFFFFFFFFU, value, 0); };
    return make_float4(of_lane_0(scales.x), of_lane_0(scales.y), of_lane_0(scales.z), of_lane_0(scales.w));
  }

  /// Waits for z; without z for a slot for out. Rows in f32 need none.
  __device__ __forceinline__ std::uint32_t gate_tile() const {
    if constexpr (T::kRanked) return 0;
    const auto gates = shared_.gates(share_.head());
    if constexpr (T::kGated)
      gates.wait_full(at_);
    else
      gates.wait_empty(at_);
    return shared_.gate_tile(share_.head(), at_) + fragment();
  }

  /// This warp's rows of a tile; `tile` is the lane's address in it.
  __device__ __forceinline__ static void load_tile_pairs(std::uint32_t (&to)[16], std::uint32_t tile) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      load_matrices(*reinterpret_cast<std::uint32_t(*)[4]>(to + 4 * j), tile ^ j * 32);
  }

  /// M·x is under way, and meanwhile the gates are computed. Then out, over z. `scale`: of y, in f16.
  __device__ __forceinline__ void finish(float (&y)[32], const std::uint32_t (&x)[16],
                                         const std::uint32_t (&z)[16], std::uint32_t gate_tile, float scale) {
    constexpr bool kGated = T::kGated;
    const int head = share_.head();
    float gate[kGated ? 32 : 1];
    if constexpr (kGated) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 pair = unpack_pair<Io>(z[i]);
        gate[2 * i] = silu_over(pair.x, scale);
        gate[2 * i + 1] = silu_over(pair.y, scale);
      }
      hopper::pin_registers(gate);
      // A branch: the compiler would wait for the products before the gates.
      shared_.gates(head).wait_full(at_);
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    // The gates are made of what was loaded after x: x is there. Without them only what is stored says so.
    if constexpr (kGated) warp_arrive(shared_.x(head).empty(at_), lane_);
    if constexpr (T::kScaled && !kFolded) {
#pragma unroll
      for (float& value : y) value *= inverse_of_power(scale);
      scale = 1.0F;
    }
    if constexpr (T::kRanked) {
      warp_arrive(shared_.x(head).empty(at_), lane_);
      return store_rows(y);
    }
    if (args_.ssd.in.D != nullptr) add_skip(y, x, scale);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * j + 2 * i;
        if constexpr (kGated) {
          y[at] *= gate[at];
          y[at + 1] *= gate[at + 1];
        }
        out[i] = pack_pair<Io>(y[at], y[at + 1]);
      }
      hopper::store_matrices(gate_tile ^ j * 32, out[0], out[1], out[2], out[3]);
    }
    if constexpr (!kGated) warp_arrive(shared_.x(head).empty(at_), lane_);
    hopper::fence_async_proxy();
    warp_arrive(shared_.gates(head).done(at_), lane_);
  }

  /// silu(z)/scale. 0 where scale·e^-z is beyond f32: scales of M end at 2^74, so that it is below 2^-46 there.
  __device__ __forceinline__ static float silu_over(float z, [[maybe_unused]] float scale) {
    if constexpr (!kFolded) return fast_silu(z);
    return z * reciprocal_approximate(fmaf(scale, exp2_approximate(z * -kLog2E), scale));
  }

  /// Where a thread has its first row of a chunk in GivenWeights::rows, and what there is of it.
  struct ThreadRows {
    float* first;
    int rows, columns;  ///< that there are, from the thread's first of each on
  };
  __device__ ThreadRows row_tile([[maybe_unused]] const SegmentsOf<T>& segments, const Item& item,
                                 int chunk) const {
    const SsdInputs& in = args_.ssd.in;
    const RowTile tile = item.tile(share_.head());
    std::int64_t row = std::int64_t{chunk} * kSteps + 16 * warp_ + lane_ / 4;
    std::int64_t end = in.seqlen;
    if constexpr (T::kPacked) {
      row += segments.begin();
      end = segments.begin() + segments.steps();
    }
    const int p = tile.row + lane_ % 4 * 2;
    return {args_.given.rows + ((item.b * in.seqlen + row) * in.nheads + tile.head) * in.headdim + p,
            tile.head < 0 ? 0 : static_cast<int>(end - row), static_cast<int>(in.headdim) - p};
  }
  __device__ __forceinline__ void store_rows(const float (&y)[32]) const {
    float* to = row_tile_.first;
#pragma unroll
    for (int half = 0; half < 2; ++half, to += 8 * args_.ssd.in.nheads * args_.ssd.in.headdim)
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (8 * half < row_tile_.rows && 8 * j < row_tile_.columns)
          *reinterpret_cast<float2*>(to + 8 * j) = make_float2(y[4 * j + 2 * half], y[4 * j + 2 * half + 1]);
  }

  /// y += scale·D·x, where y is scaled.
  __device__ __forceinline__ void add_skip(float (&y)[32], const std::uint32_t (&x)[16],
                                           [[maybe_unused]] float scale) const {
    const auto add = [&](const auto& skip_of) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float4 d = skip_of(j);
        if constexpr (kFolded) d = make_float4(scale * d.x, scale * d.y, scale * d.z, scale * d.w);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = unpack_pair<Io>(x[4 * j + i]);
          y[8 * j + 2 * i] += (i < 2 ? d.x : d.z) * pair.x;
          y[8 * j + 2 * i + 1] += (i < 2 ? d.y : d.w) * pair.y;
        }
      }
    };
    if (args_.ssd.in.skip_per_headdim) {
      const auto* skip = reinterpret_cast<const float4*>(shared_.skip(share_.index)) + lane_ % 4;
      add([&](int j) { return skip[4 * j]; });
    } else {
      add([&](int) { return make_float4(skip_, skip_, skip_, skip_); });
    }
  }

  /// D of the item: in a register, or of its rows, in the order in which lanes take it, in shared memory.
  __device__ void load_skip(const Item& item) {
    const SsdInputs& in = args_.ssd.in;
    if (in.D == nullptr) return;
    const RowTile tile = item.tile(share_.head());
    if (!in.skip_per_headdim) {
      skip_ = tile.head < 0 ? 0.0F : in.D[tile.head];
      return;
    }
    const int p = tile.row + thread_;
    group_barrier();  // the segment before is done
    if (thread_ < kRows)
      shared_.skip(share_.index)[thread_ / 16 * 16 + slot_of_step(thread_ % 16)] =
          tile.head >= 0 && p < in.headdim ? in.D[tile.head * in.headdim + p] : 0.0F;
    group_barrier();
  }

  /// A barrier of this warpgroup's threads.
  __device__ void group_barrier() const {
    if (share_.index == 0)
      asm volatile("bar.sync 2, 128;\n" ::: "memory");
    else
      asm volatile("bar.sync 3, 128;\n" ::: "memory");
  }

  const typename T::Args& args_;
  const Plan& plan_;
  Shared shared_;
  Share<T::kHeads, kOutputStride<T::kHeads>> share_;
  int thread_;
  int warp_;
  int lane_;
  std::uint32_t fragment_;
  hopper::RingPositions at_;
  float skip_ = 0.0F;  ///< D of the head
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<T::kRanked, ThreadRows, Nothing> row_tile_;  ///< of the chunk
};

}  // namespace ssmbench::ssd_hopper
