#pragma once

#include <optional>
#include <string>

#include "kernels/common/complex.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/block_channels.h"
#include "kernels/selective_scan/fused_general/tile_walk.h"

// Tiles of time steps in shared memory, for kernels that are sequential in time with channels across threads:
// what is loaded before a tile is scanned and written after it. A plan (sequential_map.h, fused_map.h) says
// how large they are; values of states are float, or Complex.

namespace ssmbench::staged {

/// Why a grid cannot have a block for each of the plan's; nothing when it can.
template <class Plan>
std::optional<std::string> too_many_blocks(const SelectiveScan& scan, const Plan& plan) {
  if (scan.batch <= kMaxGridX / (scan.groups * plan.blocks_per_group)) return std::nullopt;
  return "needs at most 2147483647 blocks: one per batch and " + std::to_string(plan.channels()) +
         " channels";
}

template <class Plan>
std::int64_t blocks_of(const ScanArgs& args, const Plan& plan) {
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

  template <class Plan>
  __device__ Tiles(float4* shared, const Plan& plan)
      : B(reinterpret_cast<Value*>(shared)),
        C(B + plan.projection_values()),
        u(reinterpret_cast<float*>(C + plan.projection_values())),
        delta(u + plan.sequence_floats()),
        y(delta + plan.sequence_floats()) {}
};

__device__ inline Complex to_float(Complex x) {
  return x;
}
using ssmbench::to_float;

/// B or C of one group from time `start` on; zero in the states past dstate and the steps past `valid`.
/// Stored is the type in memory: the io dtype, or Complex.
template <class Stored, class Value, class Plan>
__device__ void stage_projection(Value* tile, const void* source, const ProjectionStrides& strides,
                                 const BlockChannels& block, std::int64_t start, int valid,
                                 std::int64_t dstate, const Plan& plan) {
  const Stored* origin = static_cast<const Stored*>(source) + block.b * strides.batch +
                         block.g * strides.group + start * strides.time;
  stage(
      Axis{plan.states_log2(), static_cast<int>(dstate), strides.state, 1},
      Axis{plan.steps_log2, valid, strides.time, plan.projection_pitch()}, static_cast<int>(threadIdx.x),
      plan.threads(), [&](const Place& at) { return at.exists ? to_float(origin[at.offset]) : Value{}; },
      [&](const Place& at, Value value) { tile[at.in_tile] = value; });
}

template <class Plan>
__device__ Axis channel_axis(const ScanArgs& args, const BlockChannels& block, const Plan& plan) {
  return {plan.channels_log2, block.count, args.sequence.dim, plan.sequence_pitch()};
}
template <class Plan>
__device__ Axis time_axis(const ScanArgs& args, int valid, const Plan& plan) {
  return {plan.steps_log2, valid, args.sequence.time, 1};
}

/// u and Δ; zero in the channels past the group's end and the steps past `valid`, which then change no state.
template <class Io, class Value, class Plan>
__device__ void stage_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                std::int64_t origin, int valid, const Plan& plan) {
  struct Loaded {
    float u, delta, bias;
  };
  const Io* u = static_cast<const Io*>(args.u) + origin;
  const Io* delta = static_cast<const Io*>(args.delta) + origin;
  stage(
      channel_axis(args, block, plan), time_axis(args, valid, plan), static_cast<int>(threadIdx.x),
      plan.threads(),
      [&](const Place& at) {
        const bool has_bias = at.exists && args.delta_bias != nullptr;
        return Loaded{at.exists ? to_float(u[at.offset]) : 0.0F,
                      at.exists ? to_float(delta[at.offset]) : 0.0F,
                      has_bias ? args.delta_bias[block.first + at.row] : 0.0F};
      },
      [&](const Place& at, const Loaded& loaded) {
        float step = loaded.delta + loaded.bias;
        if (args.delta_softplus) step = softplus(step);
        tiles.u[at.in_tile] = loaded.u;
        tiles.delta[at.in_tile] = at.exists ? step : 0.0F;
      });
}

/// A thread's B or C from a [step][state] tile, by 16 bytes, to which the plan aligns them.
template <int kStates>
__device__ void load_states(float (&to)[kStates], const float* tile) {
#pragma unroll
  for (int s = 0; s < kStates; s += 4) {
    const float4 four = *reinterpret_cast<const float4*>(tile + s);
    to[s] = four.x;
    to[s + 1] = four.y;
    to[s + 2] = four.z;
    to[s + 3] = four.w;
  }
}
template <int kStates>
__device__ void load_states(Complex (&to)[kStates], const Complex* tile) {
#pragma unroll
  for (int s = 0; s < kStates; s += 2) {
    const float4 two = *reinterpret_cast<const float4*>(tile + s);
    to[s] = Complex{two.x, two.y};
    to[s + 1] = Complex{two.z, two.w};
  }
}

/// `count` of a thread's states from memory, zeros after them and where there is no memory.
template <class Value, int kStates>
__device__ void load_states(Value (&to)[kStates], const Value* memory, std::int64_t at, int count) {
#pragma unroll
  for (int s = 0; s < kStates; ++s) to[s] = memory != nullptr && s < count ? memory[at + s] : Value{};
}

/// out = (y + D·u)·silu(z), y the sum of its parts.
template <class Io, class Value, class Plan>
__device__ void finish_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                 std::int64_t origin, int valid, const Plan& plan) {
  struct Loaded {
    float z, D;
  };
  const Io* z = static_cast<const Io*>(args.z) + origin;
  Io* out = static_cast<Io*>(args.out) + origin;
  stage(
      channel_axis(args, block, plan), time_axis(args, valid, plan), static_cast<int>(threadIdx.x),
      plan.threads(),
      [&](const Place& at) {
        return Loaded{at.exists && args.z != nullptr ? to_float(z[at.offset]) : 0.0F,
                      at.exists && args.D != nullptr ? args.D[block.first + at.row] : 0.0F};
      },
      [&](const Place& at, const Loaded& loaded) {
        if (!at.exists) return;
        float y = tiles.y[at.in_tile];
        if (plan.parts() == 2) y += tiles.y[plan.sequence_floats() + at.in_tile];
        y *= kOutputFactor<Value>;
        if (args.D != nullptr) y += loaded.D * tiles.u[at.in_tile];
        if (args.z != nullptr) y *= silu(loaded.z);
        out[at.offset] = from_float<Io>(y);
      });
}

}  // namespace ssmbench::staged
