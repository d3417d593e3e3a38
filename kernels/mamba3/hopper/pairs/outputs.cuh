#pragma once

// The output warpgroup of a head, in the SISO scan of two: for one chunk after the other,
//
//   out = (carry ∘ (q·Hᵀ) + M·V + D·V)·silu(Z),   M = (q·kᵀ) ∘ s·decay below the diagonal, ∘ γ on it
//
// Warp w has rows (time steps) 16w … 16w + 15 of all of them. q goes from Q in shared memory to registers,
// where it is made, and is A of two products; M goes from accumulators to A. In f16, M and the state are
// scaled by powers of two, and y with M.

#include "kernels/common/activations.h"
#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/mamba3/hopper/pairs/turn.cuh"
#include "kernels/ssd_chunk_scan/scaled.cuh"

namespace ssmbench::mamba3_pairs {

template <class T>
class OutputWarpgroup {
  using Io = typename T::Io;

 public:
  __device__ OutputWarpgroup(const HopperArgs& args, int head) : args_(args), head_(head) {}

  __device__ void run() {
    const Plan& plan = args_.plan;
    for (int i = 0; i < plan.segments(blockIdx.x); ++i) {
      const Segment segment = plan.segment(blockIdx.x, i);
      stage(plan.item(segment.item).tile(head_), segment.end - segment.first);
      do {
        output();
        at_.advance();
      } while (at_.count != shared_.of_head(head_).output_until);
    }
  }

 private:
  // Asked for anew where they are needed: no register is left to keep them in.
  __device__ static int warp() { return group_thread() / 32; }
  __device__ static int lane() { return group_thread() % 32; }
  __device__ void barrier() const { warpgroup_barrier(1 + kHeads + head_); }

  /// D of the head and biases of q to shared memory.
  __device__ void stage(const RowTile& tile, int chunks) {
    const int n = group_thread();
    const std::int64_t dstate = args_.ssd.in.dstate;
    barrier();  // the segment before is done
    if (n == 0) {
      OfHead& to = shared_.of_head(head_);
      to.skip = args_.ssd.in.D != nullptr && tile.head >= 0 ? args_.ssd.in.D[tile.head] : 0.0F;
      to.output_until = at_.count + chunks;
    }
    if (n < T::kStates)
      shared_.query_biases(head_)[index_of_query_bias(n)] =
          n < dstate && tile.head >= 0 ? args_.rotation.C_bias[tile.head * dstate + n] : 0.0F;
    barrier();
  }

  /// One chunk of out.
  __device__ __forceinline__ void output() {
    std::uint32_t q[T::kStates / 4];
    make_queries(q);
    float cb[32];
    shared_.keys(head_).wait_full(at_);
    multiply(cb, q, shared_.key_tile(head_));
    release_inputs();
    const HeadScalars& scalars = shared_.scalars_of(head_, at_);
    const Rows rows(scalars);
    hopper::wgmma_wait<0>();
    hopper::pin_registers(cb);
    warp_arrive(shared_.keys(head_).empty(at_), lane());
    std::uint32_t m[16];
    const float scale = mask(m, cb, scalars, rows);
    hopper::pin_registers(m);

    float y[32];
    shared_.states(head_).wait_full(at_);
    multiply(y, q, shared_.state_tile(head_, at_));
    const float2 carry = load_carry(scalars);  // again: while M is made no register is left for it
    [[maybe_unused]] float4 state_scales;
    if constexpr (T::kScaled) state_scales = load_state_scales();
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    release_state(state_scales);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float factor = i / 2 % 2 == 0 ? carry.x : carry.y;
      if constexpr (T::kScaled) factor *= scale * of_slab(state_scales, i / 8);
      y[i] *= factor;
    }

    shared_.x(head_).wait_full(at_);
    const std::uint32_t gates = T::kGated ? gate_tile() : 0;
    const std::uint64_t x = hopper::operand_descriptor(shared_.x_tile(head_, at_), kTile);
    hopper::pin_registers(y);
    hopper::pin_registers(m);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, hopper::Major::rows>(y, m + 4 * k,
                                             hopper::operand_step<hopper::Major::rows>(x, k, kTile), true);
    hopper::wgmma_commit();
    // Not before the products that take m and y: an arrival overtakes loads from shared memory whose values
    // nothing has used yet.
    hopper::barrier_arrive(shared_.scalars(head_).empty(at_));
    finish(y, gates, scale);
  }

  __device__ __forceinline__ void make_queries(std::uint32_t (&q)[T::kStates / 4]) const {
    shared_.raw_q().wait_full(at_);
    shared_.phases(head_).wait_full(at_);
    shared_.scalars(head_).wait_full(at_);
    turn_queries<T>(q, shared_, head_, at_);
    hopper::pin_registers(q);
  }
  /// Of q. Not before products that take it: an arrival overtakes loads from shared memory whose values
  /// nothing has used yet.
  __device__ __forceinline__ void release_inputs() const {
    __syncwarp();
    if (lane() == 0) {
      hopper::barrier_arrive(shared_.raw_q().empty(at_));
      hopper::barrier_arrive(shared_.phases(head_).empty(at_));
    }
  }

  /// q times a tile of rows of N.
  __device__ __forceinline__ static void multiply(float (&to)[32], const std::uint32_t (&q)[T::kStates / 4],
                                                  std::uint32_t tile) {
    constexpr auto kAlong = hopper::Major::k;
    const std::uint64_t rows = hopper::operand_descriptor(tile, kTile);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < T::kStates / 16; ++k)
      hopper::wgmma<Io, kAlong>(to, q + 4 * k, hopper::operand_step<kAlong>(rows, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  /// What a lane takes of a chunk's scalars: those of its two rows.
  struct Rows {
    ssd_hopper::RowScalars upper, lower;

    __device__ explicit Rows(const HeadScalars& from)
        : upper(from.rows[16 * warp() + lane() / 4]), lower(from.rows[16 * warp() + lane() / 4 + 8]) {}
  };

  __device__ __forceinline__ static float2 load_carry(const HeadScalars& from) {
    const ssd_hopper::RowScalars* const rows = from.rows + 16 * warp() + lane() / 4;
    return {rows[0].carry, rows[8].carry};
  }

  /// M of this warp's rows, as A of the product with V. In f16 it is scaled by a power of two that its own
  /// largest element gives. Returns the scale.
  __device__ __forceinline__ float mask(std::uint32_t (&m)[16], float (&cb)[32], const HeadScalars& scalars,
                                        const Rows& rows) const {
    const int slab = warp();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k < slab)
        mask_below(m, cb, k, columns_of(scalars.below[ssd_hopper::square_below(max(slab, 1), k)]), rows);
      else if (k == slab)
        mask_diagonal(m, cb, k, columns_of(scalars.diagonal + 16 * k), rows);
      else
        for (int i = 0; i < 4; ++i) put(m, cb, 4 * k + i, 0.0F, 0.0F);
    }
    float scale = 1.0F;
    if constexpr (T::kScaled) {
      hopper::pin_registers(cb);
      scale = scale_of_lanes(largest_of(cb), kTopTarget);
#pragma unroll
      for (int i = 0; i < 16; ++i) m[i] = pack_pair<Io>(scale * cb[2 * i], scale * cb[2 * i + 1]);
    }
    return scale;
  }
  /// In f16 M takes the place of q·kᵀ, not rounded.
  __device__ __forceinline__ static void put(std::uint32_t (&m)[16], float (&cb)[32], int pair, float first,
                                             float second) {
    if constexpr (T::kScaled) {
      cb[2 * pair] = first;
      cb[2 * pair + 1] = second;
    } else {
      m[pair] = pack_pair<Io>(first, second);
    }
  }
  /// The lane's columns of a square.
  __device__ __forceinline__ static float4 columns_of(const float* square) {
    return *reinterpret_cast<const float4*>(square + lane() % 4 * 4);
  }
  /// Square k of M's slab.
  __device__ __forceinline__ static void mask_below(std::uint32_t (&m)[16], float (&cb)[32], int k,
                                                    const float4& s, const Rows& rows) {
    const float upper = rows.upper.within;
    const float lower = rows.lower.within;
    const int to = 4 * k;
    const float* from = cb + 8 * k;
    put(m, cb, to + 0, from[0] * (upper * s.x), from[1] * (upper * s.y));
    put(m, cb, to + 1, from[2] * (lower * s.x), from[3] * (lower * s.y));
    put(m, cb, to + 2, from[4] * (upper * s.z), from[5] * (upper * s.w));
    put(m, cb, to + 3, from[6] * (lower * s.z), from[7] * (lower * s.w));
  }
  __device__ __forceinline__ static void mask_diagonal(std::uint32_t (&m)[16], float (&cb)[32], int k,
                                                       const float4& s, const Rows& rows) {
    const int to = 4 * k;
    const float* from = cb + 8 * k;
    const auto element = [&](int row, int column, float sum, float product) {
      return on_diagonal(row == 0 ? rows.upper : rows.lower, lane() / 4 + row - lane() % 4 * 2 - column, sum,
                         product);
    };
    put(m, cb, to + 0, element(0, 0, s.x, from[0]), element(0, 1, s.y, from[1]));
    put(m, cb, to + 1, element(8, 0, s.x, from[2]), element(8, 1, s.y, from[3]));
    put(m, cb, to + 2, element(0, 8, s.z, from[4]), element(0, 9, s.w, from[5]));
    put(m, cb, to + 3, element(8, 8, s.z, from[6]), element(8, 9, s.w, from[7]));
  }
  /// An element of a square on the diagonal, `steps` from column to row.
  __device__ __forceinline__ static float on_diagonal(const ssd_hopper::RowScalars& row, int steps, float sum,
                                                      float product) {
    float decay = exp2_approximate(row.sum - sum);
    asm volatile("" : "+f"(decay));  // no branch around it
    return steps < 0 ? 0.0F : product * (steps == 0 ? __uint_as_float(row.mask) : decay);
  }

  __device__ __forceinline__ static std::uint32_t fragment() {
    return hopper::fragment_offset(warp(), lane());
  }

  /// By lane 0, which arrives for the warp, and from there to all lanes.
  __device__ __forceinline__ float4 load_state_scales() const {
    float4 scales = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (lane() == 0) scales = *reinterpret_cast<const float4*>(shared_.state_scales(head_, at_));
    const auto of_lane_0 = [](float value) { return __shfl_sync(0xFFFFFFFFU, value, 0); };
    return make_float4(of_lane_0(scales.x), of_lane_0(scales.y), of_lane_0(scales.z), of_lane_0(scales.w));
  }
  __device__ static float of_slab(const float4& scales, int slab) {
    return slab < 2 ? (slab == 0 ? scales.x : scales.y) : (slab == 2 ? scales.z : scales.w);
  }
  /// An arrival overtakes loads from shared memory whose values nothing has used yet. This one uses the
  /// state's scales, which are not NaN.
  __device__ __forceinline__ void release_state([[maybe_unused]] const float4& scales) const {
    const std::uint32_t empty = shared_.states(head_).empty(at_);
    __syncwarp();
    bool arrives = lane() == 0;
    if constexpr (T::kScaled) arrives = arrives && scales.x == scales.x;
    if (arrives) hopper::barrier_arrive(empty);
  }

  /// Waits for z; without z for a slot for out.
  __device__ __forceinline__ std::uint32_t gate_tile() const {
    const auto gates = shared_.gates(head_);
    if constexpr (T::kGated)
      gates.wait_full(at_);
    else
      gates.wait_empty(at_);
    return shared_.gate_tile(head_, at_) + fragment();
  }
  /// This warp's rows of a tile; `tile` is the lane's address in it.
  __device__ __forceinline__ static void load_tile_pairs(std::uint32_t (&to)[16], std::uint32_t tile) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      load_matrices(*reinterpret_cast<std::uint32_t(*)[4]>(to + 4 * j), tile ^ j * 32);
  }

  /// M·V is under way, and meanwhile the gates are computed. Then out, over z. `scale`: of y, in f16. V is
  /// loaded behind the product: with its registers taken, the compiler computes the gates behind it, too.
  __device__ __forceinline__ void finish(float (&y)[32], std::uint32_t gate_tile,
                                         [[maybe_unused]] float scale) const {
    constexpr bool kGated = T::kGated;
    float gate[kGated ? 32 : 1];
    if constexpr (kGated) {
      std::uint32_t z[16];
      load_tile_pairs(z, gate_tile);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 pair = unpack_pair<Io>(z[i]);
        gate[2 * i] = fast_silu(pair.x);
        gate[2 * i + 1] = fast_silu(pair.y);
      }
      hopper::pin_registers(gate);
      // A branch: the compiler would wait for the products before the gates.
      shared_.gates(head_).wait_full(at_);
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    if constexpr (T::kScaled)
#pragma unroll
      for (float& value : y) value *= inverse_of_power(scale);
    if (args_.ssd.in.D != nullptr) {
      std::uint32_t x[16];
      load_tile_pairs(x, shared_.x_tile(head_, at_) + fragment());
      const float skip = shared_.of_head(head_).skip;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 pair = unpack_pair<Io>(x[i]);
        y[2 * i] += skip * pair.x;
        y[2 * i + 1] += skip * pair.y;
      }
      hopper::pin_registers(y);  // V is used before its slot is released
    }
    warp_arrive(shared_.x(head_).empty(at_), lane());
    if constexpr (!kGated) gate_tile = this->gate_tile();
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
    hopper::fence_async_proxy();
    warp_arrive(shared_.gates(head_).done(at_), lane());
  }

  const HopperArgs& args_;
  SharedMemory<T> shared_;
  int head_;
  ChunkCount at_;
};

}  // namespace ssmbench::mamba3_pairs
