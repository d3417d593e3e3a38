#pragma once

// What the helpers of cuda-fused's fast kernel do (fused_rows_kernel.cuh): have tiles copied and stage them
// ahead of the scan, and finish those that it has left.

#include "kernels/common/fast_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/tile_copy.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/fused/map.h"

namespace ssmbench::rows {

/// What a team works on.
struct RowsTeam {
  int index;                 ///< in its block
  std::int64_t b, g, first;  ///< batch, group, first channel
  int count;                 ///< channels that exist
};

template <class Map>
__device__ RowsTeam rows_team(const ScanArgs& args, std::int64_t blocks_per_group, int teams, int index) {
  // There are fewer than 2^31 blocks; a division of 64 bits takes a hundred instructions.
  const unsigned pair = blockIdx.x / static_cast<unsigned>(blocks_per_group);
  const std::int64_t block = blockIdx.x - pair * blocks_per_group;
  const std::int64_t first = (block * teams + index) * Map::kChannels;
  const std::int64_t b = pair / static_cast<unsigned>(args.groups);
  const std::int64_t g = pair - b * args.groups;
  return {index, b, g, g * args.channels_per_group + first,
          first < args.channels_per_group ? steps_within(first, Map::kChannels, args.channels_per_group) : 0};
}

/// B or C of 8 steps or states in f32, the first of which lies at `to`.
template <class Map, bool kAlongTime, class Io>
__device__ void stage_projection(float* to, const Octet<Io>& octet) {
  constexpr int kVector = kAlongTime ? 1 : Map::kStates;  // neighbours in the tile
  float values[8];
  convert(octet, values);
#pragma unroll
  for (int k = 0; k < 8; k += kVector) {
    float* const at = to + (kAlongTime ? Map::projection_at(k, 0) : Map::projection_at(0, k));
    if constexpr (kVector == 4)
      *reinterpret_cast<float4*>(at) = float4{values[k], values[k + 1], values[k + 2], values[k + 3]};
    else if constexpr (kVector == 2)
      *reinterpret_cast<float2*>(at) = float2{values[k], values[k + 1]};
    else
      *at = values[k];
  }
}

/// What a team sees of its block's shared memory. Of tiles in f32 there are two: `tile` % 2 is the place.
template <class Map, class Memory>
struct RowsShared {
  __device__ RowsShared(float4* shared, int team)
      : raw_projections(reinterpret_cast<char*>(shared)),
        projections(reinterpret_cast<float*>(raw_projections + Memory::kCommonRawBytes)),
        arrived(reinterpret_cast<TileBarrier*>(projections + Memory::kCommonFloats)),
        raw(raw_projections + Memory::kCommonBytes + team * Memory::kTeamBytes),
        sequences(reinterpret_cast<float*>(raw + Memory::kTeamRawBytes)),
        bias(sequences + 2 * Map::kSequenceFloats),
        D(bias + Map::kChannels) {}

  char* raw_projections;
  float* projections;
  TileBarrier* arrived;  ///< of the copies of tiles that are kAhead apart

  // The team's own.
  char* raw;
  float *sequences, *bias, *D;
};

/// What is copied by tiles.
struct RowsMaps {
  CUtensorMap u, z, delta, B, C;
};

/// `z` is that of u where there is none.
template <class Memory>
RowsMaps rows_maps(const ScanArgs& args, bool along_time) {
  constexpr int element_bytes = Memory::kElementBytes;
  const auto map_tiles = [&]<class Tile>(const Tile&, const void* data, std::int64_t rows, std::int64_t z) {
    const std::int64_t x = along_time ? args.seqlen : rows;
    const std::int64_t y = along_time ? rows : args.seqlen;
    return map_of({.data = data,
                   .element_bytes = element_bytes,
                   .x = static_cast<std::uint64_t>(x),
                   .y = static_cast<std::uint64_t>(y),
                   .z = static_cast<std::uint64_t>(z),
                   .tile_x = static_cast<unsigned>(Tile::kCopyRow / element_bytes),
                   .tile_y = Tile::kRows,
                   .swizzle = Tile::kCopyRow == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                              : Tile::kCopyRow == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                     : CU_TENSOR_MAP_SWIZZLE_32B});
  };
  const auto sequence = [&](const void* data) {
    return map_tiles(typename Memory::Sequence(), data, args.dim, args.batch);
  };
  // Groups of states are rows of their own, or parts of a row.
  const auto projection = [&](const void* data) {
    return along_time ? map_tiles(typename Memory::Projection(), data, args.dstate, args.batch * args.groups)
                      : map_tiles(typename Memory::Projection(), data, args.groups * args.dstate, args.batch);
  };
  return {sequence(args.u), sequence(args.z == nullptr ? args.u : args.z), sequence(args.delta),
          projection(args.B), projection(args.C)};
}

/// One thread of each team: starts to copy what stage() takes of `tile`, and finish() of the last but one.
template <class Map, class Memory, bool kAlongTime>
__device__ void copy_tile(const ScanArgs& args, const RowsMaps& maps, const RowsTeam& team,
                          const RowsShared<Map, Memory>& shared, int tile) {
  using Sequence = typename Memory::Sequence;
  using Projection = typename Memory::Projection;
  const bool exists = tile < ceil_div(args.seqlen, Map::kSteps);
  const bool finishes = tile >= 2 && args.z != nullptr;
  TileBarrier* const arrived = shared.arrived + tile % Memory::kAhead;
  expect_tiles(arrived, (exists ? 2 * (Sequence::kBytes + (team.index == 0 ? Projection::kBytes : 0)) : 0) +
                            (finishes ? Sequence::kBytes : 0));
  const auto copy = [&]<class Tile>(const Tile&, const CUtensorMap& map, char* to, int of, int across,
                                    int z) {
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      const int along = i * Tile::kCopyRow / Memory::kElementBytes;
      const int time = of * Map::kSteps;
      load_tile(to + i * Tile::kCopyBytes, map, kAlongTime ? time + along : across + along,
                kAlongTime ? across : time, z, arrived);
    }
  };
  const int first = static_cast<int>(team.first);
  const int b = static_cast<int>(team.b);
  if (exists) {
    copy(Sequence(), maps.delta, shared.raw + Memory::delta_at(tile), tile, first, b);
    copy(Sequence(), maps.u, shared.raw + Memory::u_at(tile), tile, first, b);
  }
  if (exists && team.index == 0) {
    const int state = kAlongTime ? 0 : static_cast<int>(team.g * args.dstate);
    const int z = kAlongTime ? static_cast<int>(team.b * args.groups + team.g) : b;
    copy(Projection(), maps.B, shared.raw_projections + Memory::projection_at(0, tile), tile, state, z);
    copy(Projection(), maps.C, shared.raw_projections + Memory::projection_at(1, tile), tile, state, z);
  }
  if (finishes) copy(Sequence(), maps.z, shared.raw + Memory::z_at(tile - 2), tile - 2, first, b);
}

/// One of a team's helpers. Its octet of each sequence is at the same place in each tile.
template <class Map, class Io, bool kTakesGain, bool kAlongTime>
class RowsHelper {
 public:
  using Memory = RowsMemory<Map, kAlongTime, sizeof(Io)>;

  __device__ RowsHelper(const ScanArgs& args, const RowsTeam& team, const RowsShared<Map, Memory>& shared,
                        int thread)
      : args_(args),
        shared_(shared),
        sequence_(thread),
        place_(thread),
        which_(thread / Place::kThreads),
        stages_projections_(team.index == 0 && which_ + Place::kProjections <= 2),
        has_states_(place_.state < args.dstate),
        sequence_tiles_(sequence_.channel < team.count && sequence_.step < args.seqlen
                            ? static_cast<int>(ceil_div(args.seqlen - sequence_.step, Map::kSteps))
                            : 0),
        out_(static_cast<Io*>(args.out) + team.b * args.sequence.batch +
             (team.first + sequence_.channel) * args.sequence.dim + sequence_.step * args.sequence.time) {}

  /// Waits for what copy_tile has started for `tile`.
  __device__ void wait(int tile) const {
    wait_tiles(shared_.arrived + tile % Memory::kAhead, tile / Memory::kAhead % 2);
  }

  /// {Δ, Δ·u} (or {Δ, u/2}), B and C of `tile`. Steps past the end become zeros, which leave states as they
  /// are.
  __device__ void stage(int tile) const {
    float delta[8], second[8];
    convert(sequence_octet(Memory::delta_at(tile)), delta);
    // Past the end delta and u are 0, but softplus(bias) is not.
    float bias = args_.delta_softplus ? -INFINITY : 0.0F;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if ((!kAlongTime || k == 0) && tile < sequence_tiles_) bias = shared_.bias[channel(k)];
      delta[k] += bias;
    }
    if (args_.delta_softplus) {
#pragma unroll
      for (int k = 0; k < 8; ++k) delta[k] = fast_softplus(delta[k]);
    }
    convert(sequence_octet(Memory::u_at(tile)), second);
#pragma unroll
    for (int k = 0; k < 8; ++k) second[k] *= kTakesGain ? delta[k] : 0.5F;
    if (stages_projections_) stage_projections(tile);
    float* const steps = sequences(tile) + Map::step_at(sequence_.channel, sequence_.step);
    if constexpr (kAlongTime) {
#pragma unroll
      for (int k = 0; k < 8; k += 2)
        *reinterpret_cast<float4*>(steps + 2 * k) = float4{delta[k], second[k], delta[k + 1], second[k + 1]};
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k)
        *reinterpret_cast<float2*>(steps + k * Map::kPitch) = float2{delta[k], second[k]};
    }
  }

  /// out = (y + D·u)·silu(z) of `tile`, y the sum of the parts that the scan has left.
  __device__ void finish(int tile) {
    float y[8];
    add_parts(sequences(tile), y);
    if (args_.D != nullptr) {
      float values[8];
      convert(sequence_octet(Memory::u_at(tile)), values);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] += shared_.D[channel(k)] * values[k];
    }
    if (args_.z != nullptr) {
      float values[8];
      convert(sequence_octet(Memory::z_at(tile)), values);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] *= fast_silu(values[k]);
    }
    if (tile < sequence_tiles_) store_octet(out_, octet_of<Io>(y));
    out_ += Map::kSteps * args_.sequence.time;
  }

 private:
  using Place = ProjectionPlace<Map, kAlongTime>;

  __device__ float* sequences(int tile) const {
    return shared_.sequences + tile % 2 * Map::kSequenceFloats;
  }

  /// The octet of which `byte` of `row` of a raw tile is the first one.
  template <class Tile>
  __device__ static Octet<Io> octet_at(const char* raw, int row, int byte) {
    Octet<Io> octet;
#pragma unroll
    for (int i = 0; i < Octet<Io>::kPieces; ++i)
      octet.pieces[i] = *reinterpret_cast<const uint4*>(raw + Tile::at(row, byte + 16 * i));
    return octet;
  }
  __device__ Octet<Io> sequence_octet(int tile_at) const {
    const int row = kAlongTime ? sequence_.channel : sequence_.step;
    const int along = kAlongTime ? sequence_.step : sequence_.channel;
    return octet_at<typename Memory::Sequence>(shared_.raw + tile_at, row,
                                               along * static_cast<int>(sizeof(Io)));
  }
  /// Its octets of B, of C or of both. States that do not exist may lie in another group's row.
  __device__ void stage_projections(int tile) const {
    float* const to = shared_.projections + tile % 2 * (2 * Map::kProjectionFloats);
#pragma unroll
    for (int i = 0; i < Place::kProjections * Place::kOctets; ++i) {
      const int which = which_ + i / Place::kOctets;
      const int step = place_.step + i % Place::kOctets * Place::kStepsApart;
      Octet<Io> octet{};
      if (has_states_)
        octet = octet_at<typename Memory::Projection>(
            shared_.raw_projections + Memory::projection_at(0, tile) + which * Memory::Projection::kBytes,
            kAlongTime ? place_.state : step,
            (kAlongTime ? step : place_.state) * static_cast<int>(sizeof(Io)));
      stage_projection<Map, kAlongTime>(
          to + which * Map::kProjectionFloats + Map::projection_at(step, place_.state), octet);
    }
  }
  __device__ void add_parts(const float* tile, float (&y)[8]) const {
#pragma unroll
    for (int part = 0; part < Map::kParts; ++part) {
      float values[8];
      const float* const from = tile + Map::part_at(part, sequence_.channel, sequence_.step);
      if constexpr (kAlongTime) {
        reinterpret_cast<float4*>(values)[0] = reinterpret_cast<const float4*>(from)[0];
        reinterpret_cast<float4*>(values)[1] = reinterpret_cast<const float4*>(from)[1];
      } else {
#pragma unroll
        for (int k = 0; k < 8; ++k) values[k] = from[k * Map::kPitch];
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] = part == 0 ? values[k] : y[k] + values[k];
    }
  }
  /// The channel of the k-th element of its octets.
  __device__ int channel(int k) const {
    return kAlongTime ? sequence_.channel : sequence_.channel + k;
  }

  const ScanArgs& args_;
  const RowsShared<Map, Memory>& shared_;
  const SequencePlace<Map, kAlongTime, sizeof(Io)> sequence_;
  const Place place_;
  const int which_;  ///< 0 where it stages B, or B and C; 1: C
  const bool stages_projections_, has_states_;
  const int sequence_tiles_;  ///< tiles in which its octets of sequences exist
  Io* out_;                   ///< where the next one to be finished goes
};

}  // namespace ssmbench::rows
