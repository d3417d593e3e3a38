#pragma once

#include <optional>
#include <string>

#include "kernels/common/complex.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/sequential_map.h"

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

/// load(i) then store(i, …) for the thread's share of `count` elements, a power of two; a few loads are under
/// way at a time, since what staging waits for is the latency of memory.
template <class Load, class Store>
__device__ void stage(int count, int threads, const Load& load, const Store& store) {
  constexpr int kInFlight = 4;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kInFlight * threads) {
    decltype(load(first)) loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (first + k * threads < count) loaded[k] = load(first + k * threads);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (first + k * threads < count) store(first + k * threads, loaded[k]);
  }
}

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
  const auto element = [&](int i) {
    return tile_element(i, plan.states_log2(), plan.steps_log2, strides.time == 1);
  };
  stage(
      plan.states() * plan.steps(), plan.threads(),
      [&](int i) {
        const auto [n, t] = element(i);
        return n < dstate && t < valid ? to_float(origin[n * strides.state + t * strides.time]) : Value{};
      },
      [&](int i, Value value) {
        const auto [n, t] = element(i);
        tile[t * plan.projection_pitch() + n] = value;
      });
}

/// u and Δ; zero in the channels past the group's end and the steps past `valid`, which then change no state.
template <class Io, class Value, class Plan>
__device__ void stage_sequences(const Tiles<Value>& tiles, const ScanArgs& args, const BlockChannels& block,
                                std::int64_t origin, int valid, const Plan& plan) {
  struct Loaded {
    float u, delta;
  };
  const auto element = [&](int i) {
    return tile_element(i, plan.channels_log2, plan.steps_log2, args.sequence.time == 1);
  };
  stage(
      plan.channels() * plan.steps(), plan.threads(),
      [&](int i) {
        const auto [c, t] = element(i);
        if (c >= block.count || t >= valid) return Loaded{};
        const std::int64_t at = origin + c * args.sequence.dim + t * args.sequence.time;
        Loaded loaded{to_float(static_cast<const Io*>(args.u)[at]),
                      to_float(static_cast<const Io*>(args.delta)[at])};
        if (args.delta_bias != nullptr) loaded.delta += args.delta_bias[block.first + c];
        return loaded;
      },
      [&](int i, const Loaded& loaded) {
        const auto [c, t] = element(i);
        const float delta =
            args.delta_softplus && c < block.count && t < valid ? softplus(loaded.delta) : loaded.delta;
        tiles.u[c * plan.sequence_pitch() + t] = loaded.u;
        tiles.delta[c * plan.sequence_pitch() + t] = delta;
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
  const auto element = [&](int i) {
    return tile_element(i, plan.channels_log2, plan.steps_log2, args.sequence.time == 1);
  };
  const auto offset = [&](TileElement e) {
    return origin + e.row * args.sequence.dim + e.step * args.sequence.time;
  };
  stage(
      plan.channels() * plan.steps(), plan.threads(),
      [&](int i) {
        const TileElement e = element(i);
        const bool exists = e.row < block.count && e.step < valid && args.z != nullptr;
        return exists ? to_float(static_cast<const Io*>(args.z)[offset(e)]) : 0.0F;
      },
      [&](int i, float z) {
        const TileElement e = element(i);
        if (e.row >= block.count || e.step >= valid) return;
        const int in_tile = e.row * plan.sequence_pitch() + e.step;
        float y = tiles.y[in_tile];
        if (plan.parts() == 2) y += tiles.y[plan.sequence_floats() + in_tile];
        y *= kOutputFactor<Value>;
        if (args.D != nullptr) y += args.D[block.first + e.row] * tiles.u[in_tile];
        if (args.z != nullptr) y *= silu(z);
        static_cast<Io*>(args.out)[offset(e)] = from_float<Io>(y);
      });
}

}  // namespace ssmbench::staged
