#pragma once

// The query warpgroup of the Hopper gradient kernel: what belongs to a chunk's rows t, the steps that read
// the state. Warp w has rows 16w … 16w + 15 of every product:
//
//   dy = dout·silu(z)    y = M·x + enter ∘ (C·Sᵀ) → dz    Q += (dy·xᵀ) ∘ L ∘ Δ    dC += enter ∘ (dy·S)
//
// and after the last head dC += Q·B. It hands dy and M to the key warpgroup, and Q at the end.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::ssd_hopper_bwd {

template <class T>
class QueryWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  using Steps = float[4][kSteps];
  static constexpr int kHalves = Shared::Layout::kHalves;
  using Sums = ProjectionSums<kHalves>;
  static constexpr auto kAlong = hopper::Major::k;
  static constexpr auto kAcross = hopper::Major::rows;

 public:
  __device__ QueryWarpgroup(const GradientArgs& args, const Shared& shared, int thread)
      : args_(args),
        shared_(shared),
        thread_(thread),
        warp_(thread / 32),
        at_{16 * (thread / 32), 0, thread % 32},
        fragment_(hopper::fragment_offset(thread / 32, thread % 32)),
        reaches_(causal_steps()) {}

  __device__ void run() {
    start_products();
    Sums dC;
#pragma unroll
    for (auto& half : dC)
#pragma unroll
      for (float& value : half) value = 0.0F;
    const BlockPlace place(args_);
    const int first = place.first_head;
    const int end = first + place.heads;
    for (int head = first; head < end; ++head) {
      one_head(dC, head);
      input_at_.advance();
      pair_at_.advance();
    }
    finish(dC);
  }

 private:
  __device__ __forceinline__ unsigned causal_steps() const {
    const BlockPlace place(args_);
    return causal_pairs<8>(args_.bwd.in, place.b, place.start, place.steps_valid, at_);
  }

  /// C·Bᵀ, and Q = 0.
  __device__ __forceinline__ void start_products() const {
    float cb[32];
    hopper::barrier_wait(shared_.projections_full(), 0);
    const std::uint64_t c = hopper::operand_descriptor(shared_.c_tile(), kTile);
    multiply_rows(cb, c, hopper::operand_descriptor(shared_.b_tile(), kTile));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(cb);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      shared_.cb()[e][thread_] = make_float4(cb[4 * e], cb[4 * e + 1], cb[4 * e + 2], cb[4 * e + 3]);
      shared_.q()[e][thread_] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
  }

  /// to = tile (64 × N) times a tile of rows of N.
  __device__ __forceinline__ static void multiply_rows(float (&to)[32], std::uint64_t tile,
                                                       std::uint64_t rows) {
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < T::kStates / 16; ++k)
      hopper::wgmma<Io, kAlong, kAlong>(to, hopper::operand_step<kAlong>(tile, k, kTile),
                                        hopper::operand_step<kAlong>(rows, k, kTile), k > 0);
    hopper::wgmma_commit();
  }

  __device__ __forceinline__ void one_head(Sums& dC, int head) {
    const SkipWeights skip(args_.bwd.in, head, at_.lane, shared_.skip(input_at_));
    shared_.inputs().wait_full(input_at_);
    const Steps& steps = shared_.steps(input_at_);
    float y[32];
    multiply_rows(y, hopper::operand_descriptor(shared_.c_tile(), kTile),
                  hopper::operand_descriptor(shared_.state_tile(input_at_), kTile));
    shared_.pairs().wait_empty(pair_at_);
    mix(steps);
    std::uint32_t dy[16];
    float slopes[T::kGated ? 32 : 1];
    gate(dy, slopes);
    store_tile_pairs(shared_.dy_tile(pair_at_) + fragment_, dy);
    hopper::fence_async_proxy();
    warp_arrive(shared_.pairs().full(pair_at_), at_.lane);

    hopper::wgmma_wait<0>();
    hopper::pin_registers(y);
    float flow_out[2] = {0.0F, 0.0F};
    const float enter[2] = {steps[kStepEnter][at_.row_of(0)], steps[kStepEnter][at_.row_of(2)]};
    weigh_states(y, dy, enter, flow_out);

    const std::uint64_t x = hopper::operand_descriptor(shared_.x_tile(input_at_), kTile);
    float dyx[32];
    hopper::pin_registers(y);
    hopper::pin_registers(dy);
    if constexpr (T::kGated) group_barrier();  // M is complete
    hopper::wgmma_fence();
    if constexpr (T::kGated) {
      const std::uint64_t m = hopper::operand_descriptor(shared_.mixing_tile(pair_at_), kTile);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        hopper::wgmma<Io, kAlong, kAcross>(y, hopper::operand_step<kAlong>(m, k, kTile),
                                           hopper::operand_step<kAcross>(x, k, kTile), true);
      hopper::wgmma_commit();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma<Io, kAlong>(dyx, dy + 4 * k, hopper::operand_step<kAlong>(x, k, kTile), k > 0);
    hopper::wgmma_commit();
    if constexpr (T::kGated) {
      hopper::wgmma_wait<1>();
      hopper::pin_registers(y);
      store_dz(y, slopes, skip);
    }
    hopper::wgmma_wait<0>();
    hopper::pin_registers(dyx);

    float product[32];
    start_product<Io>(product, dy, shared_.state_tile(input_at_));
    shared_.flows().wait_empty(pair_at_);
    HeadFlows& flows = shared_.flows_of(pair_at_);
    finish_weights(dyx, steps, flow_out, flows);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      flow_out[j] = sum_lanes<1, 2>(flow_out[j]);
      if (at_.lane % 4 == 0) flows.out[at_.row_of(2 * j)] = flow_out[j];
    }
    hopper::barrier_arrive(shared_.flows().full(pair_at_));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(product);
    add_weighted(dC[0], product, enter);
    if constexpr (kHalves == 2) {
      hopper::pin_registers(product);
      start_product<Io>(product, dy, shared_.state_tile(input_at_) + kTile);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(product);
      add_weighted(dC[1], product, enter);
    }
    hopper::fence_async_proxy();  // dz
    warp_arrive(shared_.inputs().done(input_at_), at_.lane);
  }

  /// dy = dout·silu(z), rounded, and dout·silu'(z).
  __device__ __forceinline__ void gate(std::uint32_t (&dy)[16], float (&slopes)[T::kGated ? 32 : 1]) const {
    load_tile_pairs(dy, shared_.dout_tile(input_at_) + fragment_);
    if constexpr (T::kGated) {
      std::uint32_t z[16];
      load_tile_pairs(z, shared_.z_tile(input_at_) + fragment_);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float2 dout = unpack_pair<Io>(dy[i]);
        const float2 pair = unpack_pair<Io>(z[i]);
        const ValueSlope first = silu_approximate(pair.x);
        const ValueSlope second = silu_approximate(pair.y);
        dy[i] = pack_pair<Io>(dout.x * first.value, dout.y * second.value);
        slopes[2 * i] = dout.x * first.slope;
        slopes[2 * i + 1] = dout.y * second.slope;
      }
    }
  }

  /// L at an element of a fragment: of the row the decay in powers of two, of the column that of e.
  __device__ __forceinline__ float decay_between(int e, int i, float row, float column) const {
    const float decay = exp2_approximate(-kLog2E * column + row);
    return (reaches_ >> (4 * e + i) & 1U) != 0 ? decay : 0.0F;
  }

  /// M of this warp's rows, rounded, to its tile. A loop: the code of all roles has to fit in the instruction
  /// cache.
  __device__ __forceinline__ void mix(const Steps& steps) const {
    const float rows[2] = {kLog2E * steps[kStepDecay][at_.row_of(0)],
                           kLog2E * steps[kStepDecay][at_.row_of(2)]};
    const std::uint32_t tile = shared_.mixing_tile(pair_at_) + fragment_;
#pragma unroll 1
    for (int j = 0; j < 4; ++j) {
      std::uint32_t m[4] = {0, 0, 0, 0};
      if (j <= warp_) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int e = 2 * j + half;
          const float4 cb = shared_.cb()[e][thread_];
          const int s = at_.column_of(e, 0);
          const float2 column = *reinterpret_cast<const float2*>(steps[kStepDecay] + s);
          const float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + s);
          m[2 * half] = pack_pair<Io>(cb.x * delta.x * decay_between(e, 0, rows[0], column.x),
                                      cb.y * delta.y * decay_between(e, 1, rows[0], column.y));
          m[2 * half + 1] = pack_pair<Io>(cb.z * delta.x * decay_between(e, 2, rows[1], column.x),
                                          cb.w * delta.y * decay_between(e, 3, rows[1], column.y));
        }
      }
      hopper::store_matrices(tile ^ j * 32, m[0], m[1], m[2], m[3]);
    }
  }

  /// A barrier of this warpgroup's threads.
  __device__ static void group_barrier() {
    asm volatile("bar.sync 1, 128;\n" ::: "memory");
  }

  /// y = enter ∘ (C·Sᵀ), and its part of what flows past the steps.
  __device__ __forceinline__ void weigh_states(float (&y)[32], const std::uint32_t (&dy)[16],
                                               const float (&enter)[2], float (&flow_out)[2]) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 pair = unpack_pair<Io>(dy[i]);
      y[2 * i] *= enter[i % 2];
      y[2 * i + 1] *= enter[i % 2];
      flow_out[i % 2] += pair.x * y[2 * i] + pair.y * y[2 * i + 1];
    }
  }

  /// dz = dout·silu'(z)·(y + D·x), over z.
  __device__ __forceinline__ void store_dz(const float (&y)[32], const float (&slopes)[32],
                                           const SkipWeights& skip) const {
    hopper::barrier_wait(shared_.gates_read(input_at_), input_at_.parity);  // by the key warpgroup
    const std::uint32_t x_tile = shared_.x_tile(input_at_) + fragment_;
    const std::uint32_t z_tile = shared_.z_tile(input_at_) + fragment_;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t x[4];
      std::uint32_t dz[4];
      load_matrices(x, x_tile ^ j * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * j + 2 * i;
        const float2 d = skip.of(2 * j + i / 2);
        const float2 pair = unpack_pair<Io>(x[i]);
        dz[i] =
            pack_pair<Io>(slopes[at] * (y[at] + d.x * pair.x), slopes[at + 1] * (y[at + 1] + d.y * pair.y));
      }
      hopper::store_matrices(z_tile ^ j * 32, dz[0], dz[1], dz[2], dz[3]);
    }
  }

  /// From dy·xᵀ: Q, and the sums of W/Δ over columns and of W over rows.
  __device__ __forceinline__ void finish_weights(const float (&dyx)[32], const Steps& steps,
                                                 float (&flow_out)[2], HeadFlows& flows) const {
    const float rows[2] = {kLog2E * steps[kStepDecay][at_.row_of(0)],
                           kLog2E * steps[kStepDecay][at_.row_of(2)]};
    float columns[16];
    float diagonal[2] = {0.0F, 0.0F};  // in the lanes that have it
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      columns[2 * e] = columns[2 * e + 1] = 0.0F;
      if (e / 2 > warp_) continue;
      const float4 cb = shared_.cb()[e][thread_];
      float4 q = shared_.q()[e][thread_];
      const int s = at_.column_of(e, 0);
      const float2 column = *reinterpret_cast<const float2*>(steps[kStepDecay] + s);
      const float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + s);
      const auto element = [&](int i, float row, float column_decay, float step, float product, float& sum) {
        const float decayed = decay_between(e, i, row, column_decay) * dyx[4 * e + i];
        const float w = product * decayed;
        sum += decayed * step;
        if (s + i % 2 < at_.row_of(i)) {
          columns[2 * e + i % 2] += w;  // not the diagonal too: beside it, what strong decays leave is lost
          flow_out[i / 2] += w * step;
        }
        if (s + i % 2 == at_.row_of(i)) diagonal[i / 2] = w;
      };
      element(0, rows[0], column.x, delta.x, cb.x, q.x);
      element(1, rows[0], column.y, delta.y, cb.y, q.y);
      element(2, rows[1], column.x, delta.x, cb.z, q.z);
      element(3, rows[1], column.y, delta.y, cb.w, q.w);
      shared_.q()[e][thread_] = q;
    }
    if (at_.lane / 8 == at_.lane % 4) {
      flows.diagonal[at_.row_of(0)] = diagonal[0];
      flows.diagonal[at_.row_of(2)] = diagonal[1];
    }
    store_column_sums(columns, flows.column[warp_], at_.lane);
  }

  /// dC += Q·B, and out. Q goes to the key warpgroup in the place of M.
  __device__ __forceinline__ void finish(Sums& dC) {
    std::uint32_t q[16];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float4 sums = shared_.q()[e][thread_];
      q[2 * e] = pack_pair<Io>(sums.x, sums.y);
      q[2 * e + 1] = pack_pair<Io>(sums.z, sums.w);
    }
    shared_.pairs().wait_empty(pair_at_);
    store_tile_pairs(shared_.mixing_tile(pair_at_) + fragment_, q);
    warp_arrive(shared_.pairs().full(pair_at_), at_.lane);
    multiply_projection<Io, kHalves>(dC, q, shared_.b_tile());
    const int thread = group_thread();  // again: registers are short
    write_projection<Io, kHalves>(args_, Projection::C, dC, {16 * (thread / 32), 0, thread % 32});
  }

  const GradientArgs& args_;
  Shared shared_;
  int thread_;
  int warp_;
  Patch at_;
  std::uint32_t fragment_;
  unsigned reaches_;  ///< causal_pairs
  typename Shared::Inputs::Position input_at_;
  typename Shared::Pairs::Position pair_at_;
};

}  // namespace ssmbench::ssd_hopper_bwd
