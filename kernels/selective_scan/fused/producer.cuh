#pragma once

// The producer warps of cuda-fused's fast kernel (kernel.cuh): they load tiles by TMA, stage them for the
// consumers, and finish what these leave.

#include "kernels/common/activations.h"
#include "kernels/common/complex.h"
#include "kernels/common/hopper/tma.cuh"
#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/fused/map.h"
#include "kernels/selective_scan/segments.h"

namespace ssmbench::fused {

/// What a kernel makes: the outputs of a scan whose time is uncut; the states at the ends of segments and the
/// products of their decays; the outputs of segments; these, cut or not, and x. zoh has the first as a kernel
/// of its own, since its loops lose 3% to what the compiler makes of the others; other methods lose less than
/// 2%.
enum class Pass { outputs, states, segments, outputs_and_x };

/// The channels that one consumer and one producer warpgroup of a block work on, and their segment of time.
struct ChannelSlice {
  int index;                 ///< in its block
  std::int64_t b, g, first;  ///< batch, group, first channel
  int count;                 ///< channels that exist
  int segment;
  std::int64_t begin, steps;  ///< the segment's first step, and how many it has
};

/// The states that a launch does, up to Map::kPaddedStates from `first` on. Rounds hand on y in `sums`:
/// [block][tile][producer thread][8].
struct StateRound {
  int first;
  bool last;
  std::int64_t tiles;  ///< of a segment
  float* sums;         ///< null where there is one round

  /// The first state, which is known to be 0 where there are no rounds.
  template <class Map>
  __device__ int first_of() const {
    return Map::kRounds ? first : 0;
  }
};

/// Blocks: those of a group are neighbours, and those of a segment.
template <class Map, Pass pass>
__device__ ChannelSlice channel_slice(const ScanArgs& args, std::int64_t blocks_per_group, int slices,
                                      int index, const TimeSegments& segments) {
  // There are fewer than 2^31 blocks; a division of 64 bits takes a hundred instructions.
  unsigned pair = blockIdx.x / static_cast<unsigned>(blocks_per_group);
  const std::int64_t block = blockIdx.x - pair * blocks_per_group;
  const std::int64_t first = (block * slices + index) * Map::kChannels;
  unsigned segment = 0;
  if constexpr (pass != Pass::outputs) {
    const auto pairs = static_cast<unsigned>(args.batch * args.groups);
    segment = pair / pairs;
    pair -= segment * pairs;
  }
  const std::int64_t b = pair / static_cast<unsigned>(args.groups);
  const std::int64_t g = pair - b * args.groups;
  const std::int64_t begin = pass == Pass::outputs ? 0 : segment * segments.steps;
  return {index,
          b,
          g,
          g * args.channels_per_group + first,
          first < args.channels_per_group ? steps_within(first, Map::kChannels, args.channels_per_group) : 0,
          static_cast<int>(segment),
          begin,
          pass == Pass::outputs ? args.seqlen : min(segments.steps, args.seqlen - begin)};
}

/// A block's shared memory as one slice sees it. There are two tiles in f32: `tile` % 2 is the slot.
template <class Map, class Layout>
struct SharedTiles {
  __device__ SharedTiles(float4* shared, int slice)
      : raw_projections(reinterpret_cast<char*>(shared)),
        projections(reinterpret_cast<float*>(raw_projections + Layout::kCommonRawBytes)),
        arrived(shared_address(projections + Layout::kCommonFloats)),
        raw(raw_projections + Layout::kCommonBytes + slice * Layout::kSliceBytes),
        sequences(reinterpret_cast<float*>(raw + Layout::kSliceRawBytes)),
        bias(sequences + 2 * Map::kSequenceFloats),
        D(bias + Map::kChannels) {}

  char* raw_projections;
  float* projections;
  std::uint32_t arrived;  ///< an mbarrier for each pipeline stage, one after the other

  /// The mbarrier of a tile's stage.
  __device__ std::uint32_t arrived_at(int tile) const {
    return arrived + tile % Layout::kDepth * hopper::kBarrierBytes;
  }

  // The slice's own.
  char* raw;
  float *sequences, *bias, *D;
};

/// The tensors that TMA loads.
struct TensorMaps {
  CUtensorMap u, z, delta, B, C;
  DType dtype;      ///< of u, z, delta and out; of B and C too where states are real
  bool along_time;  ///< whether steps are what is contiguous in these tensors; else channels and states are
};

/// An element of a dtype of 16 bits, f16 or bf16, for kernels that do both: only the producers look at it.
/// With real states and methods of one sample, where producers have less time, these kernels were up to 9%
/// slower.
struct Bits16 {
  std::uint16_t bits;
};

/// Calls call(std::type_identity<T>) with the type that elements have in memory.
template <class Io, class Call>
__device__ void with_element(DType dtype, const Call& call) {
  if constexpr (!std::is_same_v<Io, Bits16>)
    call(std::type_identity<Io>());
  else if (dtype == DType::bf16)
    call(std::type_identity<__nv_bfloat16>());
  else
    call(std::type_identity<__half>());
}

template <class Io>
__device__ float to_float(const Io* element, DType dtype) {
  float value;
  with_element<Io>(dtype, [&]<class T>(std::type_identity<T>) {
    value = ssmbench::to_float(*reinterpret_cast<const T*>(element));
  });
  return value;
}
template <class Io>
__device__ void unpack(const Elements8<Io>& elements, float (&to)[8], DType dtype) {
  with_element<Io>(dtype, [&]<class T>(std::type_identity<T>) {
    ssmbench::unpack(reinterpret_cast<const Elements8<T>&>(elements), to);
  });
}
template <class Io>
__device__ Elements8<Io> pack(const float (&from)[8], DType dtype) {
  Elements8<Io> elements;
  with_element<Io>(dtype, [&]<class T>(std::type_identity<T>) {
    reinterpret_cast<Elements8<T>&>(elements) = ssmbench::pack<T>(from);
  });
  return elements;
}

/// One thread of each slice: starts to load what stage() takes of `tile`, and finish() of the last but one.
template <class Map, class Layout, bool kAlongTime, Pass pass>
__device__ void load_tile(const ScanArgs& args, const TensorMaps& maps, const ChannelSlice& slice,
                          const StateRound& round, const SharedTiles<Map, Layout>& shared, int tile) {
  using Sequence = typename Layout::template Sequence<kAlongTime>;
  using Projection = typename Layout::template Projection<kAlongTime>;
  constexpr int kProjections = pass == Pass::states ? 1 : 2;  // B and C
  const bool exists = tile < ceil_div(slice.steps, Map::kSteps);
  const bool finishes = pass != Pass::states && tile >= 2 && args.z != nullptr;
  const std::uint32_t arrived = shared.arrived_at(tile);
  hopper::barrier_arrive_expect(
      arrived,
      (exists ? 2 * Layout::kSequenceBytes + (slice.index == 0 ? kProjections * Layout::kProjectionBytes : 0)
              : 0) +
          (finishes ? Layout::kSequenceBytes : 0));
  // An element of memory has so many `floats`.
  const auto load = [&]<class Tile>(const Tile&, const CUtensorMap& map, char* to, int tile_index, int across,
                                    int z, int floats) {
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      const int along = i * Tile::kCopyRow / Tile::kElementBytes;
      int time = static_cast<int>(slice.begin) + tile_index * Map::kSteps;
      (kAlongTime ? time : across) *= floats;
      hopper::load_tile(
          shared_address(to + i * Tile::kCopyBytes), map,
          hopper::TileOrigin3{{kAlongTime ? time + along : across + along, kAlongTime ? across : time, z}},
          arrived);
    }
  };
  const int first = static_cast<int>(slice.first);
  const int b = static_cast<int>(slice.b);
  if (exists) {
    load(Sequence(), maps.delta, shared.raw + Layout::delta_at(tile), tile, first, b, 1);
    load(Sequence(), maps.u, shared.raw + Layout::u_at(tile), tile, first, b, 1);
  }
  if (exists && slice.index == 0) {
    const int state = (kAlongTime ? 0 : static_cast<int>(slice.g * args.dstate)) + round.first_of<Map>();
    const int z = kAlongTime ? static_cast<int>(slice.b * args.groups + slice.g) : b;
    load(Projection(), maps.B, shared.raw_projections + Layout::projection_at(0, tile), tile, state, z,
         Map::kStateFloats);
    if constexpr (pass != Pass::states)
      load(Projection(), maps.C, shared.raw_projections + Layout::projection_at(1, tile), tile, state, z,
           Map::kStateFloats);
  }
  if (finishes) load(Sequence(), maps.z, shared.raw + Layout::z_at(tile - 2), tile - 2, first, b, 1);
}

/// B or C of 8 steps or states in f32, the first of which lies at `to`.
template <class Map, bool kAlongTime, class Stored>
__device__ void stage_projection(float* to, const Elements8<Stored>& elements, DType dtype) {
  constexpr int kNeighbours = kAlongTime ? Map::kStateFloats : Map::kStates;
  float values[8];
  unpack(elements, values, dtype);
#pragma unroll
  for (int k = 0; k < 8; k += kNeighbours) {
    float* const at = to + (kAlongTime ? Map::projection_at(k / kNeighbours, 0) : Map::projection_at(0, k));
    if constexpr (kNeighbours == 4)
      store_vector(at, values[k], values[k + 1], values[k + 2], values[k + 3]);
    else if constexpr (kNeighbours == 2)
      store_half_vector(at, values[k], values[k + 1]);
    else
      *at = values[k];
  }
}

/// A producer thread. Its elements of the sequences have the same coordinates in each tile.
template <class Map, class Io, bool kTakesGain, bool kAlongTime, Pass pass>
class Producer {
 public:
  using Layout = SharedLayout<Map, sizeof(Io)>;

  __device__ Producer(const ScanArgs& args, const ChannelSlice& slice, const StateRound& round,
                      const SharedTiles<Map, Layout>& shared, DType dtype, int thread)
      : args_(args),
        round_(round),
        dtype_(dtype),
        shared_(shared),
        sequence_(thread),
        projection_(thread),
        which_(thread / Coordinates::kThreads),
        stages_projections_(slice.index == 0 && which_ + Coordinates::kProjections <= 2 &&
                            (pass != Pass::states || which_ == 0)),
        has_states_(projection_.state + round.first_of<Map>() < args.dstate),
        sequence_tiles_(sequence_.channel < slice.count && sequence_.step < slice.steps
                            ? static_cast<int>(ceil_div(slice.steps - sequence_.step, Map::kSteps))
                            : 0),
        out_(static_cast<Io*>(args.out) + slice.b * args.sequence.batch +
             (slice.first + sequence_.channel) * args.sequence.dim +
             (slice.begin + sequence_.step) * args.sequence.time),
        sums_(Map::kRounds && round.sums != nullptr
                  ? round.sums + (blockIdx.x * round.tiles * kProducerThreads + thread) * 8
                  : nullptr) {}

  /// Waits for what load_tile has started for `tile`.
  __device__ void wait(int tile) const {
    hopper::barrier_wait(shared_.arrived_at(tile), tile / Layout::kDepth % 2);
  }

  /// {Δ, Δ·u} (or {Δ, u/2}), B and C of `tile`. Steps past the end become zeros, which leave states as they
  /// are.
  __device__ void stage(int tile) const {
    float delta[8], gain[8];
    unpack(sequence_elements(Layout::delta_at(tile)), delta, dtype_);
    // Past the end delta and u are 0, but softplus(bias) is not.
    if constexpr (kAlongTime) {
      float bias = args_.delta_softplus ? -INFINITY : 0.0F;
      if (tile < sequence_tiles_) bias = shared_.bias[sequence_.channel];
#pragma unroll
      for (int k = 0; k < 8; ++k) delta[k] += bias;
    } else {
      float bias[8];
      load_vectors(bias, shared_.bias + sequence_.channel);
      const float beyond = args_.delta_softplus ? -INFINITY : 0.0F;
#pragma unroll
      for (int k = 0; k < 8; ++k) delta[k] += tile < sequence_tiles_ ? bias[k] : beyond;
    }
    if (args_.delta_softplus) {
#pragma unroll
      for (int k = 0; k < 8; ++k) delta[k] = fast_softplus(delta[k]);
    }
    unpack(sequence_elements(Layout::u_at(tile)), gain, dtype_);
#pragma unroll
    for (int k = 0; k < 8; ++k) gain[k] *= kTakesGain ? delta[k] : 0.5F;
    if (stages_projections_) stage_projections(tile);
    float* const steps = sequences(tile) + Map::step_at(sequence_.channel, sequence_.step);
    if constexpr (kAlongTime) {
#pragma unroll
      for (int k = 0; k < 8; k += 2)
        store_vector(steps + 2 * k, delta[k], gain[k], delta[k + 1], gain[k + 1]);
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k) store_half_vector(steps + k * Map::kPitch, delta[k], gain[k]);
    }
  }

  /// out = (y + D·u)·silu(z) of `tile`, y the sum of the partial sums that the consumers have left.
  __device__ void finish(int tile) {
    float y[8];
    add_partials(sequences(tile), y);
    if constexpr (Map::kStateFloats == 2) {
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] *= kOutputFactor<Complex>;
    }
    if constexpr (Map::kRounds)
      if (sums_ != nullptr && !add_round(y)) return;
    if (args_.D != nullptr) {
      float values[8];
      unpack(sequence_elements(Layout::u_at(tile)), values, dtype_);
      float D[8];
      if constexpr (!kAlongTime) load_vectors(D, shared_.D + sequence_.channel);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] += (kAlongTime ? shared_.D[sequence_.channel] : D[k]) * values[k];
    }
    if (args_.z != nullptr) {
      float values[8];
      unpack(sequence_elements(Layout::z_at(tile)), values, dtype_);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] *= fast_silu(values[k]);
    }
    if (tile < sequence_tiles_) store_elements(out_, pack<Io>(y, dtype_));
    out_ += Map::kSteps * args_.sequence.time;
  }

 private:
  using Coordinates = ProjectionCoordinates<Map, kAlongTime>;
  using Stored = std::conditional_t<Map::kStateFloats == 2, float, Io>;  ///< of B and C, or half of one
  static constexpr int kStagedProjections = pass == Pass::states ? 1 : Coordinates::kProjections;

  __device__ float* sequences(int tile) const {
    return shared_.sequences + tile % 2 * Map::kSequenceFloats;
  }

  /// 8 elements of a raw tile, from `byte` of `row` on.
  template <class Element, class Tile>
  __device__ static Elements8<Element> elements_at(const char* raw, int row, int byte) {
    Elements8<Element> elements;
#pragma unroll
    for (int i = 0; i < Elements8<Element>::kVectors; ++i)
      elements.vectors[i] = *reinterpret_cast<const uint4*>(raw + Tile::at(row, byte + 16 * i));
    return elements;
  }
  __device__ Elements8<Io> sequence_elements(int tile_at) const {
    const int row = kAlongTime ? sequence_.channel : sequence_.step;
    const int along = kAlongTime ? sequence_.step : sequence_.channel;
    return elements_at<Io, typename Layout::template Sequence<kAlongTime>>(
        shared_.raw + tile_at, row, along * static_cast<int>(sizeof(Io)));
  }
  /// Its items of B, of C or of both. States that do not exist may lie in another group's row.
  __device__ void stage_projections(int tile) const {
    float* const to = shared_.projections + tile % 2 * (2 * Map::kProjectionFloats);
#pragma unroll
    for (int i = 0; i < kStagedProjections * Coordinates::kItems; ++i) {
      const int which = which_ + i / Coordinates::kItems;
      const int step = projection_.step + i % Coordinates::kItems * Coordinates::kStepsApart;
      Elements8<Stored> elements{};
      if (has_states_)
        elements = elements_at<Stored, typename Layout::template Projection<kAlongTime>>(
            shared_.raw_projections + Layout::projection_at(0, tile) + which * Layout::kProjectionBytes,
            kAlongTime ? projection_.state : step,
            (kAlongTime ? step : projection_.state) * Map::kStateFloats * static_cast<int>(sizeof(Stored)));
      stage_projection<Map, kAlongTime>(to + which * Map::kProjectionFloats +
                                            Map::projection_at(step, projection_.state * Map::kStateFloats),
                                        elements, dtype_);
    }
  }
  /// Adds y of the rounds before. Hands it on, and returns false, but in the last round.
  __device__ bool add_round(float (&y)[8]) {
    if (round_.first > 0) {
      float before[8];
      load_vectors(before, sums_);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] += before[k];
    }
    if (!round_.last) store_vectors(sums_, y);
    sums_ += 8 * kProducerThreads;
    return round_.last;
  }
  __device__ void add_partials(const float* tile, float (&y)[8]) const {
#pragma unroll
    for (int partial = 0; partial < Map::kPartials; ++partial) {
      float values[8];
      const float* const from = tile + Map::partial_at(partial, sequence_.channel, sequence_.step);
      if constexpr (kAlongTime) {
        load_vectors(values, from);
      } else {
#pragma unroll
        for (int k = 0; k < 8; ++k) values[k] = from[k * Map::kPitch];
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] = partial == 0 ? values[k] : y[k] + values[k];
    }
  }

  const ScanArgs& args_;
  const StateRound& round_;
  const DType dtype_;
  const SharedTiles<Map, Layout>& shared_;
  const SequenceCoordinates<Map, kAlongTime, sizeof(Io)> sequence_;
  const Coordinates projection_;
  const int which_;  ///< 0 where it stages B, or B and C; 1: C
  const bool stages_projections_, has_states_;
  const int sequence_tiles_;  ///< tiles in which its elements of sequences exist
  Io* out_;                   ///< of the tile that is finished next
  float* sums_;               ///< of that tile, where there are several rounds
};

/// What a producer thread does. Before the barrier after which `tile` is scanned, it finishes the last but
/// one and stages `tile` in its slot; after it one thread refills the ring slots that have been read. Where
/// there are no outputs there is nothing to finish.
template <class Map, class Io, bool kTakesGain, bool kAlongTime, Pass pass, class Layout>
__device__ void produce(const ScanArgs& args, const TensorMaps& maps, const ChannelSlice& slice,
                        const StateRound& round, const SharedTiles<Map, Layout>& shared, int thread) {
  Producer<Map, Io, kTakesGain, kAlongTime, pass> producer(args, slice, round, shared, maps.dtype, thread);
  const int tiles = static_cast<int>(ceil_div(slice.steps, Map::kSteps));
  const int turns = tiles + (pass == Pass::states ? 1 : 2);
  const auto load = [&](int tile) {
    if (thread == 0 && tile < turns)
      load_tile<Map, Layout, kAlongTime, pass>(args, maps, slice, round, shared, tile);
  };
  for (int tile = 0; tile < Layout::kDepth; ++tile) load(tile);
#pragma unroll 1  // twice the code would leave less of the instruction cache to the consumers
  for (int tile = 0; tile < turns; ++tile) {
    producer.wait(tile);
    if constexpr (pass != Pass::states) {
      if (tile >= 2) {
        producer.finish(tile - 2);
        __syncwarp();  // other threads of the warp have read what it writes
      }
    }
    if (tile < tiles) producer.stage(tile);
    if (tile <= tiles) block_barrier();
    load(tile + Layout::kDepth);
  }
}

}  // namespace ssmbench::fused
