#pragma once

// What the helpers of cuda-fused's fast kernel do (fused_rows_kernel.cuh): load and stage tiles ahead of the
// scan, and finish those that it has left.

#include "kernels/common/io_types.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/fused_rows_map.h"
#include "kernels/selective_scan/fused_rows_math.h"
#include "kernels/selective_scan/fused_rows_octet.cuh"

namespace ssmbench::rows {

/// What a block works on.
struct RowsBlock {
  std::int64_t b, g, first;  ///< batch, group, first channel
  int count;                 ///< channels that exist
};

template <class Map>
__device__ RowsBlock rows_block(const ScanArgs& args, std::int64_t blocks_per_group) {
  // There are fewer than 2^31 blocks; a division of 64 bits takes a hundred instructions.
  const unsigned pair = blockIdx.x / static_cast<unsigned>(blocks_per_group);
  const std::int64_t first = (blockIdx.x - pair * blocks_per_group) * Map::kChannels;
  const std::int64_t b = pair / static_cast<unsigned>(args.groups);
  const std::int64_t g = pair - b * args.groups;
  return {b, g, g * args.channels_per_group + first,
          steps_within(first, Map::kChannels, args.channels_per_group)};
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

/// __syncthreads() for scanners and helpers, which wait in loops of their own, where that must not stand.
__device__ inline void tile_barrier() {
  asm volatile("bar.sync 0;" ::: "memory");
}

/// A block's shared memory.
template <class Map>
struct RowsShared {
  __device__ explicit RowsShared(float4* shared)
      : tiles(reinterpret_cast<float*>(shared)),
        bias(tiles + 2 * Map::kTileFloats),
        D(bias + Map::kChannels) {}

  float *tiles, *bias, *D;
};

/// One of a block's helpers. Its octet of each sequence is at the same place in each tile.
template <class Map, class Io, bool kTakesGain, bool kAlongTime>
class RowsHelper {
 public:
  __device__ RowsHelper(const ScanArgs& args, const RowsBlock& block, const RowsShared<Map>& shared,
                        int group, int thread)
      : args_(args),
        shared_(shared),
        sequence_(thread),
        sequence_tiles_(sequence_.channel < block.count ? tiles_past(sequence_.step) : 0),
        sequence_at_(block.b * args.sequence.batch + (block.first + sequence_.channel) * args.sequence.dim +
                     (sequence_.step + group * Map::kSteps) * args.sequence.time) {
    const Place place(thread);
    const int first = thread / Place::kThreads;  // B or C
    stages_projections_ = first + Place::kProjections <= 2;
    staged_at_ =
        Map::kSequenceFloats + first * Map::kProjectionFloats + Map::projection_at(place.step, place.state);
#pragma unroll
    for (int i = 0; i < kOctets; ++i) {
      const bool is_c = first + i / Place::kOctets == 1;
      const int step = place.step + i % Place::kOctets * Place::kStepsApart;
      const ProjectionStrides& strides = is_c ? args.c_strides : args.b_strides;
      projection_tiles_[i] = stages_projections_ && place.state < args.dstate ? tiles_past(step) : 0;
      projection_from_[i] = static_cast<const Io*>(is_c ? args.C : args.B) + block.b * strides.batch +
                            block.g * strides.group + place.state * strides.state +
                            (step + group * Map::kSteps) * strides.time;
      projection_apart_[i] = Map::kGroups * Map::kSteps * strides.time;
    }
  }

  /// Loads what stage() takes of the next tile, zeros past the end.
  __device__ void load(int tile) {
    const bool exists = tile < sequence_tiles_;
    delta_ = load_octet(static_cast<const Io*>(args_.delta) + sequence_at_, exists);
    u_ = load_octet(static_cast<const Io*>(args_.u) + sequence_at_, exists);
    sequence_at_ += Map::kGroups * sequence_apart();
#pragma unroll
    for (int i = 0; i < kOctets; ++i) {
      octets_[i] = load_octet(projection_from_[i], tile < projection_tiles_[i]);
      projection_from_[i] += projection_apart_[i];
    }
  }

  /// {Δ, Δ·u}, B and C of the tile that was loaded. Steps past the end become zeros, which leave states as
  /// they are.
  __device__ void stage(float* to, int tile) const {
    if (stages_projections_) {
#pragma unroll
      for (int i = 0; i < kOctets; ++i)
        stage_projection<Map, kAlongTime>(to + staged_at_ + i / Place::kOctets * Map::kProjectionFloats +
                                              Map::projection_at(i % Place::kOctets * Place::kStepsApart, 0),
                                          octets_[i]);
    }
    float delta[8], second[8];
    convert(delta_, delta);
#pragma unroll
    for (int k = 0; k < 8; ++k) delta[k] += shared_.bias[channel(k)];
    if (args_.delta_softplus) {
#pragma unroll
      for (int k = 0; k < 8; ++k) delta[k] = fast_softplus(delta[k]);
    }
    convert(u_, second);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (tile >= sequence_tiles_) delta[k] = 0;  // softplus(bias) is not 0
      if constexpr (kTakesGain) second[k] *= delta[k];
    }
    float* const steps = to + Map::step_at(sequence_.channel, sequence_.step);
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

  /// Loads what finish() takes of `tile`, which lies `back` tiles before the one that is loaded next.
  __device__ void load_to_finish(int tile, int back) {
    const bool exists = tile < sequence_tiles_;
    const std::int64_t at = sequence_at_ - back * sequence_apart();
    u_to_finish_ = load_octet(static_cast<const Io*>(args_.u) + at, exists && args_.D != nullptr);
    z_ = load_octet(static_cast<const Io*>(args_.z) + at, exists && args_.z != nullptr);
  }

  /// Adds the parts of y that the scan has left.
  __device__ void add_parts(const float* tile) {
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
      for (int k = 0; k < 8; ++k) y_[k] = part == 0 ? values[k] : y_[k] + values[k];
    }
  }

  /// out = (y + D·u)·silu(z) of `tile`, `back` tiles before the one that is loaded next.
  __device__ void finish(int tile, int back) {
    if (args_.D != nullptr) {
      float values[8];
      convert(u_to_finish_, values);
#pragma unroll
      for (int k = 0; k < 8; ++k) y_[k] += shared_.D[channel(k)] * values[k];
    }
    if (args_.z != nullptr) {
      float values[8];
      convert(z_, values);
#pragma unroll
      for (int k = 0; k < 8; ++k) y_[k] *= fast_silu(values[k]);
    }
    if (tile < sequence_tiles_)
      store_octet(static_cast<Io*>(args_.out) + sequence_at_ - back * sequence_apart(), octet_of<Io>(y_));
  }

 private:
  using Place = ProjectionPlace<Map, kAlongTime>;
  static constexpr int kOctets = Place::kProjections * Place::kOctets;

  /// Tiles in which a step exists that is the `step`-th of the first one.
  __device__ int tiles_past(int step) const {
    return step < args_.seqlen ? static_cast<int>(ceil_div(args_.seqlen - step, Map::kSteps)) : 0;
  }
  __device__ std::int64_t sequence_apart() const {
    return Map::kSteps * args_.sequence.time;
  }
  /// The channel of the k-th element of its octets.
  __device__ int channel(int k) const {
    return kAlongTime ? sequence_.channel : sequence_.channel + k;
  }

  const ScanArgs& args_;
  const RowsShared<Map>& shared_;
  const SequencePlace<Map, kAlongTime> sequence_;
  const int sequence_tiles_;
  std::int64_t sequence_at_;  ///< its octet in the tile that is loaded next
  bool stages_projections_;
  int staged_at_;
  int projection_tiles_[kOctets];
  const Io* projection_from_[kOctets];
  std::int64_t projection_apart_[kOctets];

  Octet<Io> delta_, u_, octets_[kOctets];  ///< to stage
  Octet<Io> u_to_finish_, z_;
  float y_[8];
};

}  // namespace ssmbench::rows
