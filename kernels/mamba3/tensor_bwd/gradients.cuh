#pragma once

// cuda-chunked's gradients of Mamba-3, the gradients of one chunk of a head: SSD's (gradients.cuh of
// ssd_chunk_scan/chunked_bwd), with q and k rotated in place of C and B, s in place of Δ below the diagonal and
// in states, and γ on the diagonal. With the chunk's decays L[t][u], u ≤ t, and w[t][u] = s_u below the diagonal,
// γ_t on it, S the state that enters and S' the gradient of the one that leaves,
//
//   M = (q·kᵀ) ∘ L ∘ w       y  = M·V + enter ∘ (q·Sᵀ)      dV = Mᵀ·dy + s∘leave ∘ (k·S'ᵀ) + D·dy
//   X = (dy·Vᵀ) ∘ L ∘ w      dq = X·k + enter ∘ (dy·S)      dk = Xᵀ·q + s∘leave ∘ (V·S')
//
// dq and dk are turned back in registers, and give dθ there; the step's own terms cancel in it, since both
// products take the same X. What flows past steps is as in SSD; ds and dγ are sums of M ∘ X less their weights.
//
// With MIMO t and u are rows (step, rank), below the diagonal are rows of earlier steps, and on it blocks of
// rows of the same step. V and dy are of ranks, and y and dV, rounded, are those of ranks too: factors.h is
// before and behind.
//
//   grid    one block per row (batch, chunk, head): no sums over heads
//   block   8 warps; each has a patch of 16 × 32 of every 64 × 64 product in registers
//   phases  M and X; y and dV with dZ; dq and dk, a tile of 64 states at a time
//
// 104 KB of tiles at 128 states and at most 128 registers: two blocks on an SM, of which one loads while the
// other multiplies. X waits for its product in registers, packed, and takes the place of M. (MIMO has no tiles
// of Z and dout, and up to 8 times the sums of biases.)

#include "kernels/mamba3/args.h"
#include "kernels/mamba3/tensor_bwd/factors.h"
#include "kernels/mamba3/tensor_bwd/plan.h"
#include "kernels/mamba3/tensor_bwd/products.cuh"

namespace ssmbench::mamba3_bwd {

/// Where sums over the steps of a tile of states lie: [dq, dk][rank][state], then dθ, [pair].
template <class Form>
inline constexpr int kSumsOfTurns = 2 * Form::kRanks* kSteps;
template <class Form>
inline constexpr int kTileSums = kSumsOfTurns<Form> + kSteps / 2;

/// Shared memory besides the tiles.
template <class Form>
struct GradientShared {
  /// MIMO's tiles of states take turns.
  static constexpr int kSumTiles = Form::kIsMimo ? 1 : kMaxStates / kSteps;

  float steps[kStepFloats][kSteps];
  float owns[kSteps];
  float flow_out[kPatchColumns][kSteps];  ///< per step, what ends there
  float flow_in[kPatchColumns][kSteps];   ///< V·(S'·k)·leave
  float column[kPatchRows][kSteps];       ///< column sums of M ∘ X over w, without the diagonal
  float diagonal[kPatchColumns][kSteps];  ///< of the same, row sums of blocks on the diagonal
  float states[kGradientWarps];           ///< ⟨S', S⟩
  float skip[kGradientWarps];             ///< ⟨dy, V⟩
  float sums[kSumTiles][kPatchRows][kTileSums<Form>];  ///< by tile of states
};

/// Tiles of the dynamic shared memory.
template <class Io, class Form, int kTilesN>
struct GradientTiles {
  static constexpr int kCount = 4 * kTilesN + (Form::kIsMimo ? 3 : 5);
  static constexpr int kBytes = kCount * kTileElements<Io> * static_cast<int>(sizeof(Io));

  Io* base;

  __device__ Io* tile(int i) const { return base + i * kTileElements<Io>; }
  __device__ Io* q(int n) const { return tile(n); }
  __device__ Io* k(int n) const { return tile(kTilesN + n); }
  __device__ Io* state(int n) const { return tile(2 * kTilesN + n); }
  __device__ Io* dstate(int n) const { return tile(3 * kTilesN + n); }
  __device__ Io* v() const { return tile(4 * kTilesN); }
  __device__ Io* dy() const { return tile(4 * kTilesN + 1); }
  __device__ Io* square() const { return tile(4 * kTilesN + 2); }  ///< M, then X
  // SISO's alone:
  __device__ Io* z() const { return tile(4 * kTilesN + 3); }
  __device__ Io* dout() const { return tile(4 * kTilesN + 4); }
};

/// What a thread adds up; of rows row_of(0) and row_of(2) of its patch.
struct GradientSums {
  float flow_out[2], flow_in[2], own[2];
};

/// A block as one of its threads sees it. The phases stand in the order in which the kernel calls them; each is of
/// all threads.
template <class Io, class Form, int kTilesN>
struct GradientBlock {
  using Shared = GradientShared<Form>;
  static constexpr int kRanks = Form::kRanks;
  static constexpr bool kIsMimo = Form::kIsMimo;

  const Mamba3BwdArgs& args;
  const Plan& plan;
  const Workspace& work;
  Shared& shared;
  GradientTiles<Io, Form, kTilesN> tiles;
  Row row;
  int thread, warp;
  Patch at;

  __device__ __forceinline__ GradientBlock(const Mamba3BwdArgs& all, const Plan& cut, const Workspace& arrays,
                                           Shared& sums, Io* memory)
      : args(all),
        plan(cut),
        work(arrays),
        shared(sums),
        tiles{memory},
        row(cut, blockIdx.x, arrays.table.spans) {
    thread = static_cast<int>(threadIdx.x);
    warp = thread / 32;
    at = {warp / kPatchColumns * 16, warp % kPatchColumns * kAtoms * 8, thread % 32};
  }

  // --- Loads.

  template <class Element>
  __device__ __forceinline__ TileSource<Element> input_tile(Element* data) const {
    return {data + row.ranked(plan, 0) * plan.headdim, plan.nheads * plan.headdim, row.rows(plan),
            plan.headdim, true};
  }
  template <class Element>
  __device__ __forceinline__ TileSource<Element> vector_tile(Element* data, int n) const {
    return {data + row.ranked(plan, 0) * plan.dstate + n * kSteps, plan.nheads * plan.dstate, row.rows(plan),
            steps_within(n * kSteps, kSteps, plan.dstate), true};
  }
  template <class Source>
  __device__ __forceinline__ void load(Io* tile, const Source& source) const {
    load_tile<kGradientThreads>(tile, source);
  }

  __device__ __forceinline__ void load_inputs() const {
#pragma unroll 1
    for (int n = 0; n < kTilesN; ++n) {
      load(tiles.q(n), vector_tile(static_cast<const Io*>(work.q), n));
      load(tiles.k(n), vector_tile(static_cast<const Io*>(work.k), n));
    }
    if constexpr (kIsMimo) {
      load(tiles.v(), input_tile(static_cast<const Io*>(work.v)));
      load(tiles.dy(), input_tile(static_cast<const Io*>(work.dy)));
    } else {
      load(tiles.v(), input_tile(static_cast<const Io*>(args.in.V)));
      load(tiles.dout(), input_tile(static_cast<const Io*>(args.dout)));
      if (args.in.Z != nullptr) load(tiles.z(), input_tile(static_cast<const Io*>(args.in.Z)));
    }
    constexpr int kVectors = kStepFloats * kSteps / 4;
    if (thread < kVectors)
      copy_async_16(shared_address(&shared.steps[0][0] + thread * 4),
                    work.steps + row.index * kStepFloats * kSteps + thread * 4, 16);
    else if (thread < kVectors + kSteps / 4)
      copy_async_16(shared_address(shared.owns + (thread - kVectors) * 4),
                    work.owns + row.index * kSteps + (thread - kVectors) * 4, 16);
  }

  __device__ __forceinline__ void load_states() const {
#pragma unroll 1
    for (int n = 0; n < kTilesN; ++n) {
      const std::int64_t image = plan.state_tile(row.index, 0, n) * kTileElements<Io>;
      load_image<kGradientThreads>(tiles.state(n), static_cast<const Io*>(work.states) + image);
      load_image<kGradientThreads>(tiles.dstate(n), static_cast<const Io*>(work.dstates) + image);
    }
  }

  // --- Within the chunk.

  /// dy = dout·silu(Z).
  __device__ __forceinline__ void store_dy() const {
    for_vectors<kGradientThreads, Io>([&](int vector) {
      const int offset = vector_offset<Io>(vector);
      float dy[kVectorElements<Io>];
      load_vector(dy, tiles.dout() + offset);
      if (args.in.Z != nullptr) {
        float z[kVectorElements<Io>];
        load_vector(z, tiles.z() + offset);
#pragma unroll
        for (int j = 0; j < kVectorElements<Io>; ++j) dy[j] *= gate_of(z[j]).value;
      }
      store_vector(tiles.dy() + offset, dy);
    });
  }

  /// M to its tile, X packed, and the sums of M ∘ X.
  __device__ __forceinline__ void multiply_squares(PackedPatches<Io>& packed, GradientSums& sums) const {
    Patches scores, crosses, L;
    clear<kAtoms>(scores);
    clear<kAtoms>(crosses);
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) multiply_tiles<Major::k, Major::k>(scores, tiles.q(n), tiles.k(n), at);
    multiply_tiles<Major::k, Major::k>(crosses, tiles.dy(), tiles.v(), at);
    unsigned causal = 0;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (at.column_of(e, i) / kRanks <= at.row_of(i) / kRanks) causal |= 1U << (e * 4 + i);
    decays_between_steps<__nv_bfloat16, kAtoms>(L, shared.steps, at, causal);  // whose patches all tiles have
    float column[2][kAtoms] = {};
#pragma unroll
    for (int e = 0; e < kAtoms; ++e) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = at.row_of(i);
        const int u = at.column_of(e, i);
        const bool is_own = u / kRanks == t / kRanks;
        const float weight = is_own ? shared.owns[u] : shared.steps[kStepDelta][u];
        scores[e][i] *= L[e][i];
        const float product = scores[e][i] * crosses[e][i];
        scores[e][i] *= weight;
        crosses[e][i] *= L[e][i] * weight;
        if (u / kRanks < t / kRanks) {
          // Not the diagonal too: beside it, what strong decays leave would be lost.
          column[i % 2][e] += product;
          sums.flow_out[i / 2] += product * weight;
        }
        if (is_own) sums.own[i / 2] += product;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        packed[e][j] = packed_pair<Io>(crosses[e][2 * j], crosses[e][2 * j + 1]);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float sum = sum_columns(column[j], at.lane);
      if (at.lane < 16) shared.column[at.row / 16][at.column_of(atom_of_sum(at.lane), j)] = sum;
    }
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        store_pair(tiles.square(), at.row_of(i), at.column_of(e, i),
                   make_float2(scores[e][i], scores[e][i + 1]));
  }

  /// y = M·V + enter ∘ (q·Sᵀ), u = Mᵀ·dy + s∘leave ∘ (k·S'ᵀ), and what these give to flows.
  __device__ __forceinline__ void multiply_inputs(Patches& y, Patches& u, GradientSums& sums) const {
    clear<kAtoms>(y);
    clear<kAtoms>(u);
#pragma unroll 1
    for (int n = 0; n < kTilesN; ++n) {
      multiply_tiles<Major::k, Major::k>(y, tiles.q(n), tiles.state(n), at);
      multiply_tiles<Major::k, Major::k>(u, tiles.k(n), tiles.dstate(n), at);
    }
    const auto& steps = shared.steps;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        const float2 dy = load_pair(tiles.dy(), t, at.column_of(e, i));
        const float2 v = load_pair(tiles.v(), t, at.column_of(e, i));
        y[e][i] *= steps[kStepEnter][t];
        y[e][i + 1] *= steps[kStepEnter][t];
        u[e][i] *= steps[kStepLeave][t];
        u[e][i + 1] *= steps[kStepLeave][t];
        sums.flow_out[i / 2] += dy.x * y[e][i] + dy.y * y[e][i + 1];
        sums.flow_in[i / 2] += v.x * u[e][i] + v.y * u[e][i + 1];
        u[e][i] *= steps[kStepDelta][t];
        u[e][i + 1] *= steps[kStepDelta][t];
      }
    if (kIsMimo ? needs_y(args) : args.in.Z != nullptr) multiply_lower(y, tiles.square(), tiles.v(), at);
    multiply_upper(u, tiles.square(), tiles.dy(), at);
  }

  /// Adds the cotangent of the last V.
  __device__ __forceinline__ void add_final_v(Patches& u) const {
    if (args.dfinal_v == nullptr || !row.closes) return;
    const auto* const final_v =
        static_cast<const Io*>(args.dfinal_v) + (row.sequence * plan.nheads + row.head) * plan.headdim;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int p = at.column_of(e, i);
        if (at.row_of(i) + 1 == row.steps && p < plan.headdim) u[e][i] += to_float(final_v[p]);
      }
  }

  /// dV overwrites dout, dZ overwrites z: each element belongs to one thread. Returns the thread's ⟨dy, V⟩.
  __device__ __forceinline__ float store_input_gradients(const Patches& y, const Patches& u,
                                                         float skip) const {
    float product = 0.0F;
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        const int p = at.column_of(e, i);
        const float2 v = load_pair(tiles.v(), t, p);
        const float2 dout = load_pair(tiles.dout(), t, p);
        float2 dy = dout;
        if (args.in.Z != nullptr) {
          const float2 z = load_pair(tiles.z(), t, p);
          const ValueSlope gate[2] = {gate_of(z.x), gate_of(z.y)};
          dy.x *= gate[0].value;
          dy.y *= gate[1].value;
          store_pair(tiles.z(), t, p,
                     make_float2(dout.x * (y[e][i] + skip * v.x) * gate[0].slope,
                                 dout.y * (y[e][i + 1] + skip * v.y) * gate[1].slope));
        }
        store_pair(tiles.dout(), t, p, make_float2(u[e][i] + skip * dy.x, u[e][i + 1] + skip * dy.y));
        product += dy.x * v.x + dy.y * v.y;
      }
    return product;
  }

  /// y and u of ranks, rounded.
  __device__ __forceinline__ void store_ranks(const Patches& y, const Patches& u) const {
    const std::int64_t first = row.left(0);
    const bool stores_y = needs_y(args);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        const int p = at.column_of(e, i);
        if (t >= row.rows(plan) || p >= plan.headdim) continue;
        const std::int64_t to = first + t * kMaxHeaddim + p;
        const auto store = [&](void* data, const float* pair) {
          *reinterpret_cast<PackedPair<Io>*>(static_cast<Io*>(data) + to) = packed_pair<Io>(pair[0], pair[1]);
        };
        if (stores_y) store(work.y, y[e] + i);
        store(work.dv, u[e] + i);
      }
  }

  /// ⟨S', S⟩, the thread's share.
  __device__ __forceinline__ float product_of_states() const {
    float product = 0.0F;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n)
      for_vectors<kGradientThreads, Io>([&](int vector) {
        float a[kVectorElements<Io>], c[kVectorElements<Io>];
        load_vector(a, tiles.state(n) + vector * kVectorElements<Io>);
        load_vector(c, tiles.dstate(n) + vector * kVectorElements<Io>);
#pragma unroll
        for (int j = 0; j < kVectorElements<Io>; ++j) product += a[j] * c[j];
      });
    return product;
  }

  /// The threads' sums to shared memory, where write_flows takes them.
  __device__ __forceinline__ void share_sums(const GradientSums& sums, float skip, float states) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float out = sum_lanes<1, 2>(sums.flow_out[j]);
      const float into = sum_lanes<1, 2>(sums.flow_in[j]);
      const float own = sum_lanes<1, 2>(sums.own[j]);
      if (at.lane % 4 != 0) continue;
      shared.diagonal[warp % kPatchColumns][at.row_of(2 * j)] = own;
      shared.flow_out[warp % kPatchColumns][at.row_of(2 * j)] = out;
      shared.flow_in[warp % kPatchColumns][at.row_of(2 * j)] = into;
    }
    skip = sum_lanes<1, 16>(skip);
    states = sum_lanes<1, 16>(states);
    if (at.lane != 0) return;
    shared.skip[warp] = skip;
    shared.states[warp] = states;
  }

  /// dV, dZ, and the sums of the block.
  __device__ __forceinline__ void write_inputs() const {
    if (thread < kChunkSteps<Form>) write_flows();
    if constexpr (!kIsMimo) {
      store_tile<kGradientThreads>(input_tile(static_cast<Io*>(args.dV)),
                                   static_cast<const Io*>(tiles.dout()));
      if (args.in.Z != nullptr)
        store_tile<kGradientThreads>(input_tile(static_cast<Io*>(args.dZ)),
                                     static_cast<const Io*>(tiles.z()));
      if (thread != kGradientThreads - 1) return;
      float skip = 0.0F;
      for (const float of_warp : shared.skip) skip += of_warp;
      work.row_sums[row.index * plan.sums + 2 * plan.dstate] = skip;
    }
  }

  /// Step `thread`.
  __device__ __forceinline__ void write_flows() const {
    float out = 0.0F, into = 0.0F, column = 0.0F, own = 0.0F;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      const int t = thread * kRanks + r;
#pragma unroll
      for (int j = 0; j < kPatchColumns; ++j) {
        out += shared.flow_out[j][t];
        into += shared.flow_in[j][t];
        own += shared.diagonal[j][t];
      }
#pragma unroll
      for (int j = 0; j < kPatchRows; ++j) column += shared.column[j][t];
    }
    const float scale = shared.steps[kStepDelta][thread * kRanks];
    out -= scale * column;
    // What flows past all steps ends, for the sums, at the last one.
    if (thread == kChunkSteps<Form> - 1) {
      float through = 0.0F;
      for (const float of_warp : shared.states) through += of_warp;
      out += shared.steps[kStepEnter][kSteps - 1] * through;
    }
    float* const flows = work.flows + row.index * kFlowRows * kSteps + thread;
    flows[kFlowOut * kSteps] = out;
    flows[kFlowIn * kSteps] = scale * into;
    flows[kFlowScale * kSteps] = column + into;
    flows[kFlowOwn * kSteps] = own;
  }

  // --- dq and dk.

  /// X, in the place of M.
  __device__ __forceinline__ void store_crosses(const PackedPatches<Io>& packed) const {
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        *reinterpret_cast<PackedPair<Io>*>(
            tiles.square() + tile_offset<Io>(at.row_of(2 * j), at.column_of(e, 0))) = packed[e][j];
  }

  __device__ __forceinline__ void multiply_vectors(int n, Patches& dq, Patches& dk) const {
    clear<kAtoms>(dq);
    clear<kAtoms>(dk);
    multiply_tiles<Major::k, Major::mn>(dq, tiles.dy(), tiles.state(n), at);
    multiply_tiles<Major::k, Major::mn>(dk, tiles.v(), tiles.dstate(n), at);
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = at.row_of(i);
        dq[e][i] *= shared.steps[kStepEnter][t];
        dk[e][i] *= shared.steps[kStepDelta][t] * shared.steps[kStepLeave][t];
      }
    multiply_lower(dq, tiles.square(), tiles.k(n), at);
    multiply_upper(dk, tiles.square(), tiles.q(n), at);
    if (args.dfinal_k == nullptr || !row.closes) return;
    const int last = (row.steps - 1) * kRanks;  // row of the last step's first rank
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int state = n * kSteps + at.column_of(e, i);
        const int rank = at.row_of(i) - last;
        if (rank >= 0 && rank < kRanks && state < plan.dstate)
          dk[e][i] += args.dfinal_k[k_state_at(plan, row.sequence * plan.nheads + row.head, rank) +
                                    plan.state_of(state)];
      }
  }

  /// The thread's pairs of an angle tile: kPatchVectors vectors, kVectorsApart apart. The rows of a step share them.
  static constexpr int kVectorsApart = 2 * kSteps / kRanks * kAngleVector;
  template <class Element>
  __device__ __forceinline__ Element* own_vectors(Element* angles, int n) const {
    const int own = at.row / 16 * (32 / kRanks) + at.lane / 4 / kRanks * 4 + at.lane % 4;
    return angles + plan.angle_tile(row.index, n) + at.column / (8 * kAtoms) * kPatchVectors * kVectorsApart +
           own * kAngleVector;
  }

  /// Their phases, on their way while the products are: of rows row_of(0) and row_of(2).
  __device__ __forceinline__ void load_phases(int n, std::uint32_t (&phases)[kAtoms][2]) const {
    if (n >= plan.angle_tiles) return;
    const std::uint32_t* const from = own_vectors(work.phases, n);
#pragma unroll
    for (int i = 0; i < kPatchVectors; ++i) {
      const uint4 vector = __ldg(reinterpret_cast<const uint4*>(from + i * kVectorsApart));
      phases[2 * i][0] = vector.x;
      phases[2 * i][1] = vector.y;
      phases[2 * i + 1][0] = vector.z;
      phases[2 * i + 1][1] = vector.w;
    }
  }

  /// dq and dk, turned back, dθ, and sums over steps.
  __device__ __forceinline__ void turn_back(int n, const Patches& dq, const Patches& dk,
                                            const std::uint32_t (&phases)[kAtoms][2]) const {
    const std::int64_t vectors = row.ranked(plan, 0) * plan.dstate + n * kSteps;
    const std::int64_t vector_pitch = plan.nheads * plan.dstate;
    float turned[kAtoms][2];
    float of_q[2][kAtoms], of_k[2][kAtoms], turns[kAtoms];
#pragma unroll
    for (int e = 0; e < kAtoms; ++e) {
      of_q[0][e] = of_q[1][e] = of_k[0][e] = of_k[1][e] = turns[e] = 0.0F;
      const int column = at.column_of(e, 0);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int t = at.row_of(i);
        float2 to_q = make_float2(dq[e][i], dq[e][i + 1]);
        float2 to_k = make_float2(dk[e][i], dk[e][i + 1]);
        if (n < plan.angle_tiles) {
          const float2 q = load_pair(tiles.q(n), t, column);
          const float2 k = load_pair(tiles.k(n), t, column);
          turned[e][i / 2] = q.x * to_q.y - q.y * to_q.x + k.x * to_k.y - k.y * to_k.x;
          turns[e] += turned[e][i / 2];
          const Turn turn = turn_of(phases[e][i / 2]);
          to_q = make_float2(to_q.x * turn.cosine + to_q.y * turn.sine,
                             to_q.y * turn.cosine - to_q.x * turn.sine);
          to_k = make_float2(to_k.x * turn.cosine + to_k.y * turn.sine,
                             to_k.y * turn.cosine - to_k.x * turn.sine);
        }
        of_q[0][e] += to_q.x;
        of_q[1][e] += to_q.y;
        of_k[0][e] += to_k.x;
        of_k[1][e] += to_k.y;
        if (t >= row.rows(plan) || n * kSteps + column >= plan.dstate) continue;
        const std::int64_t to = vectors + t * vector_pitch + column;
        *reinterpret_cast<float2*>(work.dq + to) = to_q;
        *reinterpret_cast<float2*>(work.dk + to) = to_k;
      }
    }
    if (n < plan.angle_tiles) store_turned(n, turned);
    float* const sums = shared.sums[n % Shared::kSumTiles][at.row / 16];
    const int column = at.column_of(atom_of_sum(at.lane), 0);
    const float sum_of_turns = sum_columns(turns, at.lane);
    if (at.lane < 16) sums[kSumsOfTurns<Form> + column / 2] = sum_of_turns;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      share_biases(sums, of_q[j], j);
      share_biases(sums + kRanks * kSteps, of_k[j], j);
    }
  }

  /// dθ, sums over the rows of a step.
  __device__ __forceinline__ void store_turned(int n, float (&turned)[kAtoms][2]) const {
#pragma unroll
    for (int e = 0; e < kAtoms; ++e)
#pragma unroll
      for (int j = 0; j < 2; ++j) turned[e][j] = sum_step<kRanks>(turned[e][j]);
    if (at.lane / 4 % kRanks != 0) return;
    float* const to = own_vectors(work.dtheta, n);
#pragma unroll
    for (int i = 0; i < kPatchVectors; ++i)
      store_vector(to + i * kVectorsApart, turned[2 * i][0], turned[2 * i][1], turned[2 * i + 1][0],
                   turned[2 * i + 1][1]);
  }

  /// Sums over the steps of a patch, for each rank, of columns with this parity; `to`: [rank][state].
  __device__ __forceinline__ void share_biases(float* to, const float (&x)[kAtoms], int parity) const {
    if constexpr (kRanks == 1) {
      const float sum = sum_columns(x, at.lane);
      if (at.lane < 16) to[at.column_of(atom_of_sum(at.lane), parity)] = sum;
    } else {
#pragma unroll
      for (int e = 0; e < kAtoms; ++e) {
        const float sum = sum_rank<kRanks>(x[e]);
        if (at.lane / 4 < kRanks) to[at.lane / 4 * kSteps + at.column_of(e, parity)] = sum;
      }
    }
  }

  __device__ __forceinline__ void write_sums(int n) const {
#pragma unroll 1
    for (int i = thread; i < kTileSums<Form>; i += kGradientThreads) {
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < kPatchRows; ++j) sum += shared.sums[n % Shared::kSumTiles][j][i];
      if (i >= kSumsOfTurns<Form>) {
        const int pair = n * kSteps / 2 + i - kSumsOfTurns<Form>;
        if (pair < plan.angles) work.turns[row.index * plan.angles + pair] = sum;
        continue;
      }
      const int state = n * kSteps + i % kSteps;
      if (state < plan.dstate) work.row_sums[row.index * plan.sums + i / kSteps * plan.dstate + state] = sum;
    }
  }
};

template <class Io, class Form, int kTilesN>
__global__ void __launch_bounds__(kGradientThreads, sizeof(Io) == 2 ? 2 : 1)
    gradients_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  __shared__ __align__(16) GradientShared<Form> shared;
  const GradientBlock<Io, Form, kTilesN> block(args, plan, work, shared,
                                               reinterpret_cast<Io*>(dynamic_shared));
  if (block.row.steps == 0) return;
  block.load_inputs();
  copy_async_commit();
  block.load_states();
  copy_async_commit();
  copy_async_wait<1>();
  __syncthreads();
  if constexpr (!Form::kIsMimo) {
    block.store_dy();
    __syncthreads();
  }
  PackedPatches<Io> crosses;
  GradientSums sums{};
  block.multiply_squares(crosses, sums);
  copy_async_wait<0>();
  __syncthreads();
  {
    Patches y, u;
    block.multiply_inputs(y, u, sums);
    float skip = 0.0F;
    if constexpr (Form::kIsMimo) {
      block.store_ranks(y, u);
    } else {
      block.add_final_v(u);
      skip = block.store_input_gradients(y, u, args.in.D == nullptr ? 0.0F : args.in.D[block.row.head]);
    }
    block.share_sums(sums, skip, block.product_of_states());
  }
  __syncthreads();  // dV, dZ and the sums are there, and nobody reads M any more
  block.store_crosses(crosses);
  block.write_inputs();
  __syncthreads();
#pragma unroll 1  // half of the code: twice it are more than the instruction cache holds
  for (int n = 0; n < kTilesN; ++n) {
    Patches dq, dk;
    std::uint32_t phases[kAtoms][2];
    block.load_phases(n, phases);
    block.multiply_vectors(n, dq, dk);
    block.turn_back(n, dq, dk, phases);
    if constexpr (Form::kIsMimo) {
      __syncthreads();
      block.write_sums(n);
      __syncthreads();
    }
  }
  if constexpr (!Form::kIsMimo) {
    __syncthreads();
#pragma unroll 1
    for (int n = 0; n < kTilesN; ++n) block.write_sums(n);
  }
}

}  // namespace ssmbench::mamba3_bwd
