// cuda-fused: registration and launch. Two kernels, each with the picture of its threads: kernel.cuh for what
// training and inference of Mamba take, from Hopper on; fused_general/kernel.cuh for everything else, about
// three times slower. Their instantiations are in f32.cu and 16_bits.cu, and in fused_general/.

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cuda_attribute.h"
#include "base/errors.h"
#include "inputs/packed_sequences.h"
#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/hopper/device.h"
#include "kernels/common/hopper/tensor_map.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/tensor_data.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/fused/kernel.cuh"
#include "kernels/selective_scan/fused/launch.h"
#include "kernels/selective_scan/fused_general/kernel.cuh"
#include "kernels/selective_scan/segments.cuh"
#include "ops/selective_scan/x.h"

namespace ssmbench {

namespace fused_general {
extern template GeneralKernels general_kernels_for<float>(MethodId method);
extern template GeneralKernels general_kernels_for<Complex>(MethodId method);
}  // namespace fused_general
namespace fused {
extern template Kernel kernel_for<float>(MethodId method, ThreadShape shape, bool along_time, Pass pass);
extern template Kernel kernel_for<__half>(MethodId method, ThreadShape shape, bool along_time, Pass pass);
extern template Kernel kernel_for<__nv_bfloat16>(MethodId method, ThreadShape shape, bool along_time,
                                                 Pass pass);
extern template Kernel kernel_for<Bits16>(MethodId method, ThreadShape shape, bool along_time, Pass pass);
extern template Kernel complex_kernel_for<float>(MethodId method);
extern template Kernel complex_kernel_for<Bits16>(MethodId method);

namespace {

using fused_general::GeneralKernel;
using fused_general::GeneralPlan;
using fused_general::SequenceBorders;

/// Whether products of decays over a segment are as good as decays step by step: they do not grow where
/// states are to decay.
constexpr bool decays_have_products(MethodId method) {
  return method != MethodId::bilinear_flipped;
}

bool takes_two_samples(MethodId method) {
  return with_family(
      method, []<Family family>(std::integral_constant<Family, family>) { return two_samples(family); });
}

/// Sequences, one a batch or packed into one.
struct Sequences : PackedSequences {
  std::int64_t steps;  ///< of each, in the mean

  explicit Sequences(const Problem& problem)
      : PackedSequences(problem),
        steps(packed ? ceil_div(problem.size("seqlen"), count) : problem.size("seqlen")) {}
};

GeneralPlan plan_of(const SelectiveScan& scan, const Sequences& sequences) {
  return fused_general::with_segments(
      fused_general::plan_general(
          scan.channels_per_group(), scan.dstate, scan.complex,
          scan.complex ? fused_general::kThreadComplexStates : fused_general::kThreadStates),
      sequences.count * scan.groups, sequences.steps, decays_have_products(scan.method));
}

std::optional<std::string> unsupported(const Problem& problem) {
  if (auto reason = not_diagonal(problem)) return reason;
  if (has_x(problem)) {
    if (auto reason = not_in_vectors_of_x(problem)) return reason;
    if (hopper::wrong_device()) return "has x on GPUs of compute capability 9.0";
  }
  const SelectiveScan scan(problem);
  const Sequences sequences(problem);
  const GeneralPlan plan = plan_of(scan, sequences);
  return grid_too_large({sequences.count, scan.groups, plan.blocks_per_group},
                        "sequence and " + std::to_string(plan.channels()) + " channels");
}

/// Elements from one row of tiles to the next, and from one z of tensor maps to the next. Of what there is
/// only one of, as if tensors had no gaps. They have some where the steps are not all of a tensor's.
struct TilePitches {
  std::int64_t of_row, of_batch, of_projection_row, of_projections;

  TilePitches(const ScanArgs& args, bool along_time) {
    const auto pitch = [](std::int64_t count, std::int64_t stride, std::int64_t without_gaps) {
      return count > 1 ? stride : without_gaps;
    };
    const std::int64_t states = args.groups * args.dstate;
    of_row = along_time ? pitch(args.dim, args.sequence.dim, args.seqlen)
                        : pitch(args.seqlen, args.sequence.time, args.dim);
    of_batch = pitch(args.batch, args.sequence.batch, of_row * (along_time ? args.dim : args.seqlen));
    of_projection_row = along_time ? pitch(args.dstate, args.b_strides.state, args.seqlen)
                                   : pitch(args.seqlen, args.b_strides.time, states);
    of_projections = along_time
                         ? pitch(args.groups, args.b_strides.group,
                                 pitch(args.batch, args.b_strides.batch, of_projection_row * args.dstate))
                         : pitch(args.batch, args.b_strides.batch, of_projection_row * args.seqlen);
  }
};

/// Whether all groups of 8 elements that the fast kernel moves are whole and aligned to 16 bytes.
bool in_vectors(const ScanArgs& args, bool along_time) {
  const auto whole = [](std::int64_t elements) { return elements % 8 == 0; };
  if (along_time ? !whole(args.seqlen) : !whole(args.channels_per_group) || !whole(args.dstate)) return false;
  const TilePitches pitches(args, along_time);
  for (const std::int64_t pitch :
       {pitches.of_row, pitches.of_batch, pitches.of_projection_row, pitches.of_projections})
    if (!whole(pitch)) return false;
  for (const void* tensor : {args.u, args.delta, args.z, args.B, args.C, static_cast<const void*>(args.out)})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0) return false;
  return true;
}

/// Whether the device has TMA, from Hopper on, and tensor maps can describe these tensors.
bool fits_tma(const ScanArgs& args) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return cuda_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 && args.batch * args.groups < kMost &&
         args.seqlen < kMost && args.dim < kMost && args.groups * args.dstate < kMost &&
         args.seqlen <
             64 * kMost / std::max(args.dim, args.groups * args.dstate);  // bytes of a batch: under 2^38
}

/// `z` is that of u where there is none.
template <class Layout, bool along_time>
TensorMaps tensor_maps(const ScanArgs& args, DType dtype, int state_floats) {
  const TilePitches pitches(args, along_time);
  // An element of memory has so many `floats`.
  const auto map_tiles = [&]<class Tile>(const Tile&, const void* data, std::int64_t rows, std::int64_t z,
                                         std::int64_t pitch, std::int64_t of_z, int floats) {
    const std::int64_t x = (along_time ? args.seqlen : rows) * floats;
    const std::int64_t y = along_time ? rows : args.seqlen;
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    return hopper::tensor_map(
        {.data = data,
         .rank = 3,
         .sizes = {size(x), size(y), size(z)},
         .tile = {static_cast<unsigned>(Tile::kCopyRow / Tile::kElementBytes), Tile::kRows, 1},
         .element_bytes = Tile::kElementBytes,
         .pitches = {size(pitch * floats), size(of_z * floats)},
         .swizzle = Tile::kCopyRow == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                    : Tile::kCopyRow == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                           : CU_TENSOR_MAP_SWIZZLE_32B,
         .promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE});
  };
  const auto sequence = [&](const void* data) {
    return map_tiles(typename Layout::template Sequence<along_time>(), data, args.dim, args.batch,
                     pitches.of_row, pitches.of_batch, 1);
  };
  // Groups of states are rows of their own, or neighbours in a row.
  const auto projection = [&](const void* data) {
    const std::int64_t rows = along_time ? args.dstate : args.groups * args.dstate;
    return map_tiles(typename Layout::template Projection<along_time>(), data, rows,
                     along_time ? args.batch * args.groups : args.batch, pitches.of_projection_row,
                     pitches.of_projections, state_floats);
  };
  return {sequence(args.u),
          sequence(args.z == nullptr ? args.u : args.z),
          sequence(args.delta),
          projection(args.B),
          projection(args.C),
          dtype,
          along_time};
}

/// How a problem's time is cut by the fast kernel, where that takes it: it has one sequence a batch.
std::optional<FastPlan> fast_plan_of(const SelectiveScan& scan, const Sequences& sequences, DType dtype) {
  if (sequences.packed || scan.complex || !scan.variable_b || !scan.variable_c) return {};
  return plan_for(scan.batch * scan.groups, scan.channels_per_group(), scan.dstate, scan.seqlen,
                  size_of(dtype), decays_have_products(scan.method));
}

/// Whether the fast kernel with complex states takes it: where the general one would not cut time.
bool takes_complex(const SelectiveScan& scan, const Sequences& sequences) {
  return scan.complex && !sequences.packed && scan.variable_b && scan.variable_c &&
         scan.dstate <= kMostComplexStates && plan_of(scan, sequences).segments.count == 1;
}

std::int64_t states_of(const SelectiveScan& scan, const Sequences& sequences) {
  return sequences.count * scan.dim * scan.dstate;
}

std::int64_t sum_floats_of(const FastPlan& plan, const SelectiveScan& scan) {
  return plan.sum_floats(scan.batch * scan.groups, scan.channels_per_group(), scan.dstate);
}

/// Enough for whichever kernels take the problem: that depends on the device, and on how tensors are aligned.
std::size_t workspace_bytes(const Problem& problem) {
  const SelectiveScan scan(problem);
  const Sequences sequences(problem);
  const int values = scan.complex ? 2 : 1;
  const std::int64_t states = states_of(scan, sequences);
  std::int64_t floats = segment_floats(plan_of(scan, sequences).segments, states, values);
  if (const auto fast = fast_plan_of(scan, sequences, problem.dtype()))
    floats = std::max(floats, segment_floats(fast->segments, states, values) + sum_floats_of(*fast, scan));
  return static_cast<std::size_t>(floats) * sizeof(float);
}

/// One launch after the other.
Launch in_turn(std::vector<Launch> launches) {
  return [launches = std::move(launches)](void* stream) {
    for (const Launch& launch : launches) launch(stream);
  };
}

/// The fast kernel for one shape, where it takes the problem.
template <class Io, class Map>
std::optional<Launch> bind_fast_as(const FastPlan& plan, const SelectiveScan& scan, const ScanArgs& args,
                                   bool along_time, DType dtype, const SegmentStates& segments, float* sums) {
  using Layout = SharedLayout<Map, sizeof(Io)>;
  const std::int64_t groups = args.batch * args.groups;
  const std::int64_t slices_of_group = ceil_div(args.channels_per_group, std::int64_t{Map::kChannels});
  const int slices =
      slices_per_block(groups * plan.segments.count, slices_of_group, Layout::kUsualSlices, Map::kMaxSlices);
  constexpr int kMostBytes = Layout::bytes(Map::kMaxSlices);
  if (kMostBytes > cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return {};
  const std::int64_t blocks_per_group = ceil_div(slices_of_group, std::int64_t{slices});
  const std::int64_t blocks = groups * blocks_per_group;  // of a segment
  if (args.batch > kMaxGridX / (args.groups * blocks_per_group)) return {};
  const auto prepared = [&](Pass pass) {
    const Kernel kernel = [&] {
      if constexpr (Map::kStateFloats == 2)
        return complex_kernel_for<Io>(scan.method);
      else if (sizeof(Io) == 4 || !takes_two_samples(scan.method))
        return kernel_for<Io>(scan.method, plan.shape, along_time, pass);
      else
        return kernel_for<Bits16>(scan.method, plan.shape, along_time, pass);
    }();
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes));
    return kernel;
  };
  const MethodParameters method =
      Map::kStateFloats == 2 ? method_parameters(scan.method) : step_parameters(scan.method);
  const TensorMaps maps = along_time ? tensor_maps<Layout, true>(args, dtype, Map::kStateFloats)
                                     : tensor_maps<Layout, false>(args, dtype, Map::kStateFloats);
  const int threads = slices * Map::kThreads;
  const int bytes = Layout::bytes(slices);
  const auto round_from = [&](std::int64_t first) {
    const bool last = first + kRoundStates >= args.dstate;
    return StateRound{static_cast<int>(first), last, ceil_div(plan.segments.steps, std::int64_t{Map::kSteps}),
                      first == 0 && last ? nullptr : sums};
  };
  const auto launch = [&](Pass pass, std::int64_t first) {
    const std::int64_t count = plan.segments.count - (pass == Pass::states ? 1 : 0);
    return launch_of(prepared(pass), blocks * count, threads, bytes, args, blocks_per_group, method,
                     round_from(first), maps, segments);
  };
  std::vector<Launch> launches;
  const bool cut = plan.segments.count > 1;
  const Pass outputs = args.x != nullptr ? Pass::outputs_and_x : cut ? Pass::segments : Pass::outputs;
  for (std::int64_t first = 0; cut && first < args.dstate; first += kRoundStates)
    launches.push_back(launch(Pass::states, first));
  if (cut) launches.push_back(combine_launch<float>(segments, args.initial_state, true));
  for (std::int64_t first = 0; first < args.dstate; first += kRoundStates) {
    if (cut && first == 0)
      launches.push_back(hopper::dependent_launch_of(
          prepared(outputs), blocks * plan.segments.count, static_cast<unsigned>(threads), bytes, args,
          blocks_per_group, method, round_from(first), maps, segments));
    else
      launches.push_back(launch(outputs, first));
  }
  return launches.size() == 1 ? launches.front() : in_turn(std::move(launches));
}

/// The fast kernel's launch, where it takes the problem.
std::optional<Launch> bind_fast(const SelectiveScan& scan, const Sequences& sequences, DType dtype,
                                const ScanArgs& args, void* workspace) {
  // A single channel is contiguous along time in both layouts, B and C are not.
  const bool along_time = args.sequence.time == 1 && args.b_strides.time == 1;
  if (takes_complex(scan, sequences) && in_vectors(args, along_time) && fits_tma(args)) {
    const FastPlan whole{{}, {scan.seqlen, 1}};
    const SegmentStates none = segment_states(whole.segments, 0, 2, workspace);
    const auto bound = [&]<class Io>(std::type_identity<Io>) {
      return bind_fast_as<Io, ComplexThreadMap>(whole, scan, args, along_time, dtype, none, nullptr);
    };
    return dtype == DType::f32 ? bound(std::type_identity<float>()) : bound(std::type_identity<Bits16>());
  }
  const auto plan = fast_plan_of(scan, sequences, dtype);
  if (!plan || !in_vectors(args, along_time) || !fits_tma(args)) return {};
  const SegmentStates segments = segment_states(plan->segments, states_of(scan, sequences), 1, workspace);
  float* const sums =
      static_cast<float*>(workspace) + segment_floats(plan->segments, states_of(scan, sequences), 1);
  return with_io_type(dtype, [&]<class Io>(std::type_identity<Io>) {
    return with_shape<sizeof(Io)>(plan->shape, [&](auto states, auto lanes, auto slices) {
      return bind_fast_as<Io, ThreadMap<states, lanes, slices>>(*plan, scan, args, along_time, dtype,
                                                                segments, sums);
    });
  });
}

/// `cu_seqlens`: null where nothing is packed.
Launch bind_args(const Problem& problem, ScanArgs args, const std::int32_t* cu_seqlens, void* workspace) {
  const SelectiveScan scan(problem);
  const Sequences sequences(problem);
  if (auto fast = bind_fast(scan, sequences, problem.dtype(), args, workspace)) return *fast;
  if (args.x != nullptr) throw ContractError("cuda-fused leaves x of tensors that are aligned to 16 bytes");
  if (sequences.packed) {  // steps are all in one batch, states in as many as there are sequences
    args.batch = sequences.count;
    args.sequence.batch = args.b_strides.batch = args.c_strides.batch = 0;
  }
  const SequenceBorders borders{cu_seqlens};
  const GeneralPlan plan = plan_of(scan, sequences);
  const SegmentStates segments =
      segment_states(plan.segments, states_of(scan, sequences), plan.value_floats, workspace);
  const auto kernels = scan.complex ? fused_general::general_kernels_for<Complex>(scan.method)
                                    : fused_general::general_kernels_for<float>(scan.method);
  const auto launch = [&](GeneralKernel kernel, std::int64_t count) {
    return launch_of(kernel, fused_general::blocks_of(args, plan) * count, plan.threads(),
                     plan.shared_bytes(), args, plan, method_parameters(scan.method), segments, borders,
                     problem.dtype());
  };
  if (plan.segments.count == 1) return launch(kernels.outputs, 1);
  return in_turn({launch(kernels.states, plan.segments.count - 1),
                  scan.complex ? combine_launch<Complex>(segments, args.initial_state, false)
                               : combine_launch<float>(segments, args.initial_state, false),
                  launch(kernels.outputs, plan.segments.count)});
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-fused " + *reason);
  return bind_args(problem, bind_scan(problem, tensors), data_of<const std::int32_t>(tensors, "cu_seqlens"),
                   workspace);
}

const Registration registration{
    {.name = "cuda-fused",
     .op = "selective_scan_fwd",
     .device = DeviceKind::cuda,
     .summary =
         "every method, real and complex; states in registers, time in segments where channels are few",
     .unsupported = unsupported,
     .workspace_bytes = workspace_bytes,
     .bind = bind}};

}  // namespace
}  // namespace fused

std::optional<std::string> fused_unsupported(const Problem& problem) {
  return fused::unsupported(problem);
}

std::size_t fused_workspace_bytes(const Problem& problem) {
  return fused::workspace_bytes(problem);
}

Launch fused_launch(const Problem& problem, const ScanArgs& args, void* workspace) {
  return fused::bind_args(problem, args, nullptr, workspace);
}

}  // namespace ssmbench
