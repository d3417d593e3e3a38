// cuda-chunked: registration and launch. The picture is in kernel.cuh.

#include <string>

#include "base/errors.h"
#include "kernels/common/index_math.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/chunked/kernel.cuh"

namespace ssmbench::mamba3_chunked {
namespace {

std::int64_t slabs_of(const Mamba3& scan) {
  return ceil_div(scan.headdim, kRows);
}

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  if (problem.dtype() != DType::bf16) return "needs bf16 tensors";
  if (scan.headdim % 8 != 0) return "needs a headdim that is a multiple of 8: rows of 16-byte vectors";
  if (scan.dstate > kMaxStates) return "needs dstate of at most 128: states of 64 rows are held in registers";
  return grid_too_large({scan.sequences, scan.nheads, slabs_of(scan)}, "64 head dims of a sequence");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-chunked " + *reason);
  const Mamba3Args args = bind_mamba3(problem, tensors);
  const int states = args.scan.dstate <= 64 ? 64 : 128;
  const Layout layout(states, static_cast<int>(args.scan.angles));
  const auto kernel = states == 64 ? chunked_kernel<64> : chunked_kernel<128>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes));
  const std::int64_t slabs = slabs_of(args.scan);
  return launch_of(kernel, args.scan.sequences * args.scan.nheads * slabs, dim3(kThreads), layout.bytes, args,
                   layout, static_cast<int>(slabs), static_cast<int>(args.scan.heads_per_group()));
}

const Registration registration{
    {.name = "cuda-chunked",
     .op = "mamba3_siso_fwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 steps as products on tensor cores in one pass, state in registers",
     .arithmetic = [](DType) { return Arithmetic{.math = Math::bf16}; },
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::mamba3_chunked
