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
#include "kernels/selective_scan/io_dtype.cuh"
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
/// past `valid`. Complex values are copied, and have to be waited for.
template <class Value>
__device__ void stage_projection(Value* tile, const void* source, const ProjectionStrides& strides,
                                 const BlockChannels& block, std::int64_t start, int valid,
                                 std::int64_t dstate, const GeneralPlan& plan, DType io) {
  const std::int64_t first = block.b * strides.batch + block.g * strides.group + start * strides.time;
  [[maybe_unused]] const void* const origin = element_of(source, first, io);
  const Axis states{plan.states_log2(), static_cast<int>(dstate), strides.state, 1};
  const Axis steps{plan.steps_log2, valid, strides.time, plan.projection_pitch()};
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (std::is_same_v<Value, Complex>)
    stage(
        states, steps, thread, plan.threads(), [](const TileElement& /*at*/) { return 0; },
        [&](const TileElement& at, int /*loaded*/) {
          copy_async_8(shared_address(tile + at.in_tile),
                       static_cast<const Complex*>(source) + first + (at.exists ? at.offset : 0),
                       at.exists ? 8 : 0);
        });
  else
    stage(
        states, steps, thread, plan.threads(),
        [&](const TileElement& at) {
          return at.exists ? load_element(element_of(origin, at.offset, io), io) : 0;
        },
        [&](const TileElement& at, std::uint32_t bits) { tile[at.in_tile] = element_to_float(bits, io); });
}

__device__ inline Axis channel_axis(const ScanArgs& args, const BlockChannels& block,
                                    const GeneralPlan& plan) {
  return {plan.channels_log2, block.count, args.sequence.dim, plan.sequence_pitch()};
}
__device__ inline Axis time_axis(const ScanArgs& args, int valid, const GeneralPlan& plan) {
  return {plan.steps_log2, valid, args.sequence.time, 1};
}

/// u and Δ; zero in the channels past the group's end and the steps past `valid`, which then change no state.
template <class Value>
__device__ void stage_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                std::int64_t origin, int valid, const GeneralPlan& plan, DType io) {
  struct Loaded {
    std::uint32_t u, delta;
    float bias;
  };
  const void* const u = element_of(args.u, origin, io);
  const void* const delta = element_of(args.delta, origin, io);
  stage(
      channel_axis(args, block, plan), time_axis(args, valid, plan), static_cast<int>(threadIdx.x),
      plan.threads(),
      [&](const TileElement& at) {
        const bool has_bias = at.exists && args.delta_bias != nullptr;
        return Loaded{at.exists ? load_element(element_of(u, at.offset, io), io) : 0,
                      at.exists ? load_element(element_of(delta, at.offset, io), io) : 0,
                      has_bias ? args.delta_bias[block.first + at.row] : 0.0F};
      },
      [&](const TileElement& at, const Loaded& loaded) {
        float step = element_to_float(loaded.delta, io) + loaded.bias;
        if (args.delta_softplus) step = fast_softplus(step);
        tiles.u[at.in_tile] = element_to_float(loaded.u, io);
        tiles.delta[at.in_tile] = at.exists ? step : 0.0F;
      });
}

/// out = (y + D·u)·silu(z), y the sum of its partial sums.
template <class Value>
__device__ void finish_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                 std::int64_t origin, int valid, const GeneralPlan& plan, DType io) {
  struct Loaded {
    std::uint32_t z;
    float D;
  };
  const void* const z = element_of(args.z, origin, io);
  void* const out = element_of(args.out, origin, io);
  stage(
      channel_axis(args, block, plan), time_axis(args, valid, plan), static_cast<int>(threadIdx.x),
      plan.threads(),
      [&](const TileElement& at) {
        return Loaded{at.exists && args.z != nullptr ? load_element(element_of(z, at.offset, io), io) : 0,
                      at.exists && args.D != nullptr ? args.D[block.first + at.row] : 0.0F};
      },
      [&](const TileElement& at, const Loaded& loaded) {
        if (!at.exists) return;
        float y = tiles.y[at.in_tile];
        for (int partial = 1; partial < plan.partials(); ++partial)
          y += tiles.y[partial * plan.sequence_floats() + at.in_tile];
        y *= kOutputFactor<Value>;
        if (args.D != nullptr) y += loaded.D * tiles.u[at.in_tile];
        if (args.z != nullptr) y *= fast_silu(element_to_float(loaded.z, io));
        store_element(element_of(out, at.offset, io), y, io);
      });
}

}  // namespace ssmbench::fused_general
