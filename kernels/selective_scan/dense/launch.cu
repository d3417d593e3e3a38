// cuda-dense: registration and launch. The picture is in kernel.cuh.

#include <string>

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/dense/kernel.cuh"
#include "kernels/selective_scan/sequences.h"

namespace ssmbench::dense {
namespace {

using DenseKernel = void (*)(ScanArgs, DType io);

template <bool kHold>
DenseKernel kernel_for(int lanes) {
  if (lanes == 8) return dense_kernel<8, kHold>;
  if (lanes == 16) return dense_kernel<16, kHold>;
  return dense_kernel<32, kHold>;
}

std::optional<std::string> unsupported(const Problem& problem) {
  const SelectiveScan scan(problem);
  if (!scan.dense) return "has dense A only";
  if (auto reason = packs_sequences(problem)) return reason;
  const std::int64_t rows_per_block = kDenseThreads / dense_lanes(scan.dstate);
  if (scan.batch > kMaxGridX * rows_per_block / scan.dim)
    return "needs at most " + std::to_string(kMaxGridX) + " blocks: one per " +
           std::to_string(rows_per_block) + " rows of batch x dim";
  return {};
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-dense " + *reason);
  const ScanArgs args = bind_scan(problem, tensors);
  const int lanes = dense_lanes(args.dstate);
  const bool hold = SelectiveScan(problem).method == MethodId::foh;
  const DenseKernel kernel = hold ? kernel_for<true>(lanes) : kernel_for<false>(lanes);
  return launch_of(kernel, ceil_div(args.batch * args.dim, kDenseThreads / lanes), kDenseThreads, 0, args,
                   problem.dtype());
}

const Registration registration{
    {.name = "cuda-dense",
     .op = "selective_scan_fwd",
     .device = DeviceKind::cuda,
     .summary = "dense A, bilinear and foh; a row of A per lane, sequential in time",
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::dense
