#pragma once

// cuda-step with several tokens: the state is read once, kept in registers in f32 for all of them, and stored
// where a token has a destination.
//
// What tokens bring is small, but to wait for it at every token would cost more than moving the state does.
// So the block loads it for a stage of tokens at once, while the state is on its way, and keeps it in shared
// memory in f32: B and C, Δ·x, x and the gate of each row, the decay of the head (form mamba1: Δ of each
// channel). y of a row goes where its Δ·x was; out is written at the end of the stage, neighbouring rows by
// neighbouring threads. Threads hold rows and states as in kernel.cuh.

#include "kernels/selective_state_update/step/row.cuh"

namespace ssmbench::step {

/// Blocks that a multiprocessor has registers for.
constexpr int kTokensBlocks = 5;
/// Neighbouring elements of B and C that a thread stages at once.
constexpr int kStagedElements = 4;

/// `count` neighbouring elements as floats to shared memory, both aligned to as many.
template <int count, class Io>
__device__ void stage_elements(float* to, const Io* from) {
  float values[count];
  reinterpret_cast<const Packed<Io, count>*>(from)->unpack(values);
#pragma unroll
  for (int i = 0; i < count; ++i) to[i] = values[i];
}

/// Rows of B or C of `tokens` tokens, which are `stride` elements apart, one after the other.
template <class Io>
__device__ void stage_projection(float* to, const Io* from, int dstate, int tokens, std::int64_t stride) {
  const bool has_vectors = dstate % kStagedElements == 0;
  const int width = has_vectors ? kStagedElements : 1;
  const int per_token = dstate / width;
#pragma unroll 4  // loads in flight together
  for (int i = static_cast<int>(threadIdx.x); i < tokens * per_token; i += static_cast<int>(blockDim.x)) {
    const int t = i / per_token;
    const int n = (i - t * per_token) * width;
    if (has_vectors)
      stage_elements<kStagedElements>(to + t * dstate + n, from + t * stride + n);
    else
      stage_elements<1>(to + t * dstate + n, from + t * stride + n);
  }
}

/// What a row has one of at a token.
struct RowInputs {
  float x, gate;
};
template <class Io, class Args>
__device__ RowInputs load_row_inputs(const Args& args, std::int64_t at) {
  return {to_float(static_cast<const Io*>(args.x)[at]),
          args.z == nullptr ? 1.0F : fast_silu(to_float(static_cast<const Io*>(args.z)[at]))};
}

/// Rounds a lane's states of a row and stores them at row `at` of a tensor of states.
template <class State, class Division>
__device__ void store_states(const float (&h)[Division::kStates], void* states, std::int64_t at,
                             const Division& division) {
  RowPart<State, Division> part;
  part.pack(h);
  part.store(static_cast<State*>(states) + at * division.dstate, division);
}
/// The same of kRows rows, `pass` apart, of which `left` are there.
template <class State, class Division, int kRows>
__device__ void store_rows(const float (&h)[kRows][Division::kStates], void* states, std::int64_t first,
                           int pass, int left, const Division& division) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (r * pass < left) store_states<State>(h[r], states, first + r * pass, division);
}

/// A lane's part of a row of floats in shared memory.
template <class Division>
__device__ void load_shared(float (&to)[Division::kStates], const float* row, const Division& division) {
  constexpr int kPiece = Division::kWidth > 4 ? 4 : Division::kWidth;
#pragma unroll
  for (int v = 0; v < Division::kVectors; ++v)
#pragma unroll
    for (int i = 0; i < Division::kWidth; i += kPiece) {
      Packed<float, kPiece> piece{};
      if (division.has(v))
        piece = *reinterpret_cast<const Packed<float, kPiece>*>(row + division.first(v) + i);
      piece.unpack(to + v * Division::kWidth + i);
    }
}

/// The inputs of a stage of tokens of a head.
struct HeadStage {
  float *B, *C;               // [token][state]
  float *delta_x, *x, *gate;  // [token][row of the block]
  float* decay;               // [token]
  float* of_token;            // [token], a number more

  __device__ HeadStage(float* memory, int tokens, int dstate, int rows)
      : B(memory),
        C(B + tokens * dstate),
        delta_x(C + tokens * dstate),
        x(delta_x + tokens * rows),
        gate(x + tokens * rows),
        decay(gate + tokens * rows),
        of_token(decay + tokens) {}
};

/// Form mamba2: `tokens` tokens from `step` on, which is one of all sequences', for rows first_row … of the
/// head. per_token(t, Δ): makes of_token. A thread has kTogether loads of a kind in flight.
template <class Io, int kTogether, class Args, class PerToken>
__device__ void load_stage(const Args& args, const HeadStage& stage, std::int64_t step, int head, int group,
                           int tokens, int first_row, int rows, const PerToken& per_token) {
  const int dstate = static_cast<int>(args.dstate);
  const std::int64_t projection = (step * args.groups + group) * dstate;
  stage_projection(stage.B, static_cast<const Io*>(args.B) + projection, dstate, tokens,
                   args.groups * dstate);
  stage_projection(stage.C, static_cast<const Io*>(args.C) + projection, dstate, tokens,
                   args.groups * dstate);
  const float dt_bias = args.dt_bias != nullptr ? args.dt_bias[head] : 0.0F;
#pragma unroll kTogether
  for (int i = static_cast<int>(threadIdx.x); i < tokens * rows; i += static_cast<int>(blockDim.x)) {
    const int t = i / rows;
    const int row = i - t * rows;
    const std::int64_t of_head = (step + t) * args.heads + head;
    const float delta = StoredDt<Io>(args, of_head).step_size(args, dt_bias);
    RowInputs inputs{};
    if (first_row + row < args.headdim)
      inputs = load_row_inputs<Io>(args, of_head * args.headdim + first_row + row);
    stage.delta_x[i] = delta * inputs.x;
    stage.x[i] = inputs.x;
    stage.gate[i] = inputs.gate;
    if (row > 0) continue;
    stage.decay[t] = exp2_approximate(delta * (args.A[head] * kLog2E));
    stage.of_token[t] = per_token(t, delta);
  }
}

template <class Io>
__device__ void store_stage(const StateUpdateArgs& args, const HeadStage& stage, std::int64_t b, int head,
                            std::int64_t first_token, int tokens, int first_row, int rows, bool is_padding) {
  const float skip = args.D != nullptr ? args.D[head] : 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * rows; i += static_cast<int>(blockDim.x)) {
    const int t = i / rows;
    const int row = first_row + i - t * rows;
    if (row >= args.headdim) continue;
    const float out = is_padding ? 0.0F : (stage.delta_x[i] + skip * stage.x[i]) * stage.gate[i];
    static_cast<Io*>(
        args.out)[((b * args.tokens + first_token + t) * args.heads + head) * args.headdim + row] =
        from_float<Io>(out);
  }
}

/// Form mamba2.
template <class Io, class State, RowShape kShape, int kRows>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads, kTokensBlocks)
    tokens_heads(const StateUpdateArgs args, const StepPlan plan, const int heads_per_group) {
  using Division = Lanes<State, kShape>;
  extern __shared__ __align__(16) float memory[];
  const int dstate = static_cast<int>(args.dstate);
  const int headdim = static_cast<int>(args.headdim);
  const int pass = plan.rows_per_pass();
  const int rows = plan.warps * kRows * pass;
  const int first_row = static_cast<int>(blockIdx.x) * rows;
  const Division division{static_cast<int>(threadIdx.x) & (plan.lanes() - 1), plan.lanes(), dstate};
  const int row = static_cast<int>(threadIdx.x / kWarpThreads) * kRows * pass +
                  (static_cast<int>(threadIdx.x % kWarpThreads) >> plan.lanes_log2);
  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t b = blockIdx.z;
  const std::int64_t source = source_of(args, b);
  const bool is_padding = source < 0;
  const HeadStage stage(memory, plan.stage_tokens, dstate, rows);

  const std::int64_t slot_rows = args.heads * headdim;
  const std::int64_t row_of_slot = static_cast<std::int64_t>(head) * headdim + first_row + row;
  RowPart<State, Division> stored[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    stored[r].load(
        static_cast<const State*>(args.state) + (source * slot_rows + row_of_slot + r * pass) * dstate,
        division, !is_padding && first_row + row + r * pass < headdim);
  float h[kRows][Division::kStates];
  for (std::int64_t first = 0; first < args.tokens; first += plan.stage_tokens) {
    const int tokens = steps_within(first, plan.stage_tokens, args.tokens);
    load_stage<Io, 4>(
        args, stage, b * args.tokens + first, head, head / heads_per_group, tokens, first_row, rows,
        [&](int t, float) { return __int_as_float(static_cast<int>(destination_of(args, b, first + t))); });
    __syncthreads();
    if (first == 0)
#pragma unroll
      for (int r = 0; r < kRows; ++r) stored[r].unpack(h[r]);
    for (int t = 0; t < tokens; ++t) {
      float B[Division::kStates], C[Division::kStates], y[kRows];
      load_shared(B, stage.B + t * dstate, division);
      load_shared(C, stage.C + t * dstate, division);
      const float decay = stage.decay[t];
      const std::int64_t destination = __float_as_int(stage.of_token[t]);
      float* const of_rows = stage.delta_x + t * rows + row;
#pragma unroll
      for (int r = 0; r < kRows; ++r) y[r] = advance(h[r], decay, of_rows[r * pass], B, C);
      const int left = headdim - first_row - row;
      if (destination >= 0)
        store_rows<State>(h, args.state, destination * slot_rows + row_of_slot, pass, left, division);
      if (args.intermediate != nullptr)
        store_rows<State>(h, args.intermediate, (b * args.tokens + first + t) * slot_rows + row_of_slot, pass,
                          left, division);
      const float own_y = reduce_rows<kRows>(y, division.lane, plan.lanes());
      __syncwarp();  // all lanes of the row have read Δ·x
      if (division.lane < kRows) of_rows[division.lane * pass] = own_y;
    }
    __syncthreads();
    store_stage<Io>(args, stage, b, head, first, tokens, first_row, rows, is_padding);
    __syncthreads();
  }
}

/// The inputs of a stage of tokens of a tile of channels, for several sequences.
struct ChannelStage {
  float *B, *C;                       // [sequence][token][state]
  float *delta, *delta_x, *x, *gate;  // [sequence][token][channel of the block]
  int* destination;                   // [sequence][token]

  __device__ ChannelStage(float* memory, int rows, int dstate, int channels)
      : B(memory),
        C(B + rows * dstate),
        delta(C + rows * dstate),
        delta_x(delta + rows * channels),
        x(delta_x + rows * channels),
        gate(x + rows * channels),
        destination(reinterpret_cast<int*>(gate + rows * channels)) {}
};

/// Channels of a block: a run of a group's.
struct ChannelTile {
  std::int64_t first;  ///< among all channels
  int count;           ///< that the block has room for
  int left;            ///< of the group from the first one on
};

/// Tokens of sequences that a block has at once: those from first_token on, of rows from first_row on.
struct TokenTile {
  std::int64_t first_row, first_token;
  int rows, tokens;
  int stride;  ///< tokens of a row in the stage

  struct Place {
    std::int64_t step;  ///< among all tokens
    int at;             ///< in the stage
    std::int64_t row;
  };
  __device__ int count() const { return rows * tokens; }
  __device__ Place place(const StateUpdateArgs& args, int i) const {
    const int r = i / tokens;
    const int t = i - r * tokens;
    return {(first_row + r) * args.tokens + first_token + t, r * stride + t, first_row + r};
  }
};

/// Form mamba1.
template <class Io>
__device__ void load_stage(const StateUpdateArgs& args, const ChannelStage& stage, const TokenTile& tokens,
                           const ChannelTile& tile) {
  const int dstate = static_cast<int>(args.dstate);
  for (int r = 0; r < tokens.rows; ++r) {
    const std::int64_t step = (tokens.first_row + r) * args.tokens + tokens.first_token;
    const std::int64_t from = (step * args.groups + blockIdx.y) * dstate;
    const int to = r * tokens.stride * dstate;
    stage_projection(stage.B + to, static_cast<const Io*>(args.B) + from, dstate, tokens.tokens,
                     args.groups * dstate);
    stage_projection(stage.C + to, static_cast<const Io*>(args.C) + from, dstate, tokens.tokens,
                     args.groups * dstate);
  }
#pragma unroll 4  // loads in flight together
  for (int i = static_cast<int>(threadIdx.x); i < tokens.count() * tile.count;
       i += static_cast<int>(blockDim.x)) {
    const TokenTile::Place place = tokens.place(args, i / tile.count);
    const int c = i % tile.count;
    // Past the group's end another channel's values, which nobody uses.
    const std::int64_t channel = tile.first + min(c, tile.left - 1);
    const std::int64_t from = place.step * args.heads + channel;
    const float dt_bias = args.dt_bias != nullptr ? args.dt_bias[channel] : 0.0F;
    const RowInputs inputs = load_row_inputs<Io>(args, from);
    const float delta = StoredDt<Io>(args, from).step_size(args, dt_bias);
    const int to = place.at * tile.count + c;
    stage.delta[to] = delta;
    stage.delta_x[to] = delta * inputs.x;
    stage.x[to] = inputs.x;
    stage.gate[to] = inputs.gate;
  }
  for (int i = static_cast<int>(threadIdx.x); i < tokens.count(); i += static_cast<int>(blockDim.x)) {
    const TokenTile::Place place = tokens.place(args, i);
    stage.destination[place.at] =
        static_cast<int>(destination_of(args, place.row, place.step - place.row * args.tokens));
  }
}

template <class Io>
__device__ void store_stage(const StateUpdateArgs& args, const ChannelStage& stage, const TokenTile& tokens,
                            const ChannelTile& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < tokens.count() * tile.count;
       i += static_cast<int>(blockDim.x)) {
    const TokenTile::Place place = tokens.place(args, i / tile.count);
    const int c = i % tile.count;
    if (c >= tile.left) continue;
    const int from = place.at * tile.count + c;
    const float skip = args.D != nullptr ? args.D[tile.first + c] : 0.0F;
    const bool is_padding = source_of(args, place.row) < 0;
    const float out = is_padding ? 0.0F : (stage.delta_x[from] + skip * stage.x[from]) * stage.gate[from];
    static_cast<Io*>(args.out)[place.step * args.heads + tile.first + c] = from_float<Io>(out);
  }
}

/// Form mamba1: thread rows are sequences.
template <class Io, class State, RowShape kShape, int kRows>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads, kTokensBlocks)
    tokens_channels(const StateUpdateArgs args, const StepPlan plan, const int heads_per_group) {
  using Division = Lanes<State, kShape>;
  extern __shared__ __align__(16) float memory[];
  const int dstate = static_cast<int>(args.dstate);
  const Division division{static_cast<int>(threadIdx.x) & (plan.lanes() - 1), plan.lanes(), dstate};
  const int count = plan.warps * plan.rows_per_pass();
  const int of_group = static_cast<int>(blockIdx.x) * count;
  const ChannelTile tile{static_cast<std::int64_t>(blockIdx.y) * heads_per_group + of_group, count,
                         heads_per_group - of_group};
  const int own = static_cast<int>(threadIdx.x) >> plan.lanes_log2;
  const bool is_there = own < tile.left;
  const std::int64_t channel = tile.first + (is_there ? own : 0);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.z) * kRows;
  const int rows = steps_within(first_row, kRows, args.batch);
  const ChannelStage stage(memory, kRows * plan.stage_tokens, dstate, count);

  std::int64_t source[kRows];
  float h[kRows][Division::kStates], rate[Division::kStates];
  {
    RowPart<State, Division> stored[kRows];
    RowPart<float, Division> stored_rate;
#pragma unroll
    for (int r = 0; r < kRows; ++r) source[r] = r < rows ? source_of(args, first_row + r) : -1;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      stored[r].load(static_cast<const State*>(args.state) + (source[r] * args.heads + channel) * dstate,
                     division, is_there && source[r] >= 0);
    stored_rate.load(args.A + channel * dstate, division, true);
#pragma unroll
    for (int r = 0; r < kRows; ++r) stored[r].unpack(h[r]);
    stored_rate.unpack(rate);
  }
#pragma unroll
  for (int s = 0; s < Division::kStates; ++s) rate[s] *= kLog2E;
  for (std::int64_t first = 0; first < args.tokens; first += plan.stage_tokens) {
    const int tokens = steps_within(first, plan.stage_tokens, args.tokens);
    const TokenTile token_tile{first_row, first, rows, tokens, plan.stage_tokens};
    load_stage<Io>(args, stage, token_tile, tile);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      for (int t = 0; t < tokens; ++t) {
        const int at = r * plan.stage_tokens + t;
        float* const delta_x = stage.delta_x + at * count + own;
        float B[Division::kStates], C[Division::kStates];
        load_shared(B, stage.B + at * dstate, division);
        load_shared(C, stage.C + at * dstate, division);
        const float y =
            reduce_row(advance(h[r], rate, stage.delta[at * count + own], *delta_x, B, C), plan.lanes());
        __syncwarp();  // all lanes of the channel have read Δ·x
        if (division.lane == 0) *delta_x = y;
        if (!is_there) continue;
        const std::int64_t destination = stage.destination[at];
        if (destination >= 0)
          store_states<State>(h[r], args.state, destination * args.heads + channel, division);
        if (args.intermediate != nullptr)
          store_states<State>(h[r], args.intermediate,
                              ((first_row + r) * args.tokens + first + t) * args.heads + channel, division);
      }
    }
    __syncthreads();
    store_stage<Io>(args, stage, token_tile, tile);
    __syncthreads();
  }
}

}  // namespace ssmbench::step
