// cuda-sequential for linear_scan: registration and launch. The pictures are in kernel.cuh and
// tma_kernel.cuh.

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/linear_scan/bind.h"
#include "kernels/linear_scan/sequential/kernel.cuh"
#include "kernels/linear_scan/sequential/tma_kernel.cuh"

namespace ssmbench::sequential {
namespace {

template <class Io>
Launch bind_as(const LinearScanArgs& args) {
  const auto address = [](const void* tensor) { return reinterpret_cast<std::uintptr_t>(tensor); };
  const std::int64_t blocks = channel_tiles(args.batch, args.dim, kChannels<Io>);
  const auto launch = [&](auto kernel) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
    return launch_of(kernel, blocks, dim3(32), kSequentialSharedBytes, args);
  };
  switch (sequential_access_bytes(address(args.a) | address(args.b) | address(args.out) |
                                  static_cast<std::uint64_t>(args.dim) * sizeof(Io))) {
    case 16:
      if (fits_tma(args)) return sequential_tma_launch<Io>(args);
      return launch(sequential_linear_kernel<Io, 16>);
    case 4:
      return launch(sequential_linear_kernel<Io, 4>);
    default:
      if constexpr (sizeof(Io) == 2) return launch(sequential_linear_kernel<Io, 2>);
      throw ContractError("cuda-sequential needs tensors whose elements are aligned");
  }
}

std::optional<std::string> unsupported(const Problem& problem) {
  const LinearScan scan(problem);
  const int channels = kSequentialBytes / static_cast<int>(size_of(problem.dtype()));
  return grid_too_large({scan.batch, ceil_div(scan.dim, channels)}, "batch and 128 bytes of channels");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-sequential " + *reason);
  const LinearScanArgs args = bind_linear_scan(problem, tensors);
  return with_io_type(problem.dtype(), [&](auto io) { return bind_as<typename decltype(io)::type>(args); });
}

const Registration registration{
    {.name = "cuda-sequential",
     .op = "linear_scan",
     .device = DeviceKind::cuda,
     .summary = "sequential in time, a lane per channel, tiles by asynchronous copies; bound by memory",
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::sequential
