// cuda-fused: registration and launch. Two kernels, each with the picture of its threads: kernel.cuh for what
// training and inference of Mamba take, from Hopper on; fused_general/kernel.cuh for everything else, about
// three times slower. Their instantiations are in f32.cu, f16.cu and bf16.cu.

#include <algorithm>

#include "base/cuda_attribute.h"
#include "kernels/common/hopper/tensor_map.h"
#include "kernels/common/launch.cuh"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/fused/kernel.cuh"
#include "kernels/selective_scan/fused_general/kernel.cuh"

namespace ssmbench {

namespace fused_general {
extern template GeneralKernel general_kernel_for<float>(MethodId method, bool complex);
extern template GeneralKernel general_kernel_for<__half>(MethodId method, bool complex);
extern template GeneralKernel general_kernel_for<__nv_bfloat16>(MethodId method, bool complex);
}  // namespace fused_general
namespace fused {
extern template Kernel kernel_for<float>(MethodId method, ThreadShape shape, bool along_time);
extern template Kernel kernel_for<__half>(MethodId method, ThreadShape shape, bool along_time);
extern template Kernel kernel_for<__nv_bfloat16>(MethodId method, ThreadShape shape, bool along_time);
}  // namespace fused

namespace {

using namespace fused;
using fused_general::GeneralKernel;
using fused_general::GeneralPlan;

GeneralPlan plan_of(const SelectiveScan& scan) {
  return fused_general::plan_general(scan.channels_per_group(), scan.dstate, scan.complex);
}

std::optional<std::string> unsupported(const Problem& problem) {
  if (auto reason = not_diagonal(problem)) return reason;
  const SelectiveScan scan(problem);
  const GeneralPlan plan = plan_of(scan);
  return grid_too_large({scan.batch, scan.groups, plan.blocks_per_group},
                        "batch and " + std::to_string(plan.channels()) + " channels");
}

/// Whether all groups of 8 elements that the fast kernel moves are whole and aligned to 16 bytes.
bool in_vectors(const ScanArgs& args, bool along_time) {
  const auto whole = [](std::int64_t elements) { return elements % 8 == 0; };
  if (along_time ? !whole(args.seqlen) : !whole(args.channels_per_group) || !whole(args.dstate)) return false;
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
template <class Layout>
TensorMaps tensor_maps(const ScanArgs& args, bool along_time) {
  constexpr int element_bytes = Layout::kElementBytes;
  const auto map_tiles = [&]<class Tile>(const Tile&, const void* data, std::int64_t rows, std::int64_t z) {
    const std::int64_t x = along_time ? args.seqlen : rows;
    const std::int64_t y = along_time ? rows : args.seqlen;
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    return hopper::tensor_map(
        {.data = data,
         .rank = 3,
         .sizes = {size(x), size(y), size(z)},
         .tile = {static_cast<unsigned>(Tile::kCopyRow / element_bytes), Tile::kRows, 1},
         .element_bytes = element_bytes,
         .swizzle = Tile::kCopyRow == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                    : Tile::kCopyRow == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                           : CU_TENSOR_MAP_SWIZZLE_32B,
         .promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE});
  };
  const auto sequence = [&](const void* data) {
    return map_tiles(typename Layout::Sequence(), data, args.dim, args.batch);
  };
  // Groups of states are rows of their own, or neighbours in a row.
  const auto projection = [&](const void* data) {
    return along_time ? map_tiles(typename Layout::Projection(), data, args.dstate, args.batch * args.groups)
                      : map_tiles(typename Layout::Projection(), data, args.groups * args.dstate, args.batch);
  };
  return {sequence(args.u), sequence(args.z == nullptr ? args.u : args.z), sequence(args.delta),
          projection(args.B), projection(args.C)};
}

/// The fast kernel for one shape, where it takes the problem.
template <class Io, class Map, bool kAlongTime>
std::optional<Launch> bind_fast_as(Kernel kernel, const SelectiveScan& scan, const ScanArgs& args) {
  using Layout = SharedLayout<Map, kAlongTime, sizeof(Io)>;
  const std::int64_t slices_of_group = ceil_div(args.channels_per_group, std::int64_t{Map::kChannels});
  const int slices =
      slices_per_block(args.batch * args.groups, slices_of_group, Layout::kUsualSlices, Map::kMaxSlices);
  constexpr int kMostBytes = Layout::bytes(Map::kMaxSlices);
  if (kernel == nullptr || kMostBytes > cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return {};
  const std::int64_t blocks_per_group = ceil_div(slices_of_group, std::int64_t{slices});
  if (args.batch > kMaxGridX / (args.groups * blocks_per_group)) return {};
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes));
  return launch_of(kernel, args.batch * args.groups * blocks_per_group, slices * Map::kThreads,
                   Layout::bytes(slices), args, blocks_per_group, step_parameters(scan.method),
                   tensor_maps<Layout>(args, kAlongTime));
}

/// The fast kernel's launch, where it takes the problem.
std::optional<Launch> bind_fast(const SelectiveScan& scan, DType dtype, const ScanArgs& args) {
  const bool along_time = args.sequence.time == 1;
  const auto shape = shape_for(scan.batch * scan.dim, scan.dstate, scan.seqlen, size_of(dtype));
  if (scan.complex || !scan.variable_b || !scan.variable_c || !shape || !in_vectors(args, along_time) ||
      !fits_tma(args))
    return {};
  return with_io_type(dtype, [&]<class Io>(std::type_identity<Io>) {
    return with_shape<sizeof(Io)>(*shape, [&](auto states, auto lanes, auto slices) {
      using Map = ThreadMap<states, lanes, slices>;
      const Kernel kernel = kernel_for<Io>(scan.method, *shape, along_time);
      return along_time ? bind_fast_as<Io, Map, true>(kernel, scan, args)
                        : bind_fast_as<Io, Map, false>(kernel, scan, args);
    });
  });
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-fused " + *reason);
  const ScanArgs args = bind_scan(problem, tensors);
  const SelectiveScan scan(problem);
  if (auto fast = bind_fast(scan, problem.dtype(), args)) return *fast;
  const GeneralPlan plan = plan_of(scan);
  const GeneralKernel kernel = with_io_type(problem.dtype(), [&]<class Io>(std::type_identity<Io>) {
    return fused_general::general_kernel_for<Io>(scan.method, scan.complex);
  });
  return launch_of(kernel, fused_general::blocks_of(args, plan), plan.threads(), plan.shared_bytes(), args,
                   plan, method_parameters(scan.method));
}

const Registration registration{
    {.name = "cuda-fused",
     .op = "selective_scan_fwd",
     .device = DeviceKind::cuda,
     .summary = "every method, real and complex; sequential in time, states in registers",
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench
