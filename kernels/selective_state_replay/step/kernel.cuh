#pragma once

// cuda-step of replays: the checkpoint is read once, kept in registers in f32 for the tokens of the ring and
// the new ones, and stored between them where the window is full.
//
//   tokens   │ k = 0 … K−1, rows start … of the ring │ t = 0 … T−1, new │
//   stages   │ up to 16 tokens │ up to 16 │ …        │ up to 16 │ …     │   B, C, Δ·x, decay in shared memory
//   h        │ h ← decay·h + Δx·B                    │ … and y = Σ C·h  │   registers
//                                   state ← h, if K + T > W             out; x, B, Δ ← ring rows start + K …
//
// A block is a run of rows of one head of one sequence, and threads hold rows and states as in the kernel of
// steps of several tokens (selective_state_update/step/tokens.cuh). New tokens go to rows of the ring that
// nobody reads in this launch; B, which heads of a group share, is stored by the first of them.

#include "kernels/selective_state_replay/args.h"
#include "kernels/selective_state_update/step/tokens.cuh"

namespace ssmbench::replay {

/// Blocks that a multiprocessor has registers for.
constexpr int kReplayBlocks = 4;

/// What a number more of each token is here: Δ.
using Stage = step::HeadStage;

/// The rows of a block, and the ring of their sequence.
struct Tile {
  std::int64_t b, slot;
  int head, group;
  int first_row, rows;  ///< of the head; some may be past its end
  bool is_first_of_head, is_first_of_group;
  int start, ring;

  __device__ std::int64_t token(const StateReplayArgs& args, int t) const { return b * args.tokens + t; }
  __device__ bool has(const StateReplayArgs& args, int row) const { return first_row + row < args.headdim; }
  /// Row of the ring that holds token k of the sequence, k < ring.
  __device__ int ring_row(int k) const { return start + k < ring ? start + k : start + k - ring; }
  /// That row among all (slot, head, row), and all (slot, group, row).
  __device__ std::int64_t ring_at(const StateReplayArgs& args, int k) const {
    return (slot * args.heads + head) * ring + ring_row(k);
  }
  __device__ std::int64_t ring_b_at(const StateReplayArgs& args, int k) const {
    return (slot * args.groups + group) * ring + ring_row(k);
  }
};

/// Tokens first … first + tokens − 1 of the ring, the oldest one being 0.
template <class Io>
__device__ void load_old(const StateReplayArgs& args, const Stage& stage, const Tile& tile, int first,
                         int tokens) {
  const int dstate = static_cast<int>(args.dstate);
  int segment = 0;
  for (int t = 0; t < tokens; t += segment) {  // at most two: up to the end of the ring, and from its start
    segment = min(tokens - t, tile.ring - tile.ring_row(first + t));
    step::stage_projection(stage.B + t * dstate,
                           static_cast<const Io*>(args.ring_B) + tile.ring_b_at(args, first + t) * dstate,
                           dstate, segment, dstate);
  }
#pragma unroll 2  // loads in flight together
  for (int i = static_cast<int>(threadIdx.x); i < tokens * tile.rows; i += static_cast<int>(blockDim.x)) {
    const int t = i / tile.rows;
    const int row = i - t * tile.rows;
    const std::int64_t at = tile.ring_at(args, first + t);
    const float delta = args.ring_dt[at];
    float x = 0.0F;
    if (tile.has(args, row))
      x = to_float(static_cast<const Io*>(args.ring_x)[at * args.headdim + tile.first_row + row]);
    stage.delta_x[i] = delta * x;
    if (row > 0) continue;
    stage.decay[t] = exp2_approximate(delta * (args.A[tile.head] * kLog2E));
    stage.of_token[t] = delta;
  }
}

/// out of new tokens, whose y is where their Δ·x was; and the tokens themselves to the ring, bit by bit.
template <class Io>
__device__ void store_new(const StateReplayArgs& args, const Stage& stage, const Tile& tile, int count,
                          int first, int tokens) {
  const int dstate = static_cast<int>(args.dstate);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const float skip = args.D != nullptr ? args.D[tile.head] : 0.0F;
  for (int i = thread; i < tokens * tile.rows; i += threads) {
    const int t = i / tile.rows;
    const int row = i - t * tile.rows;
    if (!tile.has(args, row)) continue;
    const int of_head = tile.first_row + row;
    const std::int64_t at = (tile.token(args, first + t) * args.heads + tile.head) * args.headdim + of_head;
    static_cast<Io*>(args.out)[at] = from_float<Io>((stage.delta_x[i] + skip * stage.x[i]) * stage.gate[i]);
    static_cast<Io*>(args.ring_x)[tile.ring_at(args, count + first + t) * args.headdim + of_head] =
        static_cast<const Io*>(args.x)[at];
  }
  if (tile.is_first_of_head)
    for (int t = thread; t < tokens; t += threads)
      args.ring_dt[tile.ring_at(args, count + first + t)] = stage.of_token[t];
  if (tile.is_first_of_group)
    for (int i = thread; i < tokens * dstate; i += threads) {
      const int t = i / dstate;
      const int n = i - t * dstate;
      static_cast<Io*>(args.ring_B)[tile.ring_b_at(args, count + first + t) * dstate + n] =
          static_cast<const Io*>(
              args.B)[(tile.token(args, first + t) * args.groups + tile.group) * dstate + n];
    }
}

/// Padding has no state: its outputs are zeros.
template <class Io>
__device__ void clear_out(const StateReplayArgs& args, const Tile& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < args.tokens * tile.rows;
       i += static_cast<int>(blockDim.x)) {
    const int t = i / tile.rows;
    const int row = i - t * tile.rows;
    if (tile.has(args, row))
      static_cast<Io*>(
          args.out)[(tile.token(args, t) * args.heads + tile.head) * args.headdim + tile.first_row + row] =
          from_float<Io>(0.0F);
  }
}

/// h ← decay·h + Δx·B.
template <int kStates>
__device__ void advance(float (&h)[kStates], float decay, float delta_x, const float (&B)[kStates]) {
#pragma unroll
  for (int s = 0; s < kStates; ++s) h[s] = decay * h[s] + delta_x * B[s];
}

template <class State, RowShape kShape, int kRows>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads, kReplayBlocks)
    replay_heads(const StateReplayArgs args, const StepPlan plan, const DType io, const int heads_per_group) {
  using Division = step::Lanes<State, kShape>;
  extern __shared__ __align__(16) float memory[];
  const int dstate = static_cast<int>(args.dstate);
  const int head = static_cast<int>(blockIdx.y);
  const int pass = plan.rows_per_pass();
  const int rows = plan.warps * kRows * pass;
  const std::int64_t b = blockIdx.z;
  const std::int64_t slot = args.source == nullptr ? b : std::int64_t{args.source[b]};
  const Tile tile{.b = b,
                  .slot = slot,
                  .head = head,
                  .group = head / heads_per_group,
                  .first_row = static_cast<int>(blockIdx.x) * rows,
                  .rows = rows,
                  .is_first_of_head = blockIdx.x == 0,
                  .is_first_of_group = blockIdx.x == 0 && head % heads_per_group == 0,
                  .start = slot < 0 ? 0 : args.start[slot],
                  .ring = static_cast<int>(args.window + args.tokens)};
  if (slot < 0) return step::with_device_io(io, [&]<class Io>(Io) { clear_out<Io>(args, tile); });
  const Division division{static_cast<int>(threadIdx.x) & (plan.lanes() - 1), plan.lanes(), dstate};
  const int row = static_cast<int>(threadIdx.x / kWarpThreads) * kRows * pass +
                  (static_cast<int>(threadIdx.x % kWarpThreads) >> plan.lanes_log2);
  const Stage stage(memory, plan.stage_tokens, dstate, rows);
  const std::int64_t first_of_state = (slot * args.heads + head) * args.headdim + tile.first_row + row;
  const int left = static_cast<int>(args.headdim) - tile.first_row - row;
  step::RowPart<State, Division> stored[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    stored[r].load(static_cast<const State*>(args.state) + (first_of_state + r * pass) * dstate, division,
                   r * pass < left);
  const int count = args.count[slot];
  const int all = count + static_cast<int>(args.tokens);
  float h[kRows][Division::kStates];
  int tokens = 0;
  for (int first = 0; first < all; first += tokens) {
    const bool is_old = first < count;
    tokens = min(plan.stage_tokens, (is_old ? count : all) - first);
    step::with_device_io(io, [&]<class Io>(Io) {
      if (is_old)
        load_old<Io>(args, stage, tile, first, tokens);
      else
        step::load_stage<Io, 2>(args, stage, tile.token(args, first - count), tile.head, tile.group, tokens,
                                tile.first_row, tile.rows, [](int, float delta) { return delta; });
    });
    __syncthreads();
    if (first == 0)
#pragma unroll
      for (int r = 0; r < kRows; ++r) stored[r].unpack(h[r]);
    if (first == count && count + args.tokens > args.window)
      step::store_rows<State>(h, args.state, first_of_state, pass, left, division);
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
      float B[Division::kStates], C[Division::kStates], y[kRows];
      float* const of_rows = stage.delta_x + t * rows + row;
      step::load_shared(B, stage.B + t * dstate, division);
      if (is_old) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) advance(h[r], stage.decay[t], of_rows[r * pass], B);
        continue;
      }
      step::load_shared(C, stage.C + t * dstate, division);
#pragma unroll
      for (int r = 0; r < kRows; ++r) y[r] = step::advance(h[r], stage.decay[t], of_rows[r * pass], B, C);
      const float own_y = step::reduce_rows<kRows>(y, division.lane, plan.lanes());
      __syncwarp();  // y goes where Δ·x was
      if (division.lane < kRows) of_rows[division.lane * pass] = own_y;
    }
    __syncthreads();
    if (is_old) continue;
    step::with_device_io(
        io, [&]<class Io>(Io) { store_new<Io>(args, stage, tile, count, first - count, tokens); });
    __syncthreads();
  }
}

}  // namespace ssmbench::replay
