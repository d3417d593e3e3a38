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
//   block   8 warps; each has a patch of every product over a tile in registers (GradientShape)
//   item    a head and a tile of P: x, z, dout → dx, dz; for each tile of N, four products with S and S'
//
//                                tensor cores, 64 × 64     f32, 64 × 64     f32, 32 × 32
//   patch of a warp              16 × 32                   16 × 32          16 × 8
//   registers: dB and dC         128 for 256 states        128              64
//   registers: y, dx, dy·xᵀ
//     and a product, each        16                        16               4
//   shared: sums, C·Bᵀ, Q        38 KB                     39 KB            11 KB
//   shared: tiles                160 KB at most            144 KB           36 KB
//   pipeline stages of x, z,
//     dout, S and S'             2                         1                1
//   tiles of B and C             all                       1                1
//
// One block per SM. 8 warps with patches of 16 × 32 have 255 registers and were 12% faster on an H200 than 16
// warps with patches of 16 × 16: fewer loads of fragments, and fewer warps to wait for.

#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/states.cuh"
#include "kernels/ssd_chunk_scan/tile.cuh"

namespace ssmbench {

inline constexpr int kGradientWarps = 8;
inline constexpr int kGradientThreads = 32 * kGradientWarps;

/// The patches of the warps in a tile: rows and columns of them, and the mma accumulators (16 × 8) of each.
template <class T>
struct GradientShape {
  static constexpr int kRows = kSide<T> / 16;
  static constexpr int kColumns = kGradientWarps / kRows;
  static constexpr int kAtoms = kSide<T> / 8 / kColumns;
};

/// True where shared memory has room for two stages and all of B and C.
template <class T>
inline constexpr bool kDoubleBuffered = sizeof(T) == 2;

/// A thread's four elements of one fragment, as 16 bytes of shared memory.
struct alignas(16) PatchVector {
  float element[4];
};

/// Shared memory besides the tiles.
template <class T>
struct GradientShared {
  using Shape = GradientShape<T>;
  float steps[2][kStepRows<T>][kSide<T>];     ///< of even and odd heads
  float flow_out[Shape::kColumns][kSide<T>];  ///< per step, terms of da that end there
  float flow_in[Shape::kColumns][kSide<T>];   ///< x·(S'·B)·leave
  float column[Shape::kRows][kSide<T>];       ///< column sums of W/Δ, without the diagonal
  float diagonal[kSide<T>];                   ///< of W/Δ
  float skip[Shape::kRows][kSide<T>];         ///< per column p, dy·x
  float states[kGradientWarps];               ///< ⟨S', S⟩
  float largest[kGradientWarps];              ///< of M; at the end, of Q
  alignas(16) float unscales[2][kUnscales];   ///< of the stages of S and S'
  // C·Bᵀ and Q are used once or twice per head: registers are worth more. Each thread has its own.
  PatchVector cb[Shape::kAtoms][kGradientThreads];
  PatchVector q[Shape::kAtoms][kGradientThreads];
};

/// Tiles of the dynamic shared memory, in order.
template <class T>
struct GradientTiles {
  T* base;
  static constexpr int kStages = kDoubleBuffered<T> ? 2 : 1;

  __device__ T* tile(int i) const { return base + i * kTileElements<T>; }
  __device__ T* dy() const { return tile(0); }
  __device__ T* mixing() const { return tile(1); }
  __device__ T* x(int stage) const { return tile(2 + stage * 3); }
  __device__ T* z(int stage) const { return tile(3 + stage * 3); }
  __device__ T* dout(int stage) const { return tile(4 + stage * 3); }
  __device__ T* state(int stage) const { return tile(2 + kStages * 3 + stage * 2); }
  __device__ T* dstate(int stage) const { return tile(3 + kStages * 3 + stage * 2); }
  __device__ T* B(int n_tile) const { return tile(2 + kStages * 5 + (kDoubleBuffered<T> ? n_tile * 2 : 0)); }
  __device__ T* C(int n_tile) const { return B(n_tile) + kTileElements<T>; }
};

template <class T>
constexpr int gradients_shared_bytes(int dstate_tiles) {
  const int tiles = 2 + GradientTiles<T>::kStages * 5 + 2 * (kDoubleBuffered<T> ? dstate_tiles : 1);
  return tiles * kTileElements<T> * static_cast<int>(sizeof(T));
}

/// A head and a tile of P, which the block takes one after the other.
struct GradientItem {
  int index;
  int head_index;  ///< within the slice
  int p_tile;
  bool head_done;  ///< the last tile of its head
  std::int64_t head;
  int stage;  ///< of x, z and dout
};

/// What a thread adds up over the tiles of a head; rows are row_of(0) and row_of(2) of its patch.
struct GradientHeadSums {
  float flow_out[2], flow_in[2];
  float states_product;  ///< ⟨S', S⟩
  float skip;            ///< dy·x, for a D per head
  float mixing_unscale;  ///< of the head's M
};

/// A block of the gradient kernel as one of its threads sees it: coordinates and phases. The phases stand in
/// the order in which the kernel calls them; each is of all threads.
template <class T, class Io>
struct GradientBlock {
  static constexpr int kRows = GradientShape<T>::kRows;
  static constexpr int kColumns = GradientShape<T>::kColumns;
  static constexpr int kAtoms = GradientShape<T>::kAtoms;
  using PatchFragments = Fragments<kAtoms>;
  static constexpr bool kAhead = kDoubleBuffered<T>;

  const SsdBwdArgs& args;
  const SsdInputs& in;
  const ChunkedBwdPlan& plan;
  const ChunkedBwdWorkspace& workspace;
  GradientShared<T>& shared;
  GradientTiles<T> tiles;

  std::int64_t b, chunk, group, slice;
  std::int64_t start;  ///< first step
  int steps_valid;
  std::int64_t first_head;  ///< of the slice
  int items;
  int thread, warp;
  PatchOf<T> at;
  unsigned reaches;  ///< causal_pairs

  __device__ __forceinline__ GradientBlock(const SsdBwdArgs& all, const ChunkedBwdPlan& cut,
                                           const ChunkedBwdWorkspace& arrays, GradientShared<T>& sums,
                                           T* memory)
      : args(all), in(all.in), plan(cut), workspace(arrays), shared(sums), tiles{memory} {
    std::int64_t index = blockIdx.x;
    slice = index % plan.slices;
    index /= plan.slices;
    group = index % in.groups;
    index /= in.groups;
    chunk = index % plan.chunks;
    b = index / plan.chunks;
    start = chunk * kSide<T>;
    steps_valid = steps_within(start, kSide<T>, in.seqlen);
    first_head = group * in.heads_per_group + slice * plan.per_slice;
    const int heads =
        steps_within(slice * plan.per_slice, static_cast<int>(plan.per_slice), in.heads_per_group);
    items = heads * plan.headdim_tiles;
    thread = static_cast<int>(threadIdx.x);
    warp = thread / 32;
    static_cast<Patch&>(at) = {warp / kColumns * 16, warp % kColumns * kAtoms * 8, thread % 32};
    reaches = causal_pairs<kAtoms>(in, b, start, steps_valid, at);
  }

  __device__ __forceinline__ GradientItem item(int index) const {
    const int head = index / plan.headdim_tiles;
    const int p_tile = index % plan.headdim_tiles;
    return {index,
            head,
            p_tile,
            p_tile + 1 == plan.headdim_tiles,
            first_head + head,
            index % GradientTiles<T>::kStages};
  }
  __device__ __forceinline__ const float (&steps_of(const GradientItem& item) const)[kStepRows<T>][kSide<T>] {
    return shared.steps[item.head_index % 2];
  }
  /// The row of the chunk and a head.
  __device__ __forceinline__ std::int64_t row_of(const GradientItem& item) const {
    return plan.row(b, chunk, item.head, in.nheads);
  }

  // --- Loads.

  template <class Element>
  __device__ __forceinline__ TileSource<Element> sequence_tile(Element* data,
                                                               const GradientItem& item) const {
    return {data + ((b * in.seqlen + start) * in.nheads + item.head) * in.headdim + item.p_tile * kSide<T>,
            in.nheads * in.headdim, steps_valid, steps_within(item.p_tile * kSide<T>, kSide<T>, in.headdim),
            vectors_aligned<Io>(in.headdim)};
  }

  /// x, dout and z of an item; with a head's first tile also its steps.
  __device__ __forceinline__ void load_sequences(const GradientItem& item) const {
    load_tile<kGradientThreads>(tiles.x(item.stage), sequence_tile(static_cast<const Io*>(in.x), item));
    load_tile<kGradientThreads>(tiles.dout(item.stage),
                                sequence_tile(static_cast<const Io*>(args.dout), item));
    if (in.z != nullptr)
      load_tile<kGradientThreads>(tiles.z(item.stage), sequence_tile(static_cast<const Io*>(in.z), item));
    if (item.p_tile == 0 && threadIdx.x < kStepRows<T> * kSide<T> / 4)
      copy_async_16(shared_address(&shared.steps[item.head_index % 2][0][0] + threadIdx.x * 4),
                    workspace.steps + row_of(item) * kStepRows<T> * kSide<T> + threadIdx.x * 4, 16);
  }

  __device__ __forceinline__ void load_states(const GradientItem& item, int n_tile, int stage) const {
    const std::int64_t tile = plan.state_tile(row_of(item), item.p_tile, n_tile);
    const std::int64_t image = tile * kTileElements<T>;
    load_image<kGradientThreads>(tiles.state(stage), static_cast<const T*>(workspace.states) + image);
    load_image<kGradientThreads>(tiles.dstate(stage), static_cast<const T*>(workspace.dstates) + image);
    if (kNarrowRange<T> && threadIdx.x == 0)
      copy_async_16(shared_address(shared.unscales[stage]), workspace.unscales + tile * kUnscales, 16);
  }

  __device__ __forceinline__ void load_projections(int n_tile) const {
    const std::int64_t offset = ((b * in.seqlen + start) * in.groups + group) * in.dstate + n_tile * kSide<T>;
    TileSource<const Io> source{static_cast<const Io*>(in.B) + offset, in.groups * in.dstate, steps_valid,
                                steps_within(n_tile * kSide<T>, kSide<T>, in.dstate),
                                vectors_aligned<Io>(in.dstate)};
    load_tile<kGradientThreads>(tiles.B(n_tile), source);
    source.data = static_cast<const Io*>(in.C) + offset;
    load_tile<kGradientThreads>(tiles.C(n_tile), source);
  }

  /// Where B and C do not stay: a tile of them, after everyone is done with the one before.
  __device__ __forceinline__ void fetch_projections(int n_tile) const {
    if constexpr (!kAhead) {
      __syncthreads();
      load_projections(n_tile);
      copy_async_commit();
      copy_async_wait<0>();
      __syncthreads();
    }
  }

  /// Where B and C stay: all of them; then starts the first item's copies.
  template <int kTilesN>
  __device__ __forceinline__ void start_pipeline() const {
    if constexpr (kAhead) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n)
        if (n < plan.dstate_tiles) load_projections(n);
      copy_async_commit();
      copy_async_wait<0>();
      __syncthreads();
      load_sequences(item(0));
      load_states(item(0), 0, 0);
      copy_async_commit();
    }
  }

  /// Waits for the tiles of (item, n_tile), and starts the copies of the next.
  __device__ __forceinline__ void advance_pipeline(const GradientItem& now, int n_tile,
                                                   int state_stage) const {
    if constexpr (kAhead) {
      copy_async_wait<0>();
      __syncthreads();  // this step's tiles are there, and nobody uses the other stages any more
      if (n_tile + 1 < plan.dstate_tiles) {
        load_states(now, n_tile + 1, state_stage ^ 1);
      } else if (now.index + 1 < items) {
        load_sequences(item(now.index + 1));
        load_states(item(now.index + 1), 0, state_stage ^ 1);
      }
      copy_async_commit();
    } else {
      __syncthreads();
      if (n_tile == 0) load_sequences(now);
      load_states(now, n_tile, 0);
      fetch_projections(n_tile);
    }
  }

  // --- Once per item: dy, and M of its head.

  /// dy = dout·silu(z).
  __device__ __forceinline__ void store_dy(const GradientItem& item) const {
    for_vectors<kGradientThreads, T>([&](int vector) {
      const int offset = vector_offset<T>(vector);
      float dy[kVectorElements<T>];
      load_vector(dy, tiles.dout(item.stage) + offset);
      if (in.z != nullptr) {
        float z[kVectorElements<T>];
        load_vector(z, tiles.z(item.stage) + offset);
#pragma unroll
        for (int j = 0; j < kVectorElements<T>; ++j) dy[j] *= silu_slope(z[j]).value;
      }
      store_vector(tiles.dy() + offset, dy);
    });
  }

  /// L at this thread's elements.
  __device__ __forceinline__ void decays_between(PatchFragments& L, const GradientItem& item) const {
    decays_between_steps<T, kAtoms>(L, steps_of(item), at, reaches);
  }

  /// M, scaled into the range of T. Returns what undoes the scale.
  __device__ __forceinline__ float store_mixing(const GradientItem& item) const {
    const auto& steps = steps_of(item);
    PatchFragments mixing;
    decays_between(mixing, item);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e) {
      const PatchVector cb = shared.cb[e][thread];
      const float delta[2] = {steps[kStepDelta][at.column_of(e, 0)], steps[kStepDelta][at.column_of(e, 1)]};
#pragma unroll
      for (int i = 0; i < 4; ++i) mixing[e][i] *= cb.element[i] * delta[i % 2];
    }
    SsdScale of_mixing{1.0F, 1.0F};
    if constexpr (kNarrowRange<T>)  // Δ may be 10^5 times as large at one step as at the next
      of_mixing =
          scale_to(largest_of_block<kGradientWarps>(largest<kAtoms>(mixing), shared.largest), kTopTarget);
    store_fragments<kAtoms>(tiles.mixing(), mixing, at, of_mixing.up);
    return of_mixing.down;
  }

  // --- Products with what enters and leaves the chunk, one tile of N at a time.

  /// y += C·Sᵀ, u += B·S'ᵀ, dC += enter ∘ (dy·S), dB += Δ∘leave ∘ (x·S'), and ⟨S', S⟩.
  __device__ __forceinline__ void multiply_states(const GradientItem& item, int n_tile, int state_stage,
                                                  PatchFragments& y, PatchFragments& u, PatchFragments& dB,
                                                  PatchFragments& dC, GradientHeadSums& sums) const {
    const auto& steps = steps_of(item);
    const T* const x_tile = tiles.x(item.stage);
    const T* const state = tiles.state(state_stage);
    const T* const dstate = tiles.dstate(state_stage);
    float unscale = 1.0F;
    float dunscale = 1.0F;
    if constexpr (kNarrowRange<T>) {
      unscale = shared.unscales[state_stage][kUnscaleState];
      dunscale = shared.unscales[state_stage][kUnscaleGradient];
    }
    multiply<Major::k, Major::k, kAtoms>(y, tiles.C(n_tile), state, at, unscale);
    multiply<Major::k, Major::k, kAtoms>(u, tiles.B(n_tile), dstate, at, dunscale);
    PatchFragments product;
    clear<kAtoms>(product);
    multiply<Major::k, Major::mn, kAtoms>(product, tiles.dy(), state, at);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) dC[e][i] += steps[kStepEnter][at.row_of(i)] * (unscale * product[e][i]);
    clear<kAtoms>(product);
    multiply<Major::k, Major::mn, kAtoms>(product, x_tile, dstate, at);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        dB[e][i] +=
            steps[kStepDelta][at.row_of(i)] * steps[kStepLeave][at.row_of(i)] * (dunscale * product[e][i]);
    float of_tiles = 0.0F;
    for_vectors<kGradientThreads, T>([&](int vector) {
      float a[kVectorElements<T>], c[kVectorElements<T>];
      load_vector(a, state + vector * kVectorElements<T>);
      load_vector(c, dstate + vector * kVectorElements<T>);
#pragma unroll
      for (int j = 0; j < kVectorElements<T>; ++j) of_tiles += a[j] * c[j];
    });
    sums.states_product += of_tiles * unscale * dunscale;
  }

  /// Scales y and u, which hold what comes from other chunks so far, and adds what they
  /// contribute to the flows past the steps.
  __device__ __forceinline__ void weigh_states(const GradientItem& item, PatchFragments& y, PatchFragments& u,
                                               GradientHeadSums& sums) const {
    const auto& steps = steps_of(item);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        const float2 dy = load_pair(tiles.dy(), t, at.column_of(e, i));
        const float2 x = load_pair(tiles.x(item.stage), t, at.column_of(e, i));
        y[e][i] *= steps[kStepEnter][t];
        y[e][i + 1] *= steps[kStepEnter][t];
        u[e][i] *= steps[kStepLeave][t];
        u[e][i + 1] *= steps[kStepLeave][t];
        sums.flow_out[i / 2] += dy.x * y[e][i] + dy.y * y[e][i + 1];
        sums.flow_in[i / 2] += x.x * u[e][i] + x.y * u[e][i + 1];
        u[e][i] *= steps[kStepDelta][t];
        u[e][i + 1] *= steps[kStepDelta][t];
      }
  }

  // --- Within the chunk.

  /// y += M·x, u += Mᵀ·dy, dyx += dy·xᵀ.
  __device__ __forceinline__ void multiply_chunk(const GradientItem& item, PatchFragments& y,
                                                 PatchFragments& u, PatchFragments& dyx,
                                                 float mixing_unscale) const {
    const T* const x_tile = tiles.x(item.stage);
    if (in.z != nullptr) multiply<Major::k, Major::mn, kAtoms>(y, tiles.mixing(), x_tile, at, mixing_unscale);
    multiply<Major::mn, Major::mn, kAtoms>(u, tiles.mixing(), tiles.dy(), at, mixing_unscale);
    multiply<Major::k, Major::k, kAtoms>(dyx, tiles.dy(), x_tile, at);
  }

  /// dx overwrites dout, dz overwrites z: each element belongs to one thread. Column sums of dy·x are dD.
  __device__ __forceinline__ void store_input_gradients(const GradientItem& item, const PatchFragments& y,
                                                        const PatchFragments& u) const {
    const std::int64_t headdim = in.headdim;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e) {
      float skip[2] = {0.0F, 0.0F};  // D of the two columns
      float dskip[2] = {0.0F, 0.0F};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int p = item.p_tile * kSide<T> + at.column_of(e, j);
        if (in.D != nullptr && p < headdim)
          skip[j] = in.D[in.skip_per_headdim ? item.head * headdim + p : item.head];
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        const int column = at.column_of(e, i);
        const float2 x = load_pair(static_cast<const T*>(tiles.x(item.stage)), t, column);
        const float2 dout = load_pair(static_cast<const T*>(tiles.dout(item.stage)), t, column);
        float2 dy = dout;
        if (in.z != nullptr) {
          const float2 z = load_pair(static_cast<const T*>(tiles.z(item.stage)), t, column);
          const ValueSlope gate[2] = {silu_slope(z.x), silu_slope(z.y)};
          dy.x *= gate[0].value;
          dy.y *= gate[1].value;
          store_pair(tiles.z(item.stage), t, column,
                     make_float2(dout.x * (y[e][i] + skip[0] * x.x) * gate[0].slope,
                                 dout.y * (y[e][i + 1] + skip[1] * x.y) * gate[1].slope));
        }
        store_pair(tiles.dout(item.stage), t, column,
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
  }

  // --- Once per head.

  /// From dy·xᵀ: Q, and the sums of W/Δ over columns and of W over rows.
  __device__ __forceinline__ void finish_weights(const GradientItem& item, PatchFragments& dyx,
                                                 GradientHeadSums& sums) const {
    const auto& steps = steps_of(item);
    PatchFragments decayed;
    decays_between(decayed, item);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e) {
      const PatchVector cb = shared.cb[e][thread];
      PatchVector q = shared.q[e][thread];
      float column[2] = {0.0F, 0.0F};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = at.row_of(i);
        const int s = at.column_of(e, i);
        const float delta = steps[kStepDelta][s];
        decayed[e][i] *= dyx[e][i];
        const float w = cb.element[i] * decayed[e][i];
        q.element[i] += decayed[e][i] * delta;
        if (s < t) {
          column[i % 2] += w;  // not the diagonal too: beside it, what strong decays leave would be lost
          sums.flow_out[i / 2] += w * delta;
        }
        if (s == t) shared.diagonal[s] = w;
      }
      shared.q[e][thread] = q;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        column[j] = sum_lanes<4, 16>(column[j]);
        if (at.lane < 4) shared.column[at.row / 16][at.column_of(e, j)] = column[j];
      }
    }
    clear<kAtoms>(dyx);
  }

  /// A head's sums to shared memory, where write_flows takes them; they start again from 0.
  __device__ __forceinline__ void share_flows(GradientHeadSums& sums) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sums.flow_out[j] = sum_lanes<1, 2>(sums.flow_out[j]);
      sums.flow_in[j] = sum_lanes<1, 2>(sums.flow_in[j]);
      if (at.lane % 4 == 0) {
        shared.flow_out[warp % kColumns][at.row_of(2 * j)] = sums.flow_out[j];
        shared.flow_in[warp % kColumns][at.row_of(2 * j)] = sums.flow_in[j];
      }
      sums.flow_out[j] = sums.flow_in[j] = 0.0F;
    }
    sums.states_product = sum_lanes<1, 16>(sums.states_product);
    if (at.lane == 0) shared.states[warp] = sums.states_product;
    sums.states_product = 0.0F;
  }

  // --- Stores.

  __device__ __forceinline__ void write_sequences(const GradientItem& item) const {
    store_tile<kGradientThreads>(sequence_tile(static_cast<Io*>(args.dx), item),
                                 static_cast<const T*>(tiles.dout(item.stage)));
    if (in.z != nullptr)
      store_tile<kGradientThreads>(sequence_tile(static_cast<Io*>(args.dz), item),
                                   static_cast<const T*>(tiles.z(item.stage)));
  }

  /// Step `thread` of a head, for ddt and dA.
  __device__ __forceinline__ void write_flows(const GradientItem& item) const {
    if (thread >= kSide<T>) return;
    const auto& steps = steps_of(item);
    float out = 0.0F, into = 0.0F, column = 0.0F;
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      out += shared.flow_out[k][thread];
      into += shared.flow_in[k][thread];
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) column += shared.column[k][thread];
    const float delta = steps[kStepDelta][thread];
    out -= delta * column;
    // What flows past all steps ends, for the sums, at the last one.
    if (thread == kSide<T> - 1) {
      float through = 0.0F;
      for (const float of_warp : shared.states) through += of_warp;
      out += steps[kStepEnter][thread] * through;
    }
    float* const flows = workspace.flows + row_of(item) * kFlowRows * kSide<T> + thread;
    flows[kFlowOut * kSide<T>] = out;
    flows[kFlowIn * kSide<T>] = delta * into;
    flows[kFlowDirect * kSide<T>] = shared.diagonal[thread] + column + into;
  }

  /// The chunk's contribution to dD, by the last warp.
  __device__ __forceinline__ void write_skip(const GradientItem& item, GradientHeadSums& sums) const {
    if (in.D == nullptr || warp != kGradientWarps - 1) return;
    float* const head_sums = workspace.head_sums + row_of(item) * plan.sums;
    const std::int64_t headdim = in.headdim;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int column = 2 * at.lane + j;
      if (column >= kSide<T>) continue;
      const int p = item.p_tile * kSide<T> + column;
      float sum = shared.skip[0][column] + shared.skip[1][column];
      if constexpr (kRows == 4) sum += shared.skip[2][column] + shared.skip[3][column];
      if (in.skip_per_headdim && p < headdim) head_sums[2 + p] = sum;
      sums.skip += sum;
    }
    if (item.head_done) {
      sums.skip = sum_lanes<1, 16>(sums.skip);
      if (!in.skip_per_headdim && at.lane == 0) head_sums[2] = sums.skip;
      sums.skip = 0.0F;
    }
  }

  // --- What the heads share.

  /// Q, scaled into the range of T, in the place of M. Returns what undoes the scale.
  __device__ __forceinline__ float store_q() const {
    PatchFragments q;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e) {
      const PatchVector sum = shared.q[e][thread];
#pragma unroll
      for (int i = 0; i < 4; ++i) q[e][i] = sum.element[i];
    }
    SsdScale of_q{1.0F, 1.0F};
    if constexpr (kNarrowRange<T>)
      of_q = scale_to(largest_of_block<kGradientWarps>(largest<kAtoms>(q), shared.largest), kTopTarget);
    store_fragments<kAtoms>(tiles.mixing(), q, at, of_q.up);
    return of_q.down;
  }

  /// dC += Q·B, dB += Qᵀ·C; then out, or to the workspace as the slice's sum.
  __device__ __forceinline__ void write_projections(int n_tile, float q_unscale, PatchFragments& dB,
                                                    PatchFragments& dC) const {
    const std::int64_t dstate = in.dstate;
    const std::int64_t all = in.batch * in.seqlen * in.groups * dstate;
    multiply<Major::k, Major::mn, kAtoms>(dC, tiles.mixing(), tiles.B(n_tile), at, q_unscale);
    multiply<Major::mn, Major::mn, kAtoms>(dB, tiles.mixing(), tiles.C(n_tile), at, q_unscale);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = at.row_of(i);
        const int state = n_tile * kSide<T> + at.column_of(e, i);
        if (t >= steps_valid || state >= dstate) continue;
        const std::int64_t element = ((b * in.seqlen + start + t) * in.groups + group) * dstate + state;
        if (plan.slices == 1) {
          static_cast<Io*>(args.dB)[element] = from_float<Io>(dB[e][i]);
          static_cast<Io*>(args.dC)[element] = from_float<Io>(dC[e][i]);
        } else {
          workspace.projections[slice * 2 * all + element] = dB[e][i];
          workspace.projections[(slice * 2 + 1) * all + element] = dC[e][i];
        }
      }
  }
};

template <class T, class Io, int kTilesN>
__global__ void __launch_bounds__(kGradientThreads, 1)
    ssd_gradients_kernel(const SsdBwdArgs args, const ChunkedBwdPlan plan,
                         const ChunkedBwdWorkspace workspace) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ __align__(16) GradientShared<T> shared;
  using Block = GradientBlock<T, Io>;
  constexpr int kAtoms = Block::kAtoms;
  using PatchFragments = typename Block::PatchFragments;
  const Block block(args, plan, workspace, shared, reinterpret_cast<T*>(dynamic_shared));

  block.template start_pipeline<kTilesN>();
  PatchFragments cb, dyx, dB[kTilesN], dC[kTilesN];
  clear<kAtoms>(cb);
  clear<kAtoms>(dyx);
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    clear<kAtoms>(dB[n]);
    clear<kAtoms>(dC[n]);
    if (n >= plan.dstate_tiles) continue;
    block.fetch_projections(n);
    multiply<Major::k, Major::k, kAtoms>(cb, block.tiles.C(n), block.tiles.B(n), block.at);
  }
#pragma unroll
  for (int e = 0; e < kAtoms; ++e) {
    shared.cb[e][block.thread] = {cb[e][0], cb[e][1], cb[e][2], cb[e][3]};
    shared.q[e][block.thread] = {};
  }

  GradientHeadSums sums{};
  int state_stage = 0;
  for (int index = 0; index < block.items; ++index) {
    const GradientItem item = block.item(index);
    PatchFragments y, u;
    clear<kAtoms>(y);
    clear<kAtoms>(u);
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      if (n >= plan.dstate_tiles) continue;
      block.advance_pipeline(item, n, state_stage);
      if (n == 0) {
        block.store_dy(item);
        if (item.p_tile == 0) sums.mixing_unscale = block.store_mixing(item);
        __syncthreads();
      }
      block.multiply_states(item, n, state_stage, y, u, dB[n], dC[n], sums);
      if constexpr (kDoubleBuffered<T>) state_stage ^= 1;
    }
    block.weigh_states(item, y, u, sums);
    block.multiply_chunk(item, y, u, dyx, sums.mixing_unscale);
    block.store_input_gradients(item, y, u);
    if (item.head_done) {
      block.finish_weights(item, dyx, sums);
      block.share_flows(sums);
    }
    __syncthreads();
    block.write_sequences(item);
    if (item.head_done) block.write_flows(item);
    block.write_skip(item, sums);
  }

  __syncthreads();
  const float q_unscale = block.store_q();
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    if (n >= plan.dstate_tiles) continue;
    block.fetch_projections(n);
    block.write_projections(n, q_unscale, dB[n], dC[n]);
  }
}

}  // namespace ssmbench
