#pragma once

// The fast kernel of cuda-fused: real A, variable B and C, methods of one sample, tensors that are read and
// written by 16 bytes. Sequential in time; the states of a channel are spread over lanes, in registers.
//
//   block    128 threads: 32 (16, 8) channels of one group times 4 (8, 16) lanes of kStates states
//
//     warp     8 (4, 2) channels; lane l of a channel holds states l·kStates .. l·kStates + kStates − 1.
//              Which thread is which: RowsMap::channel_of and lane_of
//
//   tile     32 (64, 128) steps of these channels
//
//     load     u, delta, z: 8 elements a thread; B, C: 8 to 32. Into registers, a tile ahead, so that memory
//              is read while the tile before is scanned
//     stage    {Δ, Δ·u} and f32 B and C into shared memory, each computed once per block
//     scan     h ← Ā·h + c·B,  y = Σ C·h over the thread's own states; 4 steps at a time, of which lanes
//              past 4 exchange halves, so that 4 parts of y are left of each channel and step
//     finish   out = (Σ parts + D·u)·silu(z), by the threads that have the tile's u and z in registers
//
// Per (element, state) the scan takes FMUL Δ·A', MUFU.EX2, FMUL Δu·B, FFMA h, FFMA y, and one more for
// reading shared memory, storing y and the loop: 6 with 4 states. Staging and finishing take some 45
// instructions an element, 3 of them on the MUFU. What binds is in docs/performance-notes.md. Registers: 128,
// of which 30 (f32: 50) hold loaded octets; with 4 blocks on an SM the 16 warps of one wave are all that
// 8 · 2048 channels have. Shared memory: 8 KB of {Δ, Δ·u}, 16 KB of y and 4 KB (8, 16) of B and C.

#include "kernels/common/discretize.h"
#include "kernels/common/io_types.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/fused_rows_map.h"
#include "kernels/selective_scan/fused_rows_math.h"
#include "kernels/selective_scan/fused_rows_octet.cuh"

namespace ssmbench {

using RowsKernel = void (*)(ScanArgs, std::int64_t blocks_per_group, MethodParameters);

/// method_parameters() as the fast kernel takes them: Taylor coefficients of powers of z·log2(e).
inline MethodParameters rows_parameters(MethodId method) {
  MethodParameters parameters = method_parameters(method);
  for (auto& row : parameters.taylor) {
    double power = 1;
    for (float& coefficient : row) {
      coefficient = static_cast<float>(coefficient * power);
      power *= 0.693147180559945309;
    }
  }
  return parameters;
}

/// The kernel of one io dtype, given as its device type, and one layout; null where there is none.
template <class Io>
RowsKernel rows_kernel_for(MethodId method, RowsShape shape, bool along_time);

namespace rows {

/// A channel's step with what is staged of it: Δ and Δ·u, or u. `state` is what a state's A is kept as;
/// called with it, a step gives the next h. With 2^x instead of the C library's e^x: 7 instructions fewer.
template <Family family>
class RowsStep;

template <>
class RowsStep<Family::zoh> {
 public:
  static constexpr bool kTakesGain = true;  ///< Δ·u, not u
  __device__ RowsStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  __device__ static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  __device__ float operator()(float A, float h, float B) const {
    return exp2_approximate(delta_ * A) * h + gain_ * B;
  }

 private:
  float delta_, gain_;
};

/// Its parameters are those of powers of z·log2(e), rows_parameters().
template <>
class RowsStep<Family::taylor> {
 public:
  static constexpr bool kTakesGain = true;
  __device__ RowsStep(const MethodParameters& method, float delta, float gain) : delta_(delta), gain_(gain) {
    const auto& c = method.taylor;
    for (int k = 0; k < 4; ++k) taylor_[k] = c[0][k] + delta * (c[1][k] + delta * c[2][k]);
  }
  __device__ static float state(const MethodParameters& /*method*/, float A) { return A * kLog2E; }
  __device__ float operator()(float A, float h, float B) const {
    const float z = delta_ * A;
    return exp2_approximate(z) * h + gain_ * B * polynomial(taylor_, z);
  }

 private:
  float delta_, gain_, taylor_[4];
};

template <>
class RowsStep<Family::bilinear> {
 public:
  static constexpr bool kTakesGain = true;
  __device__ RowsStep(const MethodParameters& /*method*/, float delta, float gain)
      : delta_(delta), gain_(gain) {}
  __device__ static float state(const MethodParameters& method, float A) { return method.half_sign * A; }
  __device__ float operator()(float half_A, float h, float B) const {
    const float w = delta_ * half_A;
    const float inverse = reciprocal_approximate(1.0F - w);
    return (1.0F + w) * inverse * h + gain_ * inverse * B;
  }

 private:
  float delta_, gain_;
};

template <>
class RowsStep<Family::foh> {
 public:
  static constexpr bool kTakesGain = false;
  __device__ RowsStep(const MethodParameters& method, float delta, float u) : step_(method, delta, u) {}
  __device__ static StateA<float> state(const MethodParameters& /*method*/, float A) {
    return StateA<float>(A);
  }
  __device__ float operator()(const StateA<float>& A, float h, float B) const {
    const auto [decay, input, previous] = step_(A);
    return decay * h + input * B;
  }

 private:
  Step<Family::foh> step_;
};

/// Groups of 4 steps that one iteration of the scan's loop takes. The whole tile where the code stays within
/// 16 KB: the more, the more loads are under way while the steps before are computed.
template <Family family, int kLanes>
constexpr int kUnrolled = family == Family::zoh ? 2 * kLanes : 2;

/// What a block works on.
struct RowsBlock {
  std::int64_t b, g, first;  ///< batch, group, first channel
  int count;                 ///< channels that exist
};

template <class Map>
__device__ RowsBlock rows_block(const ScanArgs& args, std::int64_t blocks_per_group) {
  const std::int64_t pair = blockIdx.x / blocks_per_group;
  const std::int64_t first = (blockIdx.x - pair * blocks_per_group) * Map::kChannels;
  const std::int64_t b = pair / args.groups;
  const std::int64_t g = pair - b * args.groups;
  return {b, g, g * args.channels_per_group + first,
          steps_within(first, Map::kChannels, args.channels_per_group)};
}

/// Where a thread's octet of a tile of sequences lies: 8 elements along the axis that is contiguous in
/// memory.
template <class Map, bool kAlongTime>
struct SequencePlace {
  __device__ explicit SequencePlace(int thread)
      : channel(kAlongTime ? thread / Map::kLanes : thread % (Map::kChannels / 8) * 8),
        step(kAlongTime ? thread % Map::kLanes * 8 : thread / (Map::kChannels / 8)) {}

  int channel, step;
};

/// Where a thread's octets of a tile of B, of C lie: 8 steps of one state, or 8 states of one step. Of 16
/// states and 32 steps one half of the threads has one octet of B, the other one of C.
template <class Map, bool kAlongTime>
struct ProjectionPlace {
  static constexpr int kOctetsOfTile = Map::kPaddedStates * Map::kSteps / 8;
  static constexpr bool kHalves = kOctetsOfTile < kRowsThreads;
  static constexpr int kThreads = kHalves ? kOctetsOfTile : kRowsThreads;
  static constexpr int kOctets = kOctetsOfTile / kThreads;  ///< a thread's, of B and of C each
  static constexpr int kStepsApart = kThreads * 8 / Map::kPaddedStates;

  __device__ explicit ProjectionPlace(int thread)
      : state(kAlongTime ? thread % kThreads % Map::kPaddedStates : thread % (Map::kPaddedStates / 8) * 8),
        step(kAlongTime ? thread % kThreads / Map::kPaddedStates * 8
                        : thread % kThreads / (Map::kPaddedStates / 8)) {}

  int state, step;
};

/// A tile's elements on their way from memory to shared memory.
template <class Io, int kProjectionOctets>
struct LoadedTile {
  Octet<Io> u, delta, z;
  Octet<Io> projection[kProjectionOctets];
};

/// B or C of 8 steps or states in f32.
template <class Map, bool kAlongTime, class Io>
__device__ void stage_projection(float* tile, int step, int state, const Octet<Io>& octet) {
  constexpr int kVector = kAlongTime ? (Map::kStates == 1 ? 4 : 1) : Map::kStates;  // neighbours in the tile
  float values[8];
  convert(octet, values);
#pragma unroll
  for (int k = 0; k < 8; k += kVector) {
    float* to =
        tile + (kAlongTime ? Map::projection_at(step + k, state) : Map::projection_at(step, state + k));
    if constexpr (kVector == 4)
      *reinterpret_cast<float4*>(to) = float4{values[k], values[k + 1], values[k + 2], values[k + 3]};
    else if constexpr (kVector == 2)
      *reinterpret_cast<float2*>(to) = float2{values[k], values[k + 1]};
    else
      *to = values[k];
  }
}

__device__ inline void load_four(float* to, const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}

/// A thread's parts of y in 4 steps: with 4 lanes stored as they are. More lanes first add those of their
/// neighbours in bit 0 (8 lanes), then in bit 1 (16) of the lane, each of two keeping half of the steps.
template <class Map>
__device__ void store_parts(float* parts, int lane, int channel, int step, const float (&y)[4]) {
  if constexpr (Map::kLanes == 4) {
    *reinterpret_cast<float4*>(parts + Map::part_at(lane, channel, step)) = float4{y[0], y[1], y[2], y[3]};
  } else {
    const bool late = (lane & 1) != 0;
    const float first = (late ? y[2] : y[0]) + __shfl_xor_sync(~0U, late ? y[0] : y[2], Map::kFirstLaneBit);
    const float second = (late ? y[3] : y[1]) + __shfl_xor_sync(~0U, late ? y[1] : y[3], Map::kFirstLaneBit);
    step += late ? 2 : 0;
    if constexpr (Map::kLanes == 8) {
      *reinterpret_cast<float2*>(parts + Map::part_at(lane >> 1, channel, step)) = float2{first, second};
    } else {
      const bool later = (lane & 2) != 0;
      parts[Map::part_at(lane >> 2, channel, step + later)] =
          (later ? second : first) + __shfl_xor_sync(~0U, later ? first : second, Map::kSecondLaneBit);
    }
  }
}

template <class Io, Family family, int kStates, int kLanes, bool kAlongTime>
__global__ void __launch_bounds__(kRowsThreads, 4)
    rows_kernel(const ScanArgs args, const std::int64_t blocks_per_group, const MethodParameters method) {
  using Map = RowsMap<kStates, kLanes>;
  using Place = ProjectionPlace<Map, kAlongTime>;
  using Step = RowsStep<family>;
  constexpr int kProjections = Place::kHalves ? 1 : 2;  // of which a thread has octets
  extern __shared__ float4 shared[];
  float* const steps = reinterpret_cast<float*>(shared);  // {Δ, Δ·u}
  float* const parts = steps + Map::kStepFloats;
  float* const projections = parts + Map::kParts * Map::kPartFloats;  // B, then C
  float* const bias = projections + 2 * Map::kProjectionFloats;
  float* const D = bias + Map::kChannels;

  const int thread = static_cast<int>(threadIdx.x);
  const RowsBlock block = rows_block<Map>(args, blocks_per_group);
  if (thread < Map::kChannels) {
    const bool exists = thread < block.count;
    bias[thread] = exists && args.delta_bias != nullptr ? args.delta_bias[block.first + thread] : 0.0F;
    D[thread] = exists && args.D != nullptr ? args.D[block.first + thread] : 0.0F;
  }

  // What the thread scans.
  const int channel = Map::channel_of(thread);
  const int lane = Map::lane_of(thread);
  const std::int64_t d = block.first + channel;
  const std::int64_t state_at = (block.b * args.dim + d) * args.dstate + lane * kStates;
  const int count = channel < block.count ? static_cast<int>(args.dstate) - lane * kStates : 0;
  float h[kStates];
  decltype(Step::state(method, 0.0F)) A[kStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    h[s] = s < count && args.initial_state != nullptr ? args.initial_state[state_at + s] : 0.0F;
    A[s] = Step::state(method, s < count ? args.A[d * args.dstate + lane * kStates + s] : 0.0F);
  }

  // What it moves: an octet of each sequence, and octets of B and C.
  const SequencePlace<Map, kAlongTime> sequence(thread);
  const bool channels_exist = sequence.channel < block.count;
  std::int64_t sequence_at = block.b * args.sequence.batch +
                             (block.first + sequence.channel) * args.sequence.dim +
                             sequence.step * args.sequence.time;
  const std::int64_t sequence_apart = Map::kSteps * args.sequence.time;
  const Place projection(thread);
  const bool states_exist = projection.state < args.dstate;
  const int first_projection = Place::kHalves && thread >= Place::kThreads ? 1 : 0;
  const Io* projection_from[kProjections];
  std::int64_t projection_time[kProjections];
#pragma unroll
  for (int p = 0; p < kProjections; ++p) {
    const bool is_c = first_projection + p == 1;
    const ProjectionStrides& strides = is_c ? args.c_strides : args.b_strides;
    projection_time[p] = strides.time;
    projection_from[p] = static_cast<const Io*>(is_c ? args.C : args.B) + block.b * strides.batch +
                         block.g * strides.group + projection.state * strides.state +
                         projection.step * strides.time;
  }

  LoadedTile<Io, kProjections * Place::kOctets> next;
  const auto load = [&](std::int64_t start) {
    const bool exists = channels_exist && start + sequence.step < args.seqlen;
    next.u = load_octet(static_cast<const Io*>(args.u) + sequence_at, exists);
    next.delta = load_octet(static_cast<const Io*>(args.delta) + sequence_at, exists);
    if (args.z != nullptr) next.z = load_octet(static_cast<const Io*>(args.z) + sequence_at, exists);
#pragma unroll
    for (int i = 0; i < kProjections * Place::kOctets; ++i) {
      const int step = i % Place::kOctets * Place::kStepsApart;
      const int p = i / Place::kOctets;
      next.projection[i] = load_octet(projection_from[p] + (start + step) * projection_time[p],
                                      states_exist && start + projection.step + step < args.seqlen);
    }
  };

  load(0);
  __syncthreads();
  for (std::int64_t start = 0; start < args.seqlen; start += Map::kSteps) {
    const bool exists = channels_exist && start + sequence.step < args.seqlen;
    const Octet<Io> u = next.u;
    const Octet<Io> z = next.z;

    float delta[8], second[8];
    convert(next.delta, delta);
    convert(u, second);
#pragma unroll
    for (int k = 0; k < 8; ++k) delta[k] += bias[kAlongTime ? sequence.channel : sequence.channel + k];
    if (args.delta_softplus) {
#pragma unroll
      for (int k = 0; k < 8; ++k) delta[k] = fast_softplus(delta[k]);
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (!exists) delta[k] = 0;  // softplus(bias) is not 0
      if constexpr (Step::kTakesGain) second[k] *= delta[k];
    }
    if constexpr (kAlongTime) {
#pragma unroll
      for (int k = 0; k < 8; k += 2)
        *reinterpret_cast<float4*>(steps + Map::step_at(sequence.channel, sequence.step + k)) =
            float4{delta[k], second[k], delta[k + 1], second[k + 1]};
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k)
        *reinterpret_cast<float2*>(steps + Map::step_at(sequence.channel + k, sequence.step)) =
            float2{delta[k], second[k]};
    }
#pragma unroll
    for (int i = 0; i < kProjections * Place::kOctets; ++i)
      stage_projection<Map, kAlongTime>(
          projections + (first_projection + i / Place::kOctets) * Map::kProjectionFloats,
          projection.step + i % Place::kOctets * Place::kStepsApart, projection.state, next.projection[i]);
    __syncthreads();

    const std::int64_t out_at = sequence_at;
    sequence_at += sequence_apart;
    if (start + Map::kSteps < args.seqlen) load(start + Map::kSteps);

    // Steps past the end are staged as zeros, which leave the states as they are. 4 steps' parts of y are
    // stored
    // after the next 4 steps' operands are loaded: a load cannot be moved above a store, and would wait for
    // all that the store waits for.
    float y_before[4];
#pragma unroll(kUnrolled <family, kLanes>)
    for (int t = 0; t < Map::kSteps; t += 4) {
      float pairs[8], B[4 * kStates], C[4 * kStates];
      load_four(pairs, steps + Map::step_at(channel, t));
      load_four(pairs + 4, steps + Map::step_at(channel, t + 2));
#pragma unroll
      for (int k = 0; k < 4; k += Map::kStepsAtOnce) {
        const float* from = projections + Map::projection_at(t + k, 0) + 4 * lane;
        load_four(B + k * kStates, from);
        load_four(C + k * kStates, from + Map::kProjectionFloats);
      }
      if (t > 0) store_parts<Map>(parts, lane, channel, t - 4, y_before);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Step step(method, pairs[2 * k], pairs[2 * k + 1]);
        float y = 0;
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          const int i = k * kStates + s;
          h[s] = step(A[s], h[s], B[i]);
          y = s == 0 ? C[i] * h[s] : C[i] * h[s] + y;
        }
        y_before[k] = y;
      }
    }
    store_parts<Map>(parts, lane, channel, Map::kSteps - 4, y_before);
    __syncthreads();

    // No barrier before the next stage: it writes what the scan alone reads, and parts are written after the
    // next one.
    float y[8];
#pragma unroll
    for (int part = 0; part < Map::kParts; ++part) {
      float values[8];
      if constexpr (kAlongTime) {
        const float* from = parts + Map::part_at(part, sequence.channel, sequence.step);
        reinterpret_cast<float4*>(values)[0] = reinterpret_cast<const float4*>(from)[0];
        reinterpret_cast<float4*>(values)[1] = reinterpret_cast<const float4*>(from)[1];
      } else {
#pragma unroll
        for (int k = 0; k < 8; ++k)
          values[k] = parts[Map::part_at(part, sequence.channel + k, sequence.step)];
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] = part == 0 ? values[k] : y[k] + values[k];
    }
    if (args.D != nullptr) {
      float values[8];
      convert(u, values);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] += D[kAlongTime ? sequence.channel : sequence.channel + k] * values[k];
    }
    if (args.z != nullptr) {
      float values[8];
      convert(z, values);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] *= fast_silu(values[k]);
    }
    Octet<Io> out;
#pragma unroll
    for (int k = 0; k < 8; ++k) out.at[k] = from_float<Io>(y[k]);
    if (exists) store_octet(static_cast<Io*>(args.out) + out_at, out);
  }

#pragma unroll
  for (int s = 0; s < kStates; ++s)
    if (s < count) args.last_state[state_at + s] = h[s];
}

}  // namespace rows

template <class Io>
RowsKernel rows_kernel_for(MethodId method, RowsShape shape, bool along_time) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) -> RowsKernel {
    if constexpr (two_samples(family)) {
      return nullptr;
    } else {
      const auto with = [&]<int kStates, int kLanes>(std::integral_constant<int, kStates>,
                                                     std::integral_constant<int, kLanes>) -> RowsKernel {
        return along_time ? rows::rows_kernel<Io, family, kStates, kLanes, true>
                          : rows::rows_kernel<Io, family, kStates, kLanes, false>;
      };
      return with_rows_shape(shape, with);
    }
  });
}

}  // namespace ssmbench
