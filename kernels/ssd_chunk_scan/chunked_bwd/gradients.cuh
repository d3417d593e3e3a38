#pragma once

// cuda-chunked backward, the gradients of one chunk. With the chunk's decays L[t][s] = e^(decay_t − decay_s),
// s ≤ t in one sequence, S the state that enters the chunk and S' the gradient of the state that leaves it,
//
//   M  = (C·Bᵀ) ∘ L ∘ Δ_s        y  = M·x + enter ∘ (C·Sᵀ)         dx = Mᵀ·dy + Δ∘leave ∘ (B·S'ᵀ) + D·dy
//   Q  = Σ_h (dy·xᵀ) ∘ L ∘ Δ_s   dC = Q·B + Σ_h enter ∘ (dy·S)     dB = Qᵀ·C + Σ_h Δ∘leave ∘ (x·S')
//
// The gradient of a decay Δ_t·A is what flows past step t: from steps before it, or from S, to steps from it
// on, or to S'. With W = M ∘ (dy·xᵀ),
//
//   da_t = Σ_{s<t≤r} W[r][s] + Σ_{r≥t} dy_r·enter_r·(S·C_r) + Σ_{s<t} Δ_s·leave_s·x_s·(S'·B_s)
//          + decay·⟨S', S⟩
//
// where the first sum is Σ_{r≥t} (sum of W's row r − sum of its column r), without the diagonal. All of this
// is f32; nothing but the operands of the matrix products is rounded. In f16 those that hold Δ or decays are
// scaled by powers of two, which are undone in f32: M by one per head, S and S' by one per tile, Q by one.
//
//   grid    one block per (batch, chunk, group, slice of the group's heads); it walks the heads of its slice,
//           so that C·Bᵀ, Q, dB and dC are there once, and sums over heads have one order
//   block   4 rows × kGradientColumns columns of warps; each has a patch of every 64 × 64 product in
//           registers
//   item    a head and a tile of P: x, z, dout → dx, dz; for each tile of N, four products with S and S'
//
// Registers: dB and dC take 32·kGradientEights floats per thread and 256 states, y, dx, dy·xᵀ and a product
// 4·kGradientEights each. 8 warps with patches of 16 × 32 have 255 registers and were 12% faster on an H200
// than 16 warps with patches of 16 × 16: fewer loads of fragments, and fewer warps to wait for.
// Shared memory: 38 KB of sums, C·Bᵀ and Q; in tiles: x, z, dout, S and S' twice (the next ones arrive during
// the products), dy, M, and all of B and C: 160 KB at most. f32 has single buffers, and one tile of B and C:
// 144 KB. One block per multiprocessor.

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/bwd_step.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/states.cuh"
#include "kernels/ssd_chunk_scan/chunked_bwd/tile.cuh"

namespace ssmbench {

inline constexpr int kGradientColumns = 2;
inline constexpr int kGradientWarps = 4 * kGradientColumns;
inline constexpr int kGradientThreads = 32 * kGradientWarps;
inline constexpr int kGradientEights = 8 / kGradientColumns;

/// True where shared memory has room for two buffers and all of B and C.
template <class T>
inline constexpr bool kBuffersAhead = sizeof(T) == 2;

/// What is not a tile.
struct GradientShared {
  float steps[2][kStepRows][kSsdTile];         ///< of even and odd heads
  float flow_out[kGradientColumns][kSsdTile];  ///< per step, terms of da that end there
  float flow_in[kGradientColumns][kSsdTile];   ///< x·(S'·B)·leave
  float column[4][kSsdTile];                   ///< column sums of W/Δ, without the diagonal
  float diagonal[kSsdTile];                    ///< of W/Δ
  float skip[4][kSsdTile];                     ///< per column p, dy·x
  float states[kGradientWarps];                ///< ⟨S', S⟩; at the end, the largest of Q
  alignas(16) float unscales[2][kUnscales];    ///< of the buffers of S and S'
  // C·Bᵀ and Q are used once or twice per head: registers are worth more. Each thread has its own.
  float4 cb[kGradientEights][kGradientThreads];
  float4 q[kGradientEights][kGradientThreads];
};

/// Tiles of the dynamic shared memory, in order.
template <class T>
struct GradientTiles {
  T* base;
  static constexpr int kBuffers = kBuffersAhead<T> ? 2 : 1;

  __device__ T* tile(int i) const { return base + i * kSsdTileElements; }
  __device__ T* dy() const { return tile(0); }
  __device__ T* mixing() const { return tile(1); }
  __device__ T* x(int buffer) const { return tile(2 + buffer * 3); }
  __device__ T* z(int buffer) const { return tile(3 + buffer * 3); }
  __device__ T* dout(int buffer) const { return tile(4 + buffer * 3); }
  __device__ T* state(int buffer) const { return tile(2 + kBuffers * 3 + buffer * 2); }
  __device__ T* dstate(int buffer) const { return tile(3 + kBuffers * 3 + buffer * 2); }
  __device__ T* B(int n_tile) const { return tile(2 + kBuffers * 5 + (kBuffersAhead<T> ? n_tile * 2 : 0)); }
  __device__ T* C(int n_tile) const { return B(n_tile) + kSsdTileElements; }
};

template <class T>
constexpr int gradients_shared_bytes(int dstate_tiles) {
  const int tiles = 2 + GradientTiles<T>::kBuffers * 5 + 2 * (kBuffersAhead<T> ? dstate_tiles : 1);
  return tiles * kSsdTileElements * static_cast<int>(sizeof(T));
}

/// Sum over the lanes whose index differs in the bits of `mask` (a run of bits).
template <int kFirst, int kLast>
__device__ float sum_lanes(float x) {
#pragma unroll
  for (int bit = kFirst; bit <= kLast; bit *= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, bit);
  return x;
}

template <class T, int kTilesN>
__global__ void __launch_bounds__(kGradientThreads, 1)
    ssd_gradients_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan,
                         const ChunkedBwdWorkspace workspace) {
  constexpr bool kAhead = kBuffersAhead<T>;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ __align__(16) GradientShared shared;
  const GradientTiles<T> tiles{reinterpret_cast<T*>(dynamic_shared)};
  const SsdInputs& in = args.in;

  std::int64_t block = blockIdx.x;
  const std::int64_t slice = block % plan.slices;
  block /= plan.slices;
  const std::int64_t group = block % in.groups;
  block /= in.groups;
  const std::int64_t chunk = block % plan.chunks;
  const std::int64_t b = block / plan.chunks;
  const std::int64_t start = chunk * kSsdTile;
  const int steps_valid = steps_within(start, kSsdTile, in.seqlen);
  const std::int64_t first_head = group * in.heads_per_group + slice * plan.per_slice;
  const int heads =
      steps_within(slice * plan.per_slice, static_cast<int>(plan.per_slice), in.heads_per_group);
  const int items = heads * plan.headdim_tiles;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const Patch at{warp / kGradientColumns * 16, warp % kGradientColumns * kGradientEights * 8, thread % 32};

  // --- Loads; each call is of all threads.
  const auto sequence_part = [&](auto* data, int item) {
    const int p_tile = item % plan.headdim_tiles;
    const std::int64_t head = first_head + item / plan.headdim_tiles;
    return TileSource<std::remove_pointer_t<decltype(data)>>{
        data + ((b * in.seqlen + start) * in.nheads + head) * in.headdim + p_tile * kSsdTile,
        in.nheads * in.headdim, steps_valid, steps_within(p_tile * kSsdTile, kSsdTile, in.headdim),
        parts_aligned<T>(in.headdim)};
  };
  const auto load_sequences = [&](int item) {
    const int buffer = item % GradientTiles<T>::kBuffers;
    load_tile<kGradientThreads>(tiles.x(buffer), sequence_part(static_cast<const T*>(in.x), item));
    load_tile<kGradientThreads>(tiles.dout(buffer), sequence_part(static_cast<const T*>(args.dout), item));
    if (in.z != nullptr)
      load_tile<kGradientThreads>(tiles.z(buffer), sequence_part(static_cast<const T*>(in.z), item));
    if (item % plan.headdim_tiles == 0 && threadIdx.x < kStepRows * kSsdTile / 4) {
      const int index = item / plan.headdim_tiles;
      const std::int64_t row = plan.row(b, chunk, first_head + index, in.nheads);
      copy_async_16(shared_address(&shared.steps[index % 2][0][0] + threadIdx.x * 4),
                    workspace.steps + row * kStepRows * kSsdTile + threadIdx.x * 4, 16);
    }
  };
  const auto load_states = [&](int item, int n_tile, int buffer) {
    const std::int64_t row = plan.row(b, chunk, first_head + item / plan.headdim_tiles, in.nheads);
    const std::int64_t tile = plan.state_tile(row, item % plan.headdim_tiles, n_tile);
    const std::int64_t image = tile * kSsdTileElements;
    load_image<kGradientThreads>(tiles.state(buffer), static_cast<const T*>(workspace.states) + image);
    load_image<kGradientThreads>(tiles.dstate(buffer), static_cast<const T*>(workspace.dstates) + image);
    if (kNarrowRange<T> && threadIdx.x == 0)
      copy_async_16(shared_address(shared.unscales[buffer]), workspace.unscales + tile * kUnscales, 16);
  };
  const auto load_projections = [&](int n_tile) {
    const std::int64_t offset = ((b * in.seqlen + start) * in.groups + group) * in.dstate + n_tile * kSsdTile;
    TileSource<const T> source{static_cast<const T*>(in.B) + offset, in.groups * in.dstate, steps_valid,
                               steps_within(n_tile * kSsdTile, kSsdTile, in.dstate),
                               parts_aligned<T>(in.dstate)};
    load_tile<kGradientThreads>(tiles.B(n_tile), source);
    source.data = static_cast<const T*>(in.C) + offset;
    load_tile<kGradientThreads>(tiles.C(n_tile), source);
  };
  /// Where B and C do not stay: fetches a tile of them after everyone is done with the one before.
  const auto fetch_projections = [&](int n_tile) {
    if constexpr (!kAhead) {
      __syncthreads();
      load_projections(n_tile);
      copy_async_commit();
      copy_async_wait<0>();
      __syncthreads();
    }
  };

  /// Of this thread's elements (t, s) of a product over time, those with s ≤ t in one sequence: bit 4e + i.
  unsigned reaches = 0;
#pragma unroll
  for (int e = 0; e < kGradientEights; ++e)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = min(at.row_of(i), steps_valid - 1);
      const int s = at.column_of(e, i);
      if (s <= t && sequence_at(args, b, start + s) == sequence_at(args, b, start + t))
        reaches |= 1U << (e * 4 + i);
    }

  // --- C·Bᵀ of the group.
  if constexpr (kAhead) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n)
      if (n < plan.dstate_tiles) load_projections(n);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    load_sequences(0);
    load_states(0, 0, 0);
    copy_async_commit();
  }
  Fragments<kGradientEights> cb, dyx, dB[kTilesN], dC[kTilesN];
  clear<kGradientEights>(cb);
  clear<kGradientEights>(dyx);
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    clear<kGradientEights>(dB[n]);
    clear<kGradientEights>(dC[n]);
    if (n >= plan.dstate_tiles) continue;
    fetch_projections(n);
    multiply<Lies::along_k, Lies::along_k, kGradientEights>(cb, tiles.C(n), tiles.B(n), at);
  }

#pragma unroll
  for (int e = 0; e < kGradientEights; ++e) {
    shared.cb[e][thread] = make_float4(cb[e][0], cb[e][1], cb[e][2], cb[e][3]);
    shared.q[e][thread] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }

  float flow_out[2] = {0.0F, 0.0F}, flow_in[2] = {0.0F, 0.0F};  // of rows row_of(0), row_of(2)
  float states_product = 0.0F;
  float skip_total = 0.0F;
  float mixing_unscale = 1.0F;  // of the head's M
  int state_buffer = 0;
  for (int item = 0; item < items; ++item) {
    const int p_tile = item % plan.headdim_tiles;
    const std::int64_t head = first_head + item / plan.headdim_tiles;
    const int buffer = item % GradientTiles<T>::kBuffers;
    const auto& steps = shared.steps[item / plan.headdim_tiles % 2];
    const T* const x_tile = tiles.x(buffer);
    Fragments<kGradientEights> y, u;
    clear<kGradientEights>(y);
    clear<kGradientEights>(u);

    /// L at this thread's elements.
    const auto decays_between = [&](Fragments<kGradientEights>& L) {
      const float decay[2] = {steps[kStepDecay][at.row_of(0)], steps[kStepDecay][at.row_of(2)]};
#pragma unroll
      for (int e = 0; e < kGradientEights; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float between = __expf(decay[i / 2] - steps[kStepDecay][at.column_of(e, i)]);
          L[e][i] = reaches >> (e * 4 + i) & 1U ? between : 0.0F;
        }
    };

#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (n >= plan.dstate_tiles) continue;
      if constexpr (kAhead) {
        copy_async_wait<0>();
        __syncthreads();  // this step's tiles are there, and nobody uses the other buffers any more
        if (n + 1 < plan.dstate_tiles) {
          load_states(item, n + 1, state_buffer ^ 1);
        } else if (item + 1 < items) {
          load_sequences(item + 1);
          load_states(item + 1, 0, state_buffer ^ 1);
        }
        copy_async_commit();
      } else {
        __syncthreads();
        if (n == 0) load_sequences(item);
        load_states(item, n, 0);
        fetch_projections(n);
      }

      if (n == 0) {
        for_parts<kGradientThreads, T>([&](int part) {
          const int offset = part_offset<T>(part);
          float dy[kPart<T>];
          load_part(dy, tiles.dout(buffer) + offset);
          if (in.z != nullptr) {
            float z[kPart<T>];
            load_part(z, tiles.z(buffer) + offset);
#pragma unroll
            for (int j = 0; j < kPart<T>; ++j) dy[j] *= silu_with_slope(z[j]).value;
          }
          store_part(tiles.dy() + offset, dy);
        });
        if (p_tile == 0) {
          SsdScale of_delta{1.0F, 1.0F};
          if constexpr (kNarrowRange<T>)
            of_delta = scale_to(largest_of_warp(fmaxf(fabsf(steps[kStepDelta][at.lane]),
                                                      fabsf(steps[kStepDelta][at.lane + 32]))),
                                kDeltaTarget);
          mixing_unscale = of_delta.down;
          Fragments<kGradientEights> mixing;
          decays_between(mixing);
#pragma unroll
          for (int e = 0; e < kGradientEights; ++e) {
            const float4 cb = shared.cb[e][thread];
            const float2 delta{of_delta.up * steps[kStepDelta][at.column_of(e, 0)],
                               of_delta.up * steps[kStepDelta][at.column_of(e, 1)]};
            mixing[e][0] *= cb.x * delta.x;
            mixing[e][1] *= cb.y * delta.y;
            mixing[e][2] *= cb.z * delta.x;
            mixing[e][3] *= cb.w * delta.y;
          }
          store_patch<kGradientEights>(tiles.mixing(), mixing, at, 1.0F);
        }
        __syncthreads();
      }

      const T* const state = tiles.state(state_buffer);
      const T* const dstate = tiles.dstate(state_buffer);
      float unscale = 1.0F;
      float dunscale = 1.0F;
      if constexpr (kNarrowRange<T>) {
        unscale = shared.unscales[state_buffer][kUnscaleState];
        dunscale = shared.unscales[state_buffer][kUnscaleGradient];
      }
      multiply<Lies::along_k, Lies::along_k, kGradientEights>(y, tiles.C(n), state, at, unscale);
      multiply<Lies::along_k, Lies::along_k, kGradientEights>(u, tiles.B(n), dstate, at, dunscale);
      Fragments<kGradientEights> product;
      clear<kGradientEights>(product);
      multiply<Lies::along_k, Lies::across_k, kGradientEights>(product, tiles.dy(), state, at);
#pragma unroll
      for (int e = 0; e < kGradientEights; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          dC[n][e][i] += steps[kStepEnter][at.row_of(i)] * (unscale * product[e][i]);
      clear<kGradientEights>(product);
      multiply<Lies::along_k, Lies::across_k, kGradientEights>(product, x_tile, dstate, at);
#pragma unroll
      for (int e = 0; e < kGradientEights; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          dB[n][e][i] +=
              steps[kStepDelta][at.row_of(i)] * steps[kStepLeave][at.row_of(i)] * (dunscale * product[e][i]);
      float of_tiles = 0.0F;
      for_parts<kGradientThreads, T>([&](int part) {
        float a[kPart<T>], c[kPart<T>];
        load_part(a, state + part * kPart<T>);
        load_part(c, dstate + part * kPart<T>);
#pragma unroll
        for (int j = 0; j < kPart<T>; ++j) of_tiles += a[j] * c[j];
      });
      states_product += of_tiles * unscale * dunscale;
      if constexpr (kAhead) state_buffer ^= 1;
    }

    // Between chunks so far: scaled, and its part of what flows past the steps.
#pragma unroll
    for (int e = 0; e < kGradientEights; ++e)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        const float2 dy = load_pair(tiles.dy(), t, at.column_of(e, i));
        const float2 x = load_pair(x_tile, t, at.column_of(e, i));
        y[e][i] *= steps[kStepEnter][t];
        y[e][i + 1] *= steps[kStepEnter][t];
        u[e][i] *= steps[kStepLeave][t];
        u[e][i + 1] *= steps[kStepLeave][t];
        flow_out[i / 2] += dy.x * y[e][i] + dy.y * y[e][i + 1];
        flow_in[i / 2] += x.x * u[e][i] + x.y * u[e][i + 1];
        u[e][i] *= steps[kStepDelta][t];
        u[e][i + 1] *= steps[kStepDelta][t];
      }
    // Within the chunk.
    if (in.z != nullptr)
      multiply<Lies::along_k, Lies::across_k, kGradientEights>(y, tiles.mixing(), x_tile, at, mixing_unscale);
    multiply<Lies::across_k, Lies::across_k, kGradientEights>(u, tiles.mixing(), tiles.dy(), at,
                                                              mixing_unscale);
    multiply<Lies::along_k, Lies::along_k, kGradientEights>(dyx, tiles.dy(), x_tile, at);

    // dx takes the place of dout, dz that of z: each element belongs to one thread.
#pragma unroll
    for (int e = 0; e < kGradientEights; ++e) {
      float skip[2] = {0.0F, 0.0F};  // D of the two columns
      float dskip[2] = {0.0F, 0.0F};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int p = p_tile * kSsdTile + at.column_of(e, j);
        if (in.D != nullptr && p < in.headdim)
          skip[j] = in.D[in.skip_per_headdim ? head * in.headdim + p : head];
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        const int column = at.column_of(e, i);
        const float2 x = load_pair(x_tile, t, column);
        const float2 dout = load_pair(static_cast<const T*>(tiles.dout(buffer)), t, column);
        float2 dy = dout;
        if (in.z != nullptr) {
          const float2 z = load_pair(static_cast<const T*>(tiles.z(buffer)), t, column);
          const Silu gate[2] = {silu_with_slope(z.x), silu_with_slope(z.y)};
          dy.x *= gate[0].value;
          dy.y *= gate[1].value;
          store_pair(tiles.z(buffer), t, column,
                     make_float2(dout.x * (y[e][i] + skip[0] * x.x) * gate[0].slope,
                                 dout.y * (y[e][i + 1] + skip[1] * x.y) * gate[1].slope));
        }
        store_pair(tiles.dout(buffer), t, column,
                   make_float2(u[e][i] + skip[0] * dy.x, u[e][i + 1] + skip[1] * dy.y));
        dskip[0] += dy.x * x.x;
        dskip[1] += dy.y * x.y;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        dskip[j] = sum_lanes<4, 16>(dskip[j]);
        if (at.lane < 4) shared.skip[at.row / 16][at.column_of(e, j)] = dskip[j];
      }
    }

    const bool head_done = p_tile + 1 == plan.headdim_tiles;
    if (head_done) {
      Fragments<kGradientEights> decayed;
      decays_between(decayed);
#pragma unroll
      for (int e = 0; e < kGradientEights; ++e) {
        const float4 cb_bits = shared.cb[e][thread];
        const float4 q_bits = shared.q[e][thread];
        const float cb[4] = {cb_bits.x, cb_bits.y, cb_bits.z, cb_bits.w};
        float q[4] = {q_bits.x, q_bits.y, q_bits.z, q_bits.w};
        float column[2] = {0.0F, 0.0F};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = at.row_of(i);
          const int s = at.column_of(e, i);
          const float delta = steps[kStepDelta][s];
          decayed[e][i] *= dyx[e][i];
          const float w = cb[i] * decayed[e][i];
          q[i] += decayed[e][i] * delta;
          if (s < t) {
            column[i % 2] += w;  // not the diagonal too: beside it, what strong decays leave would be lost
            flow_out[i / 2] += w * delta;
          }
          if (s == t) shared.diagonal[s] = w;
        }
        shared.q[e][thread] = make_float4(q[0], q[1], q[2], q[3]);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          column[j] = sum_lanes<4, 16>(column[j]);
          if (at.lane < 4) shared.column[at.row / 16][at.column_of(e, j)] = column[j];
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        flow_out[j] = sum_lanes<1, 2>(flow_out[j]);
        flow_in[j] = sum_lanes<1, 2>(flow_in[j]);
        if (at.lane % 4 == 0) {
          shared.flow_out[warp % kGradientColumns][at.row_of(2 * j)] = flow_out[j];
          shared.flow_in[warp % kGradientColumns][at.row_of(2 * j)] = flow_in[j];
        }
        flow_out[j] = flow_in[j] = 0.0F;
      }
      states_product = sum_lanes<1, 16>(states_product);
      if (at.lane == 0) shared.states[warp] = states_product;
      states_product = 0.0F;
      clear<kGradientEights>(dyx);
    }
    __syncthreads();

    store_tile<kGradientThreads>(sequence_part(static_cast<T*>(args.dx), item),
                                 static_cast<const T*>(tiles.dout(buffer)));
    if (in.z != nullptr)
      store_tile<kGradientThreads>(sequence_part(static_cast<T*>(args.dz), item),
                                   static_cast<const T*>(tiles.z(buffer)));
    if (head_done && thread < kSsdTile) {
      float out = 0.0F, into = 0.0F, column = 0.0F;
#pragma unroll
      for (int k = 0; k < kGradientColumns; ++k) {
        out += shared.flow_out[k][thread];
        into += shared.flow_in[k][thread];
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) column += shared.column[k][thread];
      const float delta = steps[kStepDelta][thread];
      out -= delta * column;
      // What flows past all steps ends, for the sums, at the last one.
      if (thread == kSsdTile - 1) {
        float through = 0.0F;
        for (const float part : shared.states) through += part;
        out += steps[kStepEnter][thread] * through;
      }
      float* const flows =
          workspace.flows + plan.row(b, chunk, head, in.nheads) * kFlowRows * kSsdTile + thread;
      flows[kFlowOut * kSsdTile] = out;
      flows[kFlowIn * kSsdTile] = delta * into;
      flows[kFlowDirect * kSsdTile] = shared.diagonal[thread] + column + into;
    }
    if (in.D != nullptr && warp == kGradientWarps - 1) {
      float* const head_sums = workspace.head_sums + plan.row(b, chunk, head, in.nheads) * plan.sums;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = 2 * at.lane + j;
        const int p = p_tile * kSsdTile + column;
        const float sum = (shared.skip[0][column] + shared.skip[1][column]) +
                          (shared.skip[2][column] + shared.skip[3][column]);
        if (in.skip_per_headdim && p < in.headdim) head_sums[2 + p] = sum;
        skip_total += sum;
      }
      if (head_done) {
        skip_total = sum_lanes<1, 16>(skip_total);
        if (!in.skip_per_headdim && at.lane == 0) head_sums[2] = skip_total;
        skip_total = 0.0F;
      }
    }
  }

  // --- What the heads share: Q's part of dB and dC, then out.
  __syncthreads();
  Fragments<kGradientEights> q;
#pragma unroll
  for (int e = 0; e < kGradientEights; ++e) {
    const float4 bits = shared.q[e][thread];
    q[e][0] = bits.x;
    q[e][1] = bits.y;
    q[e][2] = bits.z;
    q[e][3] = bits.w;
  }
  SsdScale of_q{1.0F, 1.0F};
  if constexpr (kNarrowRange<T>)
    of_q =
        scale_to(largest_of_block<kGradientWarps>(largest<kGradientEights>(q), shared.states), kTileTarget);
  store_patch<kGradientEights>(tiles.mixing(), q, at, of_q.up);
  __syncthreads();
  const std::int64_t all = in.batch * in.seqlen * in.groups * in.dstate;
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    if (n >= plan.dstate_tiles) continue;
    fetch_projections(n);
    multiply<Lies::along_k, Lies::across_k, kGradientEights>(dC[n], tiles.mixing(), tiles.B(n), at,
                                                             of_q.down);
    multiply<Lies::across_k, Lies::across_k, kGradientEights>(dB[n], tiles.mixing(), tiles.C(n), at,
                                                              of_q.down);
#pragma unroll
    for (int e = 0; e < kGradientEights; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = at.row_of(i);
        const int state = n * kSsdTile + at.column_of(e, i);
        if (t >= steps_valid || state >= in.dstate) continue;
        const std::int64_t place = ((b * in.seqlen + start + t) * in.groups + group) * in.dstate + state;
        if (plan.slices == 1) {
          static_cast<T*>(args.dB)[place] = from_float<T>(dB[n][e][i]);
          static_cast<T*>(args.dC)[place] = from_float<T>(dC[n][e][i]);
        } else {
          workspace.projections[slice * 2 * all + place] = dB[n][e][i];
          workspace.projections[(slice * 2 + 1) * all + place] = dC[n][e][i];
        }
      }
  }
}

/// ddt, and the chunk's parts of dA and ddt_bias, from what the gradient kernel leaves of every step. One
/// warp per row (batch, chunk, head); lane i has steps 2i and 2i + 1.
template <class T>
__global__ void __launch_bounds__(kStepsThreads)
    ssd_finish_steps_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan,
                            const ChunkedBwdWorkspace workspace) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kStepsThreads / 32) + threadIdx.x / 32;
  if (row >= plan.rows) return;
  const SsdInputs& in = args.in;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t head = row % in.nheads;
  const std::int64_t start = row / in.nheads % plan.chunks * kSsdTile;
  const std::int64_t b = row / in.nheads / plan.chunks;
  const float* const flows = workspace.flows + row * kFlowRows * kSsdTile + 2 * lane;
  const float2 out = *reinterpret_cast<const float2*>(flows + kFlowOut * kSsdTile);
  const float2 into = *reinterpret_cast<const float2*>(flows + kFlowIn * kSsdTile);
  const float2 direct = *reinterpret_cast<const float2*>(flows + kFlowDirect * kSsdTile);

  // Sums over this and later steps, and over earlier ones.
  float later = out.x + out.y;
  float earlier = into.x + into.y;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float down = __shfl_down_sync(0xFFFFFFFFU, later, distance);
    const float up = __shfl_up_sync(0xFFFFFFFFU, earlier, distance);
    if (lane + distance < 32) later += down;
    if (lane >= distance) earlier += up;
  }
  float later_lanes = __shfl_down_sync(0xFFFFFFFFU, later, 1);
  if (lane == 31) later_lanes = 0.0F;
  earlier = __shfl_up_sync(0xFFFFFFFFU, earlier, 1);
  if (lane == 0) earlier = 0.0F;
  const float da[2] = {later + earlier, (out.y + later_lanes) + (earlier + into.x)};
  const float of_delta[2] = {direct.x, direct.y};

  float dA = 0.0F, dbias = 0.0F;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t t = start + 2 * lane + i;
    if (t >= in.seqlen) continue;
    // Nothing flows past a reset.
    const float flow = sequence_at(args, b, t) == sequence_at(args, b, t - 1) ? da[i] : 0.0F;
    const std::int64_t place = (b * in.seqlen + t) * in.nheads + head;
    const SsdDelta delta = ssd_delta(in, head, to_float(static_cast<const T*>(in.dt)[place]));
    const float ddt = (in.A[head] * flow + of_delta[i]) * delta.slope;
    static_cast<T*>(args.ddt)[place] = from_float<T>(ddt);
    dA += delta.value * flow;
    dbias += ddt;
  }
  dA = sum_lanes<1, 16>(dA);
  dbias = sum_lanes<1, 16>(dbias);
  if (lane != 0) return;
  workspace.head_sums[row * plan.sums] = dA;
  workspace.head_sums[row * plan.sums + 1] = dbias;
}

}  // namespace ssmbench
