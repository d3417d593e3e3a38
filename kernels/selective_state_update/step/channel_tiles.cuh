#pragma once

// cuda-step with form mamba1: 16 states a channel, and many channels, in whole tiles.
//
// A channel has few states for what it has one of: x, z, Δ, out, and the code around them. So lanes are kept
// busy with these too, and what channels have in common is taken once:
//
//   block   64 neighbouring channels of a group. A of these is in shared memory for all sequences
//   warp    the 64 channels of a sequence, then those of another one: B and C are unpacked once for them
//   pass    32 neighbouring vectors of 16 bytes, a lane each, as they lie in memory
//   lane    owns channels l and l + 32 of the 64: x, z, Δ, out
//
// The states of a sequence are on their way to shared memory while those of the sequence before are computed,
// each lane's vectors where no other lane looks: a half of a sequence's passes is copied to the place of the
// half that has just been read. Slots are looked up a sequence earlier, x, z, Δ, B and C are loaded one ahead
// to registers. With several tokens a warp has the states of all 64 channels in registers for them, in f32.

#include "kernels/common/mma.cuh"
#include "kernels/selective_state_update/step/row.cuh"

namespace ssmbench::step {

/// How 64 channels of kTileStates states lie across a warp.
template <class State>
struct TileLayout {
  using Division = Lanes<State, RowShape::one_vector>;
  static constexpr int kWidth = Division::kWidth;
  static constexpr int kLanes = kTileStates / kWidth;    // that share a channel
  static constexpr int kOfPass = kWarpThreads / kLanes;  // channels
  static constexpr int kOfHalf = kLanes;                 // passes of 32 channels
  static constexpr int kHalves = kTileChannels / kWarpThreads;
  static constexpr int kPasses = kHalves * kOfHalf;
};

/// What a lane needs of a sequence beside its states, as it lies in memory: of its two channels, and B and C
/// of its states.
template <class Io, class State>
struct SequenceInputs {
  using Tile = TileLayout<State>;
  int source, destination;
  Io x[Tile::kHalves], z[Tile::kHalves]{};
  StoredDt<Io> dt[Tile::kHalves];
  RowPart<Io, typename Tile::Division> B, C;
};

/// Where a lane of a warp finds what it has of its block's channels, of each sequence and slot.
template <class Io, class State>
class TileChannels {
 public:
  using Tile = TileLayout<State>;
  using Division = typename Tile::Division;
  using Inputs = SequenceInputs<Io, State>;
  using Vector = typename RowPart<State, Division>::Vector;
  using Staged = Vector (*)[kStepWarps * kWarpThreads];

  __device__ TileChannels(const StateUpdateArgs& args, int heads_per_group, Staged staged)
      : args_(args),
        staged_(staged),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        channel_(static_cast<int>(blockIdx.y) * heads_per_group +
                 static_cast<int>(blockIdx.x) * kTileChannels),
        state_bytes_(static_cast<unsigned>(args.heads * kTileStates * sizeof(State))),
        io_bytes_(static_cast<unsigned>(args.heads * sizeof(Io))),
        projection_bytes_(static_cast<unsigned>(args.groups * kTileStates * sizeof(Io))),
        states_(static_cast<State*>(args.state) + std::int64_t{channel_} * kTileStates +
                lane_ * Tile::kWidth) {}

  __device__ int lane() const { return lane_; }
  /// The block's first channel.
  __device__ int channel() const { return channel_; }
  /// The lane's own channel of a half, among those of all groups.
  __device__ int own(int half) const { return channel_ + lane_ + half * kWarpThreads; }

  /// The slot that sequence b starts from; past the last one of any.
  __device__ int source(int b) const {
    b = min(b, static_cast<int>(args_.batch) - 1);
    return args_.source == nullptr ? b : args_.source[b];
  }
  /// Starts to bring half a sequence's states: zeros where it has none.
  __device__ void copy(int slot, int half) const {
    const State* const from = row_at<const State>(states_, max(slot, 0), state_bytes_);
#pragma unroll
    for (int j = 0; j < Tile::kOfHalf; ++j) {
      const int pass = half * Tile::kOfHalf + j;
      copy_async_16(shared_address(&staged(pass)), from + pass * kWarpThreads * Tile::kWidth,
                    slot >= 0 ? 16 : 0);
    }
  }
  __device__ Vector& staged(int pass) const {
    return staged_[pass][threadIdx.x];
  }
  /// The lane's first vector of a slot, and of the states after a token.
  __device__ State* state(int slot) const {
    return row_at(states_, slot, state_bytes_);
  }
  __device__ State* intermediate(int step) const {
    return row_at(static_cast<State*>(args_.intermediate) + (states_ - static_cast<State*>(args_.state)),
                  step, state_bytes_);
  }

  /// Token t of sequence b.
  __device__ Inputs load(int b, int t) const {
    const int step = b * static_cast<int>(args_.tokens) + t;
    Inputs in;
    in.source = source(b);
    in.destination = static_cast<int>(destination_of(args_, b, t));
    const Io* const x = row_at(of_channel<Io>(args_.x), step, io_bytes_);
    const Io* const z = row_at(of_channel<Io>(args_.z), step, io_bytes_);
    const Io* const dt = row_at(of_channel<Io>(args_.dt), step, io_bytes_);
    const float* const dt_f32 =
        row_at(of_channel<float>(args_.dt), step, static_cast<unsigned>(args_.heads * sizeof(float)));
#pragma unroll
    for (int half = 0; half < Tile::kHalves; ++half) {
      in.x[half] = x[half * kWarpThreads];
      if (args_.z != nullptr) in.z[half] = z[half * kWarpThreads];
      if (args_.dt_is_f32)
        in.dt[half].f32 = dt_f32[half * kWarpThreads];
      else
        in.dt[half].io = dt[half * kWarpThreads];
    }
    in.B.load_vector(row_at(of_projection(args_.B), step, projection_bytes_));
    in.C.load_vector(row_at(of_projection(args_.C), step, projection_bytes_));
    return in;
  }
  __device__ void store_out(int step, int half, float out) const {
    *row_at(static_cast<Io*>(args_.out) + own(half), step, io_bytes_) = from_float<Io>(out);
  }

 private:
  template <class T>
  __device__ const T* of_channel(const void* tensor) const {
    return static_cast<const T*>(tensor) + own(0);
  }
  __device__ const Io* of_projection(const void* tensor) const {
    return static_cast<const Io*>(tensor) + blockIdx.y * kTileStates + lane_ % Tile::kLanes * Tile::kWidth;
  }

  const StateUpdateArgs& args_;
  Staged staged_;
  int lane_, channel_;
  unsigned state_bytes_, io_bytes_, projection_bytes_;
  State* states_;
};

/// A of the block's channels, times log2(e), to shared memory. By all threads.
__device__ inline void stage_rates(float* to, const StateUpdateArgs& args, int channel) {
  const auto* const from = reinterpret_cast<const float4*>(args.A + std::int64_t{channel} * kTileStates);
  for (auto i = static_cast<int>(threadIdx.x); i < kTileChannels * kTileStates / 4;
       i += kStepWarps * kWarpThreads) {
    const float4 four = from[i];
    reinterpret_cast<float4*>(to)[i] =
        make_float4(four.x * kLog2E, four.y * kLog2E, four.z * kLog2E, four.w * kLog2E);
  }
}

/// The bias of Δ, and D, of a lane's own channels.
template <int kHalves>
struct ChannelConstants {
  float dt_bias[kHalves]{}, skip[kHalves]{};

  template <class Channels>
  __device__ ChannelConstants(const StateUpdateArgs& args, const Channels& channels) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (args.dt_bias != nullptr) dt_bias[half] = args.dt_bias[channels.own(half)];
      if (args.D != nullptr) skip[half] = args.D[channels.own(half)];
    }
  }
};

/// A token of a warp's channels as numbers.
template <class Io, class State>
struct TileToken {
  using Tile = TileLayout<State>;
  float B[Tile::kWidth], C[Tile::kWidth];                          // of the lane's states
  float delta[Tile::kHalves], x[Tile::kHalves], z[Tile::kHalves];  // of its own channels
  int destination;
  bool is_padding;

  __device__ TileToken(const StateUpdateArgs& args, const SequenceInputs<Io, State>& in,
                       const ChannelConstants<Tile::kHalves>& constants)
      : destination(in.source < 0 ? -1 : in.destination), is_padding(in.source < 0) {
    in.B.unpack(B);
    in.C.unpack(C);
#pragma unroll
    for (int half = 0; half < Tile::kHalves; ++half) {
      delta[half] = in.dt[half].step_size(args, constants.dt_bias[half]);
      x[half] = to_float(in.x[half]);
      z[half] = to_float(in.z[half]);
    }
  }
  /// out of the lane's own channel, of which Σ C·h is y.
  __device__ float out(const StateUpdateArgs& args, const ChannelConstants<Tile::kHalves>& constants,
                       int half, float y) const {
    if (args.D != nullptr) y += constants.skip[half] * x[half];
    if (args.z != nullptr) y *= fast_silu(z[half]);
    return is_padding ? 0.0F : y;
  }
};

/// A lane's states of half a sequence's channels.
template <class State>
struct HalfStates {
  using Tile = TileLayout<State>;
  float h[Tile::kOfHalf][Tile::kWidth];

  template <class Channels>
  __device__ void read(const Channels& channels, int half) {
#pragma unroll
    for (int j = 0; j < Tile::kOfHalf; ++j) channels.staged(half * Tile::kOfHalf + j).unpack(h[j]);
  }
  /// Rounds and stores them; `to` is the lane's first vector of all passes.
  __device__ void store(State* to, int half) const {
#pragma unroll
    for (int j = 0; j < Tile::kOfHalf; ++j) {
      Packed<State, Tile::kWidth> vector;
      vector.pack(h[j]);
      vector.write(to + (half * Tile::kOfHalf + j) * kWarpThreads * Tile::kWidth);
    }
  }
  /// A token. Returns Σ C·h of the lane's own channel.
  template <class Io>
  __device__ float advance(const TileToken<Io, State>& token, const float* rates, int half, int lane) {
    constexpr unsigned kAll = 0xFFFFFFFFU;
    const int channel = lane / Tile::kLanes;  // of a pass
    const float own_delta_x = token.delta[half] * token.x[half];
    float y[Tile::kOfHalf];
#pragma unroll
    for (int j = 0; j < Tile::kOfHalf; ++j) {
      const float delta = __shfl_sync(kAll, token.delta[half], j * Tile::kOfPass + channel);
      const float delta_x = __shfl_sync(kAll, own_delta_x, j * Tile::kOfPass + channel);
      const float* const from = rates + ((half * Tile::kOfHalf + j) * kWarpThreads + lane) * Tile::kWidth;
      float rate[Tile::kWidth];
#pragma unroll
      for (int s = 0; s < Tile::kWidth; s += 4)
        *reinterpret_cast<float4*>(rate + s) = *reinterpret_cast<const float4*>(from + s);
      y[j] = step::advance(h[j], rate, delta, delta_x, token.B, token.C);
    }
    // Lane j of those that share a channel has the sum of pass j.
    const float sum = reduce_rows<Tile::kOfHalf>(y, lane % Tile::kLanes, Tile::kLanes);
    return __shfl_sync(kAll, sum, lane % Tile::kOfPass * Tile::kLanes + lane / Tile::kOfPass);
  }
};

/// The sequences of a warp: every fourth one of its block's.
struct WarpSequences {
  int begin, end;

  __device__ WarpSequences(const StateUpdateArgs& args, const StepPlan& plan) {
    const int first = static_cast<int>(blockIdx.z) * kStepWarps * plan.turns;
    begin = first + static_cast<int>(threadIdx.x) / kWarpThreads;
    end = min(first + kStepWarps * plan.turns, static_cast<int>(args.batch));
  }
};

/// One token.
template <class Io, class State>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads, kChannelTileBlocks)
    step_channel_tiles(const StateUpdateArgs args, const StepPlan plan, const int heads_per_group) {
  using Channels = TileChannels<Io, State>;
  using Tile = TileLayout<State>;
  __shared__ typename Channels::Vector staged[Tile::kPasses][kStepWarps * kWarpThreads];
  __shared__ alignas(16) float rates[kTileChannels * kTileStates];
  const Channels channels(args, heads_per_group, staged);
  const WarpSequences sequences(args, plan);
  const int first_slot = channels.source(sequences.begin);
#pragma unroll
  for (int half = 0; half < Tile::kHalves; ++half) {
    if (sequences.begin < sequences.end) channels.copy(first_slot, half);
    copy_async_commit();
  }
  int next_slot = channels.source(sequences.begin + kStepWarps);
  SequenceInputs<Io, State> next = channels.load(min(sequences.begin, sequences.end - 1), 0);
  const ChannelConstants<Tile::kHalves> constants(args, channels);
  stage_rates(rates, args, channels.channel());
  __syncthreads();
#pragma unroll 1
  for (int b = sequences.begin; b < sequences.end; b += kStepWarps) {
    const bool is_last = b + kStepWarps >= sequences.end;
    const int slot = next_slot;
    const TileToken<Io, State> token(args, next, constants);
    if (!is_last) next = channels.load(b + kStepWarps, 0);
    next_slot = channels.source(b + 2 * kStepWarps);
    State* const to = channels.state(max(token.destination, 0));
#pragma unroll
    for (int half = 0; half < Tile::kHalves; ++half) {
      HalfStates<State> states;
      copy_async_wait<Tile::kHalves - 1>();
      states.read(channels, half);
      const float y = states.advance(token, rates, half, channels.lane());
      if (token.destination >= 0) states.store(to, half);
      if (!is_last) channels.copy(slot, half);  // to where nothing is read any more
      copy_async_commit();
      channels.store_out(b, half, token.out(args, constants, half, y));
    }
  }
}

/// Several tokens.
template <class Io, class State>
__global__ void __launch_bounds__(kStepWarps* kWarpThreads, kTokenTileBlocks)
    tokens_channel_tiles(const StateUpdateArgs args, const StepPlan plan, const int heads_per_group) {
  using Channels = TileChannels<Io, State>;
  using Tile = TileLayout<State>;
  __shared__ typename Channels::Vector staged[Tile::kPasses][kStepWarps * kWarpThreads];
  __shared__ alignas(16) float rates[kTileChannels * kTileStates];
  const Channels channels(args, heads_per_group, staged);
  const WarpSequences sequences(args, plan);
  const auto tokens = static_cast<int>(args.tokens);
  const auto copy = [&](int slot) {
#pragma unroll
    for (int half = 0; half < Tile::kHalves; ++half) channels.copy(slot, half);
    copy_async_commit();
  };
  if (sequences.begin < sequences.end) copy(channels.source(sequences.begin));
  SequenceInputs<Io, State> next = channels.load(min(sequences.begin, sequences.end - 1), 0);
  const ChannelConstants<Tile::kHalves> constants(args, channels);
  stage_rates(rates, args, channels.channel());
  __syncthreads();
#pragma unroll 1
  for (int b = sequences.begin; b < sequences.end; b += kStepWarps) {
    const bool is_last = b + kStepWarps >= sequences.end;
    const int slot = channels.source(b + kStepWarps);
    HalfStates<State> states[Tile::kHalves];
    copy_async_wait<0>();
#pragma unroll
    for (int half = 0; half < Tile::kHalves; ++half) states[half].read(channels, half);
#pragma unroll 1
    for (int t = 0; t < tokens; ++t) {
      const TileToken<Io, State> token(args, next, constants);
      if (t + 1 < tokens)
        next = channels.load(b, t + 1);
      else if (!is_last)
        next = channels.load(b + kStepWarps, 0);
      const int step = b * tokens + t;
#pragma unroll
      for (int half = 0; half < Tile::kHalves; ++half) {
        const float y = states[half].advance(token, rates, half, channels.lane());
        if (token.destination >= 0) states[half].store(channels.state(token.destination), half);
        if (args.intermediate != nullptr) states[half].store(channels.intermediate(step), half);
        channels.store_out(step, half, token.out(args, constants, half, y));
      }
      if (t == 0 && !is_last) copy(slot);  // to where nothing is read any more
    }
  }
}

}  // namespace ssmbench::step
