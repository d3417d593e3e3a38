#pragma once

// The fast kernel of cuda-fused, from Hopper on: variable B and C, tensors that are read and written by
// 16-byte vectors; A real or, with up to 16 states, complex. Sequential in time; the states of a channel are
// spread over lanes, in registers. Warp-specialized: producer warps load and store, consumer warps scan.
//
//   slice    some channels of one group: a consumer warpgroup scans them, a producer warpgroup prepares their
//            tiles
//   block    1 to 4 slices of one group (slices_per_block), which share B and C; first the consumers of all
//            slices, then the producers
//
//     shape (ThreadShape)      4 × 4    4 × 4    4 × 4    2 × 8    4 × 8
//     states of a thread       4        4        4        2        4
//     lanes of a channel       4        4        4        8        8
//     channels of a slice      32       32       32       16       16
//     slices of a block        1 to 4   1, 2     1        1        1
//     registers                64       93       64       78       102, complex 124
//     shared memory of the largest block (SharedLayout)
//       16-bit elements        184 KB                     132 KB   107 KB
//       f32                    226 KB   188 KB   55 KB    166 KB   111 KB
//
//     Thread → channel and lane: ThreadMap::channel_of, lane_of; lane l has states l·kStates and on
//
//   tile     32 (8 lanes: 64) steps of these channels, staged in one of two slots, A and B:
//
//     producers  │ finish 0, stage 2 in A │ finish 1, stage 3 in B │ finish 2, stage 4 in A │
//     consumers  │ scan 1 in B            │ scan 2 in A            │ scan 3 in B            │
//
//     load     u, delta, z, B, C as they are, by TMA, into ring buffers; pipeline depth 1 to 3. u and z stay
//              there until their tile is finished (SharedLayout)
//     stage    {Δ, Δ·u} and, once per block, f32 B and C
//     scan     h ← Ā·h + c·B,  y = Σ C·h over the thread's own states; where shared memory is scarce
//              neighbouring lanes add their partial sums of y (ThreadMap::kPartials); these go where
//              {Δ, Δ·u} were
//     finish   out = (Σ partial sums + D·u)·silu(z)
//
// More than 32 states are done in rounds of 32, a launch each: producers hand on y through memory, and those
// of the last round finish it. Complex states are pairs of floats of the shape 4 × 8, two states a thread.
//
// Where channels are few time is cut into segments (segments.h), which are blocks of their own: one kernel
// makes the states between them, without C, y and out, another the outputs from these states. Where x is to
// be left, a kernel for time that is cut or not stores h before every eighth step.
//
// All threads of a block meet at one barrier a tile. So the scan waits for nothing else, as long as producers
// need less time for a tile than it does, and the GPU has twice the warps to choose from.
//
// Per (element, state) the scan takes FMUL Δ·A', MUFU.EX2, FMUL Δu·B, FFMA h, FFMA y, and 1.4 (2 × 8: 1.1)
// for reading shared memory, adding and storing y and the loop. Staging and finishing take some 38
// instructions an element, 3 of them on the MUFU. What binds is in docs/performance-notes.md.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/warp_specialization.cuh"
#include "kernels/selective_scan/fused/complex_step.cuh"
#include "kernels/selective_scan/fused/producer.cuh"
#include "kernels/selective_scan/fused/step.cuh"
#include "kernels/selective_scan/states.cuh"
#include "ops/selective_scan/x.h"

namespace ssmbench::fused {

using Kernel = void (*)(ScanArgs, std::int64_t blocks_per_group, MethodParameters, StateRound, TensorMaps,
                        SegmentStates);

/// Whether there are kernels of a family for an io dtype, given as its device type. Those of two samples are
/// for both dtypes of 16 bits: their scan takes longer than the producers, which may look at the dtype.
template <class Io>
constexpr bool has_kernels(Family family) {
  return sizeof(Io) == 4 || std::is_same_v<Io, Bits16> == two_samples(family);
}

/// The kernel of one such dtype and one layout.
template <class Io>
Kernel kernel_for(MethodId method, ThreadShape shape, bool along_time, Pass pass);

/// That with complex states, of float or Bits16 tensors and whole sequences, of either layout.
template <class Io>
Kernel complex_kernel_for(MethodId method);

/// Groups of 4 steps that one iteration of the scan's loop takes: the more, the more loads are in flight
/// while the steps before are computed. The whole tile for zoh; for other methods 128 pairs of a step and a
/// state, which is the whole tile but where a channel has 8 lanes of 4 states. 13 to 29 KB of code.
template <Family family, class Map>
constexpr int kUnrolled = family == Family::zoh ? 2 * Map::kLanes
                          : two_samples(family) ? 4 / Map::kStates
                                                : 32 / Map::kStates;

/// The same with complex states. foh_exact has no registers for more.
template <Family family>
constexpr int kComplexUnrolled = family == Family::foh_exact ? 1 : 4;

/// Whether B and C of a step are loaded just before it, and not with those of its group: methods of two
/// samples have no registers for these.
template <Family family>
constexpr bool kLoadsLate = two_samples(family);

/// Whether Δ·u is staged of a step, or u/2.
template <Family family, class Map>
constexpr bool kStagesGain =
    Map::kStateFloats == 2 ? ComplexScanStep<family>::kTakesGain : ScanStep<family>::kTakesGain;

/// Four neighbouring steps.
__device__ inline void load_inputs(StepInput (&to)[4], const float* from) {
  float values[8];
  load_vector(values, from);
  load_vector(values + 4, from + 4);
#pragma unroll
  for (int k = 0; k < 4; ++k) to[k] = {values[2 * k], values[2 * k + 1]};
}

/// A consumer's partial sums of y in 4 steps. Where there are fewer partial sums than lanes, neighbours in
/// bit 0 of the lane add theirs first, each keeping half of the steps.
template <class Map>
__device__ void store_partials(float* tile, int lane, int channel, int step, const float (&y)[4]) {
  if constexpr (Map::kPartials == Map::kLanes) {
    store_vector(tile + Map::partial_at(lane, channel, step), y[0], y[1], y[2], y[3]);
  } else {
    const bool late = (lane & 1) != 0;
    const float first = (late ? y[2] : y[0]) + __shfl_xor_sync(~0U, late ? y[0] : y[2], Map::kFirstLaneBit);
    const float second = (late ? y[3] : y[1]) + __shfl_xor_sync(~0U, late ? y[1] : y[3], Map::kFirstLaneBit);
    store_half_vector(tile + Map::partial_at(lane >> 1, channel, step) + (late ? 2 : 0), first, second);
  }
}

/// Calls call(s, exists, at, state_at) for each state of a consumer: its number, and its index in A and in
/// tensors of states.
template <class Map, class Call>
__device__ void for_states(const ScanArgs& args, const ChannelSlice& slice, const StateRound& round,
                           int thread, const Call& call) {
  const int channel = Map::channel_of(thread);
  const std::int64_t d = slice.first + channel;
#pragma unroll
  for (int s = 0; s < Map::kStates; ++s) {
    const int state = round.first_of<Map>() + Map::lane_of(thread) * Map::kStates + s;
    const bool exists = channel < slice.count && state < args.dstate;
    call(s, exists, d * args.dstate + state, (slice.b * args.dim + d) * args.dstate + state);
  }
}

/// u·B/2 of the step before a segment, which methods of two samples take.
template <class Map, class Io>
__device__ void load_before(float (&before)[Map::kStates], const ScanArgs& args, const ChannelSlice& slice,
                            const StateRound& round, DType dtype, int thread) {
  if (slice.begin == 0) return;
  const std::int64_t t = slice.begin - 1;
  const Io* const u = static_cast<const Io*>(args.u) + slice.b * args.sequence.batch +
                      (slice.first + Map::channel_of(thread)) * args.sequence.dim + t * args.sequence.time;
  const Io* const B = static_cast<const Io*>(args.B) + slice.b * args.b_strides.batch +
                      slice.g * args.b_strides.group + t * args.b_strides.time;
  for_states<Map>(
      args, slice, round, thread, [&](int s, bool exists, std::int64_t /*at*/, std::int64_t /*state_at*/) {
        const int state = round.first_of<Map>() + Map::lane_of(thread) * Map::kStates + s;
        if (exists) before[s] = 0.5F * to_float(u, dtype) * to_float(B + state * args.b_strides.state, dtype);
      });
}

/// Whether the kernel makes outputs of segments, of which there may be one.
template <Pass pass>
constexpr bool kHasSegments = pass == Pass::segments || pass == Pass::outputs_and_x;

/// Where a consumer leaves its states in x.
template <class Map>
struct StatesInX {
  float* to = nullptr;     ///< those of the tile's first step
  std::int64_t pitch = 0;  ///< floats from one state of x to the next
  std::int64_t steps = 0;  ///< from there to the segment's end; none where the thread has no states

  __device__ void begin(const ScanArgs& args, const ChannelSlice& slice, int thread) {
    pitch = args.dim * args.dstate;
    const int channel = Map::channel_of(thread);
    const int state = Map::lane_of(thread) * Map::kStates;
    const std::int64_t of_batch = ceil_div(args.seqlen, kStepsOfX);
    to = args.x + (slice.b * of_batch + slice.begin / kStepsOfX) * pitch +
         (slice.first + channel) * args.dstate + state;
    if (channel < slice.count && state < args.dstate) steps = slice.steps;
  }
  /// h before step t of the tile, where x has it.
  __device__ void store(int t, const float (&h)[Map::kStates]) const {
    if (t % kStepsOfX != 0 || t >= steps) return;
    float* const at = to + t / kStepsOfX * pitch;
    if constexpr (Map::kStates == 2)
      store_half_vector(at, h[0], h[1]);
    else
      store_vectors(at, h);
  }
  __device__ void move() {
    to += Map::kSteps / kStepsOfX * pitch;
    steps -= Map::kSteps;
  }
};

/// What a consumer thread does where there are outputs to be made.
template <class Map, Family family, class Io, Pass pass, class Layout>
__device__ void consume(const ScanArgs& args, const ChannelSlice& slice, const MethodParameters& method,
                        const StateRound& round, const SharedTiles<Map, Layout>& shared,
                        const SegmentStates& segments, DType dtype, int thread) {
  using Step = ScanStep<family, (Map::kMaxSlices * Map::kBlocks <= 2)>;
  constexpr int kStates = Map::kStates;
  const int channel = Map::channel_of(thread);
  const int lane = Map::lane_of(thread);
  float h[kStates];
  decltype(Step::state(method, 0.0F)) A[kStates];
  const float* before = args.initial_state;
  if constexpr (kHasSegments<pass>) {
    if (slice.segment > 0) {
      before = segments.ends + (slice.segment - 1) * segments.states;
      hopper::wait_for_prerequisites();
    }
  }
  for_states<Map>(args, slice, round, thread,
                  [&](int s, bool exists, std::int64_t at, std::int64_t state_at) {
                    h[s] = exists && before != nullptr ? before[state_at] : 0.0F;
                    A[s] = Step::state(method, exists ? args.A[at] : 0.0F);
                  });
  float input_before[kStates] = {};
  if constexpr (two_samples(family) && pass != Pass::outputs)
    load_before<Map, Io>(input_before, args, slice, round, dtype, thread);
  [[maybe_unused]] StatesInX<Map> x;
  if constexpr (pass == Pass::outputs_and_x) x.begin(args, slice, thread);

  int slot = 0;
  for (std::int64_t start = 0; start < slice.steps; start += Map::kSteps) {
    float* const tile = shared.sequences + slot * Map::kSequenceFloats;
    const float* const projections = shared.projections + slot * (2 * Map::kProjectionFloats) + 4 * lane;
    block_barrier();
    float y[4];
#pragma unroll(kUnrolled <family, Map>)
    for (int t = 0; t < Map::kSteps; t += 4) {
      StepInput inputs[4];
      float B[4 * kStates], C[4 * kStates];
      load_inputs(inputs, tile + Map::step_at(channel, t));
      const auto load_projections = [&](int k) {
        const float* from = projections + Map::projection_at(t + k, 0);
        load_vector(B + k * kStates, from);
        load_vector(C + k * kStates, from + Map::kProjectionFloats);
      };
      if constexpr (!kLoadsLate<family>) {
#pragma unroll
        for (int k = 0; k < 4; k += Map::kStepsAtOnce) load_projections(k);
      }
      // Partial sums lie where {Δ, Δ·u} of these and of the next 4 steps have been.
      __syncwarp();
      if (t > 0) store_partials<Map>(tile, lane, channel, t - 4, y);
      if constexpr (pass == Pass::outputs_and_x) x.store(t, h);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (kLoadsLate<family>)
          if (k % Map::kStepsAtOnce == 0) load_projections(k);
        const Step step(method, inputs[k].delta, inputs[k].gain);
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          const int i = k * kStates + s;
          h[s] = next_state<family>(step, A[s], h[s], B[i], input_before[s]);
          y[k] = s == 0 ? C[i] * h[s] : C[i] * h[s] + y[k];
        }
      }
    }
    store_partials<Map>(tile, lane, channel, Map::kSteps - 4, y);
    if constexpr (pass == Pass::outputs_and_x) x.move();
    slot ^= 1;
  }
  block_barrier();

  if constexpr (kHasSegments<pass>)
    if (slice.segment + 1 < segments.segments.count) return;
  for_states<Map>(args, slice, round, thread,
                  [&](int s, bool exists, std::int64_t /*at*/, std::int64_t state_at) {
                    if (exists) args.last_state[state_at] = h[s];
                  });
}

/// What a consumer thread does where states are complex, each of which is a pair of floats of the map.
template <class Map, Family family, class Layout>
__device__ void consume_complex(const ScanArgs& args, const ChannelSlice& slice,
                                const MethodParameters& method, const SharedTiles<Map, Layout>& shared,
                                int thread) {
  using Step = ComplexScanStep<family>;
  constexpr int kStates = Map::kStates / Map::kStateFloats;
  const int channel = Map::channel_of(thread);
  const int lane = Map::lane_of(thread);
  const int count = channel < slice.count ? static_cast<int>(args.dstate) - lane * kStates : 0;
  const std::int64_t in_channels = (slice.first + channel) * args.dstate + lane * kStates;
  const std::int64_t in_batches = slice.b * args.dim * args.dstate + in_channels;
  Complex h[kStates], A_values[kStates];
  load_states(h, values_of<Complex>(args.initial_state), in_batches, count);
  load_states(A_values, values_of<Complex>(args.A), in_channels, count);
  typename Step::State A[kStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) A[s] = Step::state(method, A_values[s]);
  Complex input_before[kStates] = {};

  int slot = 0;
  for (std::int64_t start = 0; start < slice.steps; start += Map::kSteps) {
    float* const tile = shared.sequences + slot * Map::kSequenceFloats;
    const float* const projections = shared.projections + slot * (2 * Map::kProjectionFloats) + 4 * lane;
    block_barrier();
    float y[4];
#pragma unroll(kComplexUnrolled <family>)
    for (int t = 0; t < Map::kSteps; t += 4) {
      StepInput inputs[4];
      load_inputs(inputs, tile + Map::step_at(channel, t));
      __syncwarp();  // as in consume()
      if (t > 0) store_partials<Map>(tile, lane, channel, t - 4, y);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        Complex B[kStates], C[kStates];
        const float* const from = projections + Map::projection_at(t + k, 0);
        load_vectors(B, reinterpret_cast<const Complex*>(from));
        load_vectors(C, reinterpret_cast<const Complex*>(from + Map::kProjectionFloats));
        const Step step(method, inputs[k].delta, inputs[k].gain);
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          h[s] = next_state<family>(step, A[s], h[s], B[s], input_before[s]);
          y[k] = s == 0 ? C[s].re * h[s].re : fmaf(C[s].re, h[s].re, y[k]);
          y[k] = fmaf(-C[s].im, h[s].im, y[k]);
        }
      }
    }
    store_partials<Map>(tile, lane, channel, Map::kSteps - 4, y);
    slot ^= 1;
  }
  block_barrier();
  auto* const last_state = reinterpret_cast<Complex*>(args.last_state);
#pragma unroll
  for (int s = 0; s < kStates; ++s)
    if (s < count) last_state[in_batches + s] = h[s];
}

/// What a consumer thread does where only states are made: the same scan, from zero.
template <class Map, Family family, class Io, class Layout>
__device__ void consume_states(const ScanArgs& args, const ChannelSlice& slice,
                               const MethodParameters& method, const StateRound& round,
                               const SharedTiles<Map, Layout>& shared, const SegmentStates& segments,
                               DType dtype, int thread) {
  using Step = ScanStep<family, (Map::kMaxSlices * Map::kBlocks <= 2)>;
  constexpr int kStates = Map::kStates;
  const int channel = Map::channel_of(thread);
  const int lane = Map::lane_of(thread);
  float h[kStates] = {};
  DecayProduct<family, kStates> product;
  decltype(Step::state(method, 0.0F)) A[kStates];
  for_states<Map>(args, slice, round, thread,
                  [&](int s, bool exists, std::int64_t at, std::int64_t /*state_at*/) {
                    A[s] = Step::state(method, exists ? args.A[at] : 0.0F);
                  });
  float input_before[kStates] = {};
  if constexpr (two_samples(family)) load_before<Map, Io>(input_before, args, slice, round, dtype, thread);

  int slot = 0;
  for (std::int64_t start = 0; start < slice.steps; start += Map::kSteps) {
    const float* const tile = shared.sequences + slot * Map::kSequenceFloats;
    const float* const projections = shared.projections + slot * (2 * Map::kProjectionFloats) + 4 * lane;
    block_barrier();
// With more of them, exponentials that are begun early take registers that there are not.
#pragma unroll(two_samples(family) ? 1 : 4)
    for (int t = 0; t < Map::kSteps; t += 4) {
      StepInput inputs[4];
      float B[4 * kStates];
      load_inputs(inputs, tile + Map::step_at(channel, t));
#pragma unroll
      for (int k = 0; k < 4; k += Map::kStepsAtOnce)
        load_vector(B + k * kStates, projections + Map::projection_at(t + k, 0));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Step step(method, inputs[k].delta, inputs[k].gain);
        product.add(inputs[k].delta);
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          product.multiply(s, step, A[s]);
          h[s] = next_state<family>(step, A[s], h[s], B[k * kStates + s], input_before[s]);
        }
      }
    }
    slot ^= 1;
  }
  block_barrier();

  const std::int64_t own = slice.segment * segments.states;
  for_states<Map>(args, slice, round, thread,
                  [&](int s, bool exists, std::int64_t at, std::int64_t state_at) {
                    if (!exists) return;
                    segments.ends[own + state_at] = h[s];
                    segments.decays[own + state_at] = product.of(s, args.A[at]);
                  });
}

/// Whether a kernel takes tensors of either layout, or is for one of them.
enum class Layouts { either, along_time, along_channels };

/// Kernels of either layout take as long as two of one each, and half as long to compile. Of those for few
/// channels in f32 and zoh the one with 2 states a thread loses 2 to 4%, so that they are not of either.
template <class Io, Family family, class Map, Pass pass>
constexpr bool kTakesEither = !(std::is_same_v<Io, float> && family == Family::zoh &&
                                (Map::kStates == 2 || pass == Pass::states || pass == Pass::segments));

/// A block has 1 to kMaxSlices slices: first the consumers of all, then the producers of all. Only producers
/// see how tensors are laid out.
template <class Io, Family family, class Map, Pass pass, Layouts layouts>
__global__ void __launch_bounds__(Map::kMaxSlices* Map::kThreads, Map::kBlocks)
    scan_kernel(const ScanArgs args, const std::int64_t blocks_per_group, const MethodParameters method,
                const StateRound round, const __grid_constant__ TensorMaps maps,
                const SegmentStates segments) {
  using Layout = SharedLayout<Map, sizeof(Io)>;
  extern __shared__ __align__(1024) float4 memory[];
  if constexpr (pass == Pass::states) hopper::launch_dependents();
  const int slices = static_cast<int>(blockDim.x) / Map::kThreads;
  // Exchanged so that the compiler knows it to be the same in all of a warp.
  const int warpgroup = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / kConsumerThreads, 0);
  const int index = warpgroup < slices ? warpgroup : warpgroup - slices;
  const int thread = static_cast<int>(threadIdx.x) % kConsumerThreads;
  const SharedTiles<Map, Layout> shared(memory, index);
  const ChannelSlice slice =
      channel_slice<Map, pass>(args, blocks_per_group, slices, index, segments.segments);
  if (warpgroup < slices && thread < Map::kChannels) {
    const bool exists = thread < slice.count;
    shared.bias[thread] = exists && args.delta_bias != nullptr ? args.delta_bias[slice.first + thread] : 0.0F;
    shared.D[thread] = exists && args.D != nullptr ? args.D[slice.first + thread] : 0.0F;
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < Layout::kDepth; ++i) hopper::barrier_init(shared.arrived_at(i), slices);
    hopper::fence_async_proxy();
  }
  __syncthreads();
  if (warpgroup >= slices) {
    if (layouts == Layouts::either ? maps.along_time : layouts == Layouts::along_time)
      produce<Map, Io, kStagesGain<family, Map>, true, pass>(args, maps, slice, round, shared, thread);
    else
      produce<Map, Io, kStagesGain<family, Map>, false, pass>(args, maps, slice, round, shared, thread);
  } else if constexpr (Map::kStateFloats == 2) {
    consume_complex<Map, family>(args, slice, method, shared, thread);
  } else if constexpr (pass == Pass::states) {
    consume_states<Map, family, Io>(args, slice, method, round, shared, segments, maps.dtype, thread);
  } else {
    consume<Map, family, Io, pass>(args, slice, method, round, shared, segments, maps.dtype, thread);
  }
}

template <class Io, Family family, class Map, Pass pass>
Kernel kernel_of(bool along_time) {
  if constexpr (kTakesEither<Io, family, Map, pass>)
    return scan_kernel<Io, family, Map, pass, Layouts::either>;
  else if (along_time)
    return scan_kernel<Io, family, Map, pass, Layouts::along_time>;
  else
    return scan_kernel<Io, family, Map, pass, Layouts::along_channels>;
}

template <class Io>
Kernel kernel_for(MethodId method, ThreadShape shape, bool along_time, Pass pass) {
  return with_family(method, [&]<Family family>(std::integral_constant<Family, family>) -> Kernel {
    if constexpr (!has_kernels<Io>(family))
      throw_logic_error("a kernel of this method for another dtype");
    else
      return with_shape<sizeof(Io)>(shape, [&](auto states, auto lanes, auto slices) -> Kernel {
        using Map = ThreadMap<states, lanes, slices>;
        constexpr bool kCanBeCut = can_be_cut({states, lanes, slices});
        if constexpr (kCanBeCut) {
          if (pass == Pass::states) return kernel_of<Io, family, Map, Pass::states>(along_time);
          if (pass == Pass::segments) return kernel_of<Io, family, Map, Pass::segments>(along_time);
        }
        if constexpr (can_leave_x({states, lanes, slices}) && family == Family::zoh)
          if (pass == Pass::outputs_and_x) return kernel_of<Io, family, Map, Pass::outputs_and_x>(along_time);
        constexpr Pass kUncut = kCanBeCut && family != Family::zoh ? Pass::segments : Pass::outputs;
        return kernel_of<Io, family, Map, kUncut>(along_time);
      });
  });
}

template <class Io>
Kernel complex_kernel_for(MethodId method) {
  return with_family(method, []<Family family>(std::integral_constant<Family, family>) -> Kernel {
    return scan_kernel<Io, family, ComplexThreadMap, Pass::outputs, Layouts::either>;
  });
}

}  // namespace ssmbench::fused
