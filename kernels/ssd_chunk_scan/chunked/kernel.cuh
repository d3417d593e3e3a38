#pragma once

// The kernel of cuda-chunked and cuda-chunked-f32: everything in one pass over a sequence, chunk after chunk
// of 64 steps, with the state in registers. With cum_t = Σ_{s ≤ t} Δ_s·A within the chunk and H the state
// that enters it,
//
//   y_t = e^(cum_t)·H·C_t + Σ_{s ≤ t} (C_t·B_s)·e^(cum_t − cum_s)·Δ_s·x_s       out = (y + D·x)·silu(z)
//   H  ← e^(cum_end)·H + Σ_s e^(cum_end − cum_s)·Δ_s·x_s ⊗ B_s
//
// which are four matrix products. Source: Dao & Gu, "Transformers are SSMs" (2024), section 6. Only sums of
// Δ·A over later steps are ever exponentiated, so that nothing overflows where A < 0.
//
//   block    a head of a sequence, 64 rows of the state (of P), a segment of time; 8 warps, 16 with tf32. Each
//            product is cut into 4 slabs of 16 rows times 2 or 4 parts of the columns, one for each warp
//            (WarpTile):
//
//              C·Bᵀ          64 t × 64 s     summed over n    squares above the diagonal left out
//              C·Hᵀ          64 t × 64 p     summed over n    with the same fragments of C
//              (C·Bᵀ)'·x     64 t × 64 p     summed over s    adds to the one before; ' is decay, Δ and mask
//              (w·x)ᵀ·B      64 p × N  n     summed over s    adds to H
//
//   chunk    1  wait for the chunk's tiles; start to copy those of the next
//            2  C·Bᵀ and C·Hᵀ; (C·Bᵀ)' as operands to shared memory
//            3  (C·Bᵀ)'·x; out; H; H as operands to shared memory, for step 2 of the next chunk
//            with a barrier before 2 and 3. Warp 0 computes Δ, cum and the decays of the next chunk.
//
// Registers: H is 64 × N floats over 256 threads, 32 a thread at N = 128; the two results of step 2 are 16
// each; with 16 warps half of that. Shared memory: ChunkedLayout; at N = 128 in bf16 or f16 two blocks of 107 KB share an SM,
// whose barriers then fill each other's gaps. B and C are read again by every head of a group, from the L2.

#include "kernels/ssd_chunk_scan/chunked/tiles.cuh"
#include "kernels/ssd_chunk_scan/chunked/variant.h"
#include "kernels/ssd_chunk_scan/stored_states.cuh"

namespace ssmbench {
namespace chunked {

/// Types and sizes of the kernel for an arithmetic and a padded number of states.
template <class Op, int kStates>
struct Shapes {
  using Io = typename Op::Element;
  using Layout = ChunkedLayout<static_cast<int>(sizeof(Io)), kStates>;
  using StateTile = SharedTile<Io, kStates>;
  using SquareTile = SharedTile<Io, kChunkRows>;
  static constexpr int kParts = Op::kParts;
  static constexpr int kThreads = 32 * kSlabs * kParts;
  /// Blocks of 8 columns that a warp has: of the state, and of a 64 × 64 product.
  static constexpr int kStateBlocks = kStates / 8 / kParts;
  static constexpr int kOutBlocks = 8 / kParts;
  static constexpr int kOutColumns = 8 * kOutBlocks;
  static constexpr int kSquares = kSlabs / kParts;  ///< of C·Bᵀ that a warp has at most
  /// Fragments of B, two blocks each, that are loaded before the first is used: they wait for memory
  /// together.
  static constexpr int kLoadsAhead = Op::kExact ? 1 : kStateBlocks / 2 < 4 ? kStateBlocks / 2 : 4;
};

/// What a chunk reads, in shared memory.
template <class Op, int kStates>
struct Stage {
  typename Shapes<Op, kStates>::StateTile B, C;
  typename Shapes<Op, kStates>::SquareTile x;
  ChunkScalars& scalars;

  __device__ explicit Stage(unsigned char* memory)
      : B{memory + Shapes<Op, kStates>::Layout::kB},
        C{memory + Shapes<Op, kStates>::Layout::kC},
        x{memory + Shapes<Op, kStates>::Layout::kX},
        scalars(*reinterpret_cast<ChunkScalars*>(memory + Shapes<Op, kStates>::Layout::kScalars)) {}
};

template <class Op, int kStates>
__device__ void fill_stage(const Stage<Op, kStates>& stage, const SsdInputs& in, const ChunkedPass& pass,
                           const ChunkedBlock& block, const SsdSequence& sequence, std::int64_t chunk) {
  using Io = typename Op::Element;
  const std::int64_t start = chunk * kChunkSteps;
  const int rows = steps_within(start, kChunkSteps, sequence.steps);
  const std::int64_t time = sequence.begin + start;
  const auto states = static_cast<int>(in.dstate);
  const std::int64_t projection = (time * in.groups + block.h / in.heads_per_group) * in.dstate;
  constexpr int kThreads = Shapes<Op, kStates>::kThreads;
  fill_tile<kThreads>(stage.x,
                      static_cast<const Io*>(in.x) + (time * in.nheads + block.h) * in.headdim + block.row,
                      static_cast<int>(in.nheads * in.headdim), rows,
                      static_cast<int>(in.headdim) - block.row, pass.rows_aligned);
  fill_tile<kThreads>(stage.B, static_cast<const Io*>(in.B) + projection,
                      static_cast<int>(in.groups * in.dstate), rows, states, pass.projections_aligned);
  if (!pass.states_only)
    fill_tile<kThreads>(stage.C, static_cast<const Io*>(in.C) + projection,
                        static_cast<int>(in.groups * in.dstate), rows, states, pass.projections_aligned);
  copy_async_commit();
}

template <int kBlocks>
__device__ void scale_all(float (&values)[kBlocks][4], float factor) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) values[i][e] *= factor;
}

/// Calls `visit(element of the state in memory, register)` for each element of a lane that exists.
template <int kBlocks, int kParts, class Visit>
__device__ void for_each_state(float (&state)[kBlocks][4], const SsdInputs& in, const ChunkedBlock& block,
                               const WarpTile<kParts>& warp_tile, const Visit& visit) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int p = block.row + 16 * warp_tile.slab + lane_id() / 4 + 8 * (e / 2);
      const int n = 8 * (warp_tile.part * kBlocks + i) + 2 * (lane_id() % 4) + e % 2;
      if (p < in.headdim && n < in.dstate) visit(p * in.dstate + n, state[i][e]);
    }
}

/// A block of the kernel as one of its threads sees it: coordinates, tiles and phases. The phases stand in
/// the order in which the kernel calls them; each is of all threads.
template <class Op, int kStates>
struct ScanBlock {
  using Shape = Shapes<Op, kStates>;
  using Layout = typename Shape::Layout;
  using Io = typename Op::Element;
  using State = float[Shape::kStateBlocks][4];
  using Out = float[Shape::kOutBlocks][4];
  using Gates = Pair<Io>[Shape::kOutBlocks][2];
  using ChunkStage = Stage<Op, kStates>;

  const SsdArgs& args;
  const SsdInputs& in;
  const ChunkedPass& pass;
  ChunkedBlock at;
  SsdSequence sequence;
  WarpTile<Shape::kParts> warp_tile;

  unsigned char* shared;
  typename Shape::StateTile state_tile;
  typename Shape::SquareTile square;
  float* skip;           ///< D of the block's rows
  float* maxima;         ///< of the slabs of the state
  float* square_maxima;  ///< of the slabs of the masked C·Bᵀ
  std::int64_t head;
  std::int64_t states_of_head;
  std::int64_t cut;  ///< of pass.states and pass.decays

  __device__ __forceinline__ ScanBlock(const SsdArgs& all, const ChunkedPass& launch, unsigned char* memory)
      : args(all),
        in(all.in),
        pass(launch),
        at(chunked_block(launch.plan, blockIdx.x, all.in.nheads, launch.segments)),
        sequence(launch.sequences.at(at.sequence)),
        warp_tile(static_cast<int>(threadIdx.x) / 32),
        shared(memory),
        state_tile{memory + Layout::kStages * Layout::kStage + Layout::kState},
        square{memory + Layout::kStages * Layout::kStage + Layout::kSquare},
        skip(reinterpret_cast<float*>(memory + Layout::kStages * Layout::kStage + Layout::kSkip)),
        maxima(reinterpret_cast<float*>(memory + Layout::kStages * Layout::kStage + Layout::kSlabMaxima)),
        square_maxima(
            reinterpret_cast<float*>(memory + Layout::kStages * Layout::kStage + Layout::kSquareMaxima)),
        head(at.sequence * in.nheads + at.h),
        states_of_head(in.headdim * in.dstate),
        cut(head * pass.plan.cuts() + at.segment) {}

  __device__ __forceinline__ ChunkStage stage_of(std::int64_t chunk) const {
    return ChunkStage(shared + (Layout::kStages == 2 ? (chunk & 1) * Layout::kStage : 0));
  }

  /// The state that enters the segment; zeros where there is none.
  __device__ __forceinline__ void load_state(State& state) const {
    if (pass.states_only || (at.segment == 0 && in.initial_states == nullptr)) return;
    // Those of the workspace are in f32.
    const void* const states = at.segment == 0 ? in.initial_states : pass.states;
    const DType dtype = at.segment == 0 ? in.state_dtype : DType::f32;
    const std::int64_t first = (at.segment == 0 ? head : cut - 1) * states_of_head;
    for_each_state(state, in, at, warp_tile, [&](std::int64_t element, float& value) {
      value = ssmbench::load_state(states, dtype, first + element);
    });
  }

  __device__ __forceinline__ void load_skip() const {
    const std::int64_t headdim = in.headdim;
    if (threadIdx.x < kChunkRows) {
      const std::int64_t p = at.row + threadIdx.x;
      const bool exists = in.D != nullptr && p < headdim;
      skip[threadIdx.x] = exists ? in.D[in.skip_per_headdim ? at.h * headdim + p : at.h] : 0.0F;
    }
  }

  /// C·Bᵀ as operands to shared memory, with decays, Δ and mask; y = carry ∘ (C·Hᵀ), scaled as they are. Returns the
  /// scale's inverse.
  __device__ __forceinline__ float finish_entering(const Op& op, const ChunkScalars& scalars,
                                                   const float (&products)[Shape::kSquares][2][4],
                                                   Out& y) const {
    const float unscale = in.seq_idx == nullptr
                              ? store_masked<false>(op, square, products, scalars, warp_tile, square_maxima)
                              : store_masked<true>(op, square, products, scalars, warp_tile, square_maxima);
#pragma unroll
    for (int i = 0; i < Shape::kOutBlocks; ++i) {
      const float state_scale =
          state_unscale<Op>(maxima, (Shape::kOutColumns * warp_tile.part + 8 * i) / 16) / unscale;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        y[i][e] *= scalars.carry[16 * warp_tile.slab + op.lane / 4 + 8 * (e / 2)];
        if constexpr (Op::kNarrowRange) y[i][e] *= state_scale;
      }
    }
    return unscale;
  }

  /// The lane's elements of z and out in the chunk.
  __device__ __forceinline__ OutTile out_tile(const Op& op, std::int64_t start) const {
    const int row = 16 * warp_tile.slab + op.lane / 4;
    const int column = Shape::kOutColumns * warp_tile.part + 2 * (op.lane % 4);
    return {((sequence.begin + start + row) * in.nheads + at.h) * in.headdim + at.row + column,
            8 * in.nheads * in.headdim, steps_within(start, kChunkSteps, sequence.steps) - row,
            static_cast<int>(in.headdim) - at.row - column};
  }

  __device__ __forceinline__ void load_z(Gates& gates, const OutTile& out, bool whole) const {
    if (in.z != nullptr && !pass.states_only) {
      if (whole)
        load_gates<true>(gates, static_cast<const Io*>(in.z), out);
      else
        load_gates<false>(gates, static_cast<const Io*>(in.z), out);
    }
  }

  /// y = (y + (C·Bᵀ)'·x)·unscale.
  __device__ __forceinline__ void multiply_within(const Op& op, const ChunkStage& stage, Out& y,
                                                  float unscale) const {
    for (int k = 0; k < 16 * (warp_tile.slab + 1) / Op::kStep; ++k) {
      const auto m = op.load_masked(square, 16 * warp_tile.slab, k);
#pragma unroll
      for (int j = 0; j < Shape::kOutBlocks / 2; ++j) {
        const auto x = op.load_b_transposed(stage.x, k, Shape::kOutColumns * warp_tile.part + 16 * j);
        op.multiply(y[2 * j], m, x, 0);
        op.multiply(y[2 * j + 1], m, x, 1);
      }
    }
    if constexpr (Op::kNarrowRange) scale_all(y, unscale);
  }

  /// out = (y + D·x)·silu(z).
  template <bool kWhole, bool kGated>
  __device__ __forceinline__ void write_out(const Op& op, const ChunkStage& stage, const Out& y,
                                            const Gates& gates, const OutTile& out) const {
    const int row = 16 * warp_tile.slab + op.lane / 4;
    const int column = Shape::kOutColumns * warp_tile.part + 2 * (op.lane % 4);
#pragma unroll
    for (int i = 0; i < 2 * Shape::kOutBlocks; ++i) {
      const int j = i / 2;
      const int r = i % 2;
      float2 value = make_float2(y[j][2 * r], y[j][2 * r + 1]);
      const float2 x = op.load_pair(stage.x, row + 8 * r, column + 8 * j);
      const float2 d = *reinterpret_cast<const float2*>(skip + column + 8 * j);
      value.x += d.x * x.x;
      value.y += d.y * x.y;
      if constexpr (kGated) {
        const float2 z = unpacked<Io>(gates[j][r]);
        value.x *= gate<Op>(z.x);
        value.y *= gate<Op>(z.y);
      }
      store_pair<kWhole>(static_cast<Io*>(args.out) + out.offset(j, r), value, out.count(j, r));
    }
  }

  __device__ __forceinline__ void write_out(const Op& op, const ChunkStage& stage, const Out& y,
                                            const Gates& gates, const OutTile& out, bool whole) const {
    if (whole && in.z != nullptr)
      write_out<true, true>(op, stage, y, gates, out);
    else if (whole)
      write_out<true, false>(op, stage, y, gates, out);
    else if (in.z != nullptr)
      write_out<false, true>(op, stage, y, gates, out);
    else
      write_out<false, false>(op, stage, y, gates, out);
  }

  /// The state that leaves the segment: to the workspace in the first pass, to final_states behind the last.
  __device__ __forceinline__ void write_state(State& state, float decay_of_segment) const {
    void* leaving = nullptr;
    if (pass.states_only)
      leaving = pass.states;
    else if (at.segment + 1 == pass.plan.segments)
      leaving = args.final_states;
    const DType dtype = pass.states_only ? DType::f32 : in.state_dtype;
    const std::int64_t first = (pass.states_only ? cut : head) * states_of_head;
    if (leaving != nullptr)
      for_each_state(state, in, at, warp_tile, [&](std::int64_t element, float& value) {
        store_state(leaving, dtype, first + element, value);
      });
    if (pass.states_only && at.row == 0 && threadIdx.x == 0) pass.decays[cut] = decay_of_segment;
  }
};

// The loops over k of C·Bᵀ, C·Hᵀ and of the state's update stand in the kernel: as functions of their own,
// inlined or not, they get other registers, and up to 28 spills more.
template <class Op, int kStates>
__global__ void __launch_bounds__(Shapes<Op, kStates>::kThreads, Shapes<Op, kStates>::Layout::kBlocksPerSm)
    chunked_kernel(const SsdArgs args, const ChunkedPass pass) {
  using Block = ScanBlock<Op, kStates>;
  using Shape = typename Block::Shape;
  using Io = typename Block::Io;
  constexpr int kStages = Block::Layout::kStages;
  extern __shared__ __align__(128) unsigned char shared[];
  const SsdInputs& in = args.in;
  const Block block(args, pass, shared);
  const ChunkedBlock& at = block.at;
  const WarpTile<Shape::kParts>& warp_tile = block.warp_tile;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Op op{lane_id()};
  const float A = in.A[at.h];
  const float bias = in.dt_bias == nullptr ? 0.0F : in.dt_bias[at.h];

  typename Block::State state = {};
  block.load_state(state);
  if (!pass.states_only) store_state(op, block.state_tile, state, warp_tile, block.maxima);
  block.load_skip();

  float decay_of_segment = 1.0F;
  const SsdSequence& sequence = block.sequence;
  const auto [first, end] = pass.plan.chunks_of(at.segment, sequence.steps);
  if (first < end) {
    fill_stage(block.stage_of(first), in, pass, at, sequence, first);
    if (warp == 0)
      compute_scalars<Op>(block.stage_of(first).scalars,
                          load_steps<Io>(in, sequence, at.h, first * kChunkSteps), in, A, bias,
                          sequence.steps - first * kChunkSteps);
  }

  for (std::int64_t chunk = first; chunk < end; ++chunk) {
    const typename Block::ChunkStage stage = block.stage_of(chunk);
    const ChunkScalars& scalars = stage.scalars;
    asm volatile("" : "+r"(op.lane));  // or addresses of all tiles are computed before the loop, and spilled
    const std::int64_t start = chunk * kChunkSteps;
    const std::int64_t next_start = start + kChunkSteps;
    copy_async_wait<0>();
    __syncthreads();

    LaneSteps next_steps{};
    if (chunk + 1 < end) {
      if constexpr (kStages == 2) fill_stage(block.stage_of(chunk + 1), in, pass, at, sequence, chunk + 1);
      if (warp == 0) next_steps = load_steps<Io>(in, sequence, at.h, next_start);
    }

    typename Block::Out y = {};
    [[maybe_unused]] float square_unscale = 1.0F;
    if (!pass.states_only) {
      float products[Shape::kSquares][2][4] = {};
      const auto steps = static_cast<int>(ceil_div(in.dstate, Op::kStep));
#pragma unroll(Op::kExact ? 1 : 2)
      for (int k = 0; k < steps; ++k) {
        // All loads before the first product, so that they wait for memory together.
        typename Op::B h[Shape::kOutBlocks / 2], b[Shape::kSquares];
        const auto c = op.load_a(stage.C, 16 * warp_tile.slab, k);
#pragma unroll
        for (int j = 0; j < Shape::kOutBlocks / 2; ++j)
          h[j] = op.load_b_stored(block.state_tile, Shape::kOutColumns * warp_tile.part + 16 * j, k);
#pragma unroll
        for (int j = 0; j < Shape::kSquares; ++j)
          if (j < warp_tile.squares()) b[j] = op.load_b(stage.B, 16 * warp_tile.square_column(j), k);
#pragma unroll
        for (int i = 0; i < Shape::kOutBlocks; ++i) op.multiply(y[i], c, h[i / 2], i % 2);
#pragma unroll
        for (int j = 0; j < Shape::kSquares; ++j) {
          if (j >= warp_tile.squares()) continue;
          op.multiply(products[j][0], c, b[j], 0);
          op.multiply(products[j][1], c, b[j], 1);
        }
      }
      square_unscale = block.finish_entering(op, scalars, products, y);
    }
    const OutTile out = block.out_tile(op, start);
    const bool whole =
        pass.pairs_aligned && next_start <= sequence.steps && at.row + kChunkRows <= in.headdim;
    typename Block::Gates gates = {};
    block.load_z(gates, out, whole);  // arrives while the products are computed
    __syncthreads();

    if (!pass.states_only) {
      block.multiply_within(op, stage, y, square_unscale);
      block.write_out(op, stage, y, gates, out, whole);
    }

    // H ← decay·H + (w·x)ᵀ·B.
    scale_all(state, scalars.decay * scalars.scale);
#pragma unroll(Op::kExact ? 1 : 2)
    for (int k = 0; k < kChunkSteps / Op::kStep; ++k) {
      const auto x = op.load_a_transposed(stage.x, 16 * warp_tile.slab, k, scalars.weight);
#pragma unroll
      for (int j = 0; j < Shape::kStateBlocks / 2; j += Shape::kLoadsAhead) {
        typename Op::B b[Shape::kLoadsAhead];
#pragma unroll
        for (int i = 0; i < Shape::kLoadsAhead; ++i)
          b[i] = op.load_b_transposed(stage.B, k, 8 * (warp_tile.part * Shape::kStateBlocks + 2 * (j + i)));
#pragma unroll
        for (int i = 0; i < Shape::kLoadsAhead; ++i) {
          op.multiply(state[2 * (j + i)], x, b[i], 0);
          op.multiply(state[2 * (j + i) + 1], x, b[i], 1);
        }
      }
    }
    if constexpr (Op::kNarrowRange) scale_all(state, scalars.unscale);
    decay_of_segment *= scalars.decay;

    if (chunk + 1 < end) {
      if (!pass.states_only) store_state(op, block.state_tile, state, warp_tile, block.maxima);
      if constexpr (kStages == 1) {
        __syncthreads();
        fill_stage(stage, in, pass, at, sequence, chunk + 1);
      }
      if (warp == 0)
        compute_scalars<Op>(block.stage_of(chunk + 1).scalars, next_steps, in, A, bias,
                            sequence.steps - next_start);
    }
  }
  block.write_state(state, decay_of_segment);
}

template <class Op, int kStates>
ChunkedVariant variant() {
  return {chunked_kernel<Op, kStates>, Shapes<Op, kStates>::kThreads, Shapes<Op, kStates>::Layout::kBytes};
}

}  // namespace chunked

template <class Op>
ChunkedVariant chunked_variant(int states) {
  if (states == 64) return chunked::variant<Op, 64>();
  if (states == 128) return chunked::variant<Op, 128>();
  return chunked::variant<Op, 256>();
}

}  // namespace ssmbench
