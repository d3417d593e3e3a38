#pragma once

#include <cstdint>

#include "kernels/common/activations.h"
#include "kernels/common/complex.h"
#include "kernels/common/host_device.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/block_channels.h"
#include "kernels/selective_scan/fused_general/map.h"
#include "kernels/selective_scan/fused_general/tile_walk.h"
#include "kernels/selective_scan/states.cuh"

// Tiles of time steps in shared memory, for kernels that are sequential in time with channels across threads:
// what is loaded before a tile is scanned and written after it. GeneralPlan
// says how large they are; values of states are float, or Complex.

namespace ssmbench::fused_general {

SSMBENCH_HD inline std::int64_t blocks_of(const ScanArgs& args, const GeneralPlan& plan) {
  return args.batch * args.groups * plan.blocks_per_group;
}

/// Shared memory of a block, laid out as the plan says: B and C as [step][state], u, Δ and y as
/// [channel][step].
template <class Value>
struct Tiles {
  Value* B;
  Value* C;
  float* u;
  float* delta;
  float* y;

  __device__ Tiles(float4* shared, const GeneralPlan& plan)
      : B(reinterpret_cast<Value*>(shared)),
        C(B + plan.operand_values()),
        u(reinterpret_cast<float*>(C + plan.operand_values())),
        delta(u + plan.sequence_floats()),
        y(delta + plan.sequence_floats()) {}
};

/// Starts to stage B or C of one group from time `start` on; zero in the states past dstate and the steps
/// past `valid`. Stored is the type in memory: the io dtype, or Complex, which is copied and has to be waited
/// for.
template <class Stored, class Value>
__device__ void stage_projection(Value* tile, const void* source, const ProjectionStrides& strides,
                                 const BlockChannels& block, std::int64_t start, int valid,
                                 std::int64_t dstate, const GeneralPlan& plan) {
  const Stored* origin = static_cast<const Stored*>(source) + block.b * strides.batch +
                         block.g * strides.group + start * strides.time;
  const Axis states{plan.states_log2(), static_cast<int>(dstate), strides.state, 1};
  const Axis steps{plan.steps_log2, valid, strides.time, plan.projection_pitch()};
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (std::is_same_v<Stored, Complex>)
    stage(
        states, steps, thread, plan.threads(), [](const TileElement& /*at*/) { return 0; },
        [&](const TileElement& at, int /*loaded*/) {
          copy_async_8(shared_address(tile + at.in_tile), origin + (at.exists ? at.offset : 0),
                       at.exists ? 8 : 0);
        });
  else
    stage(
        states, steps, thread, plan.threads(),
        [&](const TileElement& at) { return at.exists ? to_value(origin[at.offset]) : Value{}; },
        [&](const TileElement& at, Value value) { tile[at.in_tile] = value; });
}

__device__ inline Axis channel_axis(const ScanArgs& args, const BlockChannels& block,
                                    const GeneralPlan& plan) {
  return {plan.channels_log2, block.count, args.sequence.dim, plan.sequence_pitch()};
}
__device__ inline Axis time_axis(const ScanArgs& args, int valid, const GeneralPlan& plan) {
  return {plan.steps_log2, valid, args.sequence.time, 1};
}

/// u and Δ; zero in the channels past the group's end and the steps past `valid`, which then change no state.
template <class Io, class Value>
__device__ void stage_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                std::int64_t origin, int valid, const GeneralPlan& plan) {
  struct Loaded {
    float u, delta, bias;
  };
  const Io* u = static_cast<const Io*>(args.u) + origin;
  const Io* delta = static_cast<const Io*>(args.delta) + origin;
  stage(
      channel_axis(args, block, plan), time_axis(args, valid, plan), static_cast<int>(threadIdx.x),
      plan.threads(),
      [&](const TileElement& at) {
        const bool has_bias = at.exists && args.delta_bias != nullptr;
        return Loaded{at.exists ? to_float(u[at.offset]) : 0.0F,
                      at.exists ? to_float(delta[at.offset]) : 0.0F,
                      has_bias ? args.delta_bias[block.first + at.row] : 0.0F};
      },
      [&](const TileElement& at, const Loaded& loaded) {
        float step = loaded.delta + loaded.bias;
        if (args.delta_softplus) step = fast_softplus(step);
        tiles.u[at.in_tile] = loaded.u;
        tiles.delta[at.in_tile] = at.exists ? step : 0.0F;
      });
}

/// out = (y + D·u)·silu(z), y the sum of its partial sums.
template <class Io, class Value>
__device__ void finish_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                 std::int64_t origin, int valid, const GeneralPlan& plan) {
  struct Loaded {
    float z, D;
  };
  const Io* z = static_cast<const Io*>(args.z) + origin;
  Io* out = static_cast<Io*>(args.out) + origin;
  stage(
      channel_axis(args, block, plan), time_axis(args, valid, plan), static_cast<int>(threadIdx.x),
      plan.threads(),
      [&](const TileElement& at) {
        return Loaded{at.exists && args.z != nullptr ? to_float(z[at.offset]) : 0.0F,
                      at.exists && args.D != nullptr ? args.D[block.first + at.row] : 0.0F};
      },
      [&](const TileElement& at, const Loaded& loaded) {
        if (!at.exists) return;
        float y = tiles.y[at.in_tile];
        for (int partial = 1; partial < plan.partials(); ++partial)
          y += tiles.y[partial * plan.sequence_floats() + at.in_tile];
        y *= kOutputFactor<Value>;
        if (args.D != nullptr) y += loaded.D * tiles.u[at.in_tile];
        if (args.z != nullptr) y *= fast_silu(loaded.z);
        out[at.offset] = from_float<Io>(y);
      });
}

}  // namespace ssmbench::fused_general
