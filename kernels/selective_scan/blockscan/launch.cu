// cuda-blockscan: registration and launch. The picture is in kernel.cuh.

#include <utility>

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/blockscan/kernel.cuh"
#include "kernels/selective_scan/sequences.h"

namespace ssmbench::blockscan {
namespace {

using Kernel = void (*)(ScanArgs);

template <class T, std::size_t... Shape>
Kernel kernel_of_shape(std::size_t shape, std::index_sequence<Shape...> /*all*/) {
  constexpr std::array<Kernel, sizeof...(Shape)> kernels{
      blockscan_kernel<T, kBlockScanShapes[Shape].threads, kBlockScanShapes[Shape].items>...};
  return kernels.at(shape);
}

std::optional<std::string> unsupported(const Problem& problem) {
  if (auto reason = not_real_zoh(problem)) return reason;
  if (auto reason = packs_sequences(problem)) return reason;
  const SelectiveScan scan(problem);
  if (problem.choice("layout") != "bdl")
    return "needs layout bdl: a block loads runs of time steps of one channel";
  return grid_too_large({scan.batch, scan.dim}, "row of batch x dim");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-blockscan " + *reason);
  const ScanArgs args = bind_scan(problem, tensors);
  const std::size_t shape = blockscan_shape_for(args.seqlen);
  const Kernel kernel = with_io_type(problem.dtype(), [shape]<class T>(std::type_identity<T>) {
    return kernel_of_shape<T>(shape, std::make_index_sequence<kBlockScanShapes.size()>());
  });
  return launch_of(kernel, args.batch * args.dim, kBlockScanShapes.at(shape).threads, 0, args);
}

const Registration registration{
    {.name = "cuda-blockscan",
     .op = "selective_scan_fwd",
     .device = DeviceKind::cuda,
     .summary = "block-wide scan along time, one block per row, as mamba_ssm does",
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::blockscan
