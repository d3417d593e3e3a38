// cuda-step: registration and launch. The picture is in kernel.cuh.

#include <string>

#include "base/errors.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/step/kernel.cuh"
#include "kernels/mamba3/step/siso_kernel.cuh"

namespace ssmbench::mamba3::step {
namespace {

using Kernel = void (*)(Mamba3Args, int heads_per_group);

/// That every GPU has for a block.
constexpr int kMostBytes = 64 * 1024;

int shared_bytes(int shape, const Mamba3& scan, bool staged) {
  return step_memory_bytes(scan, kRowShapes[shape].padded()) +
         (staged ? kRowShapes[shape].staged_bytes() : 0);
}
/// Models have headdim 64 and dstate 128, shape 2.
bool is_full(int shape, const Mamba3& scan) {
  return shape == 2 && kRowShapes[2].is_full(scan.headdim, scan.dstate) &&
         shared_bytes(shape, scan, true) <= kMostBytes;
}

template <class Io>
Kernel kernel_of(int shape, const Mamba3& scan) {
  if (takes_siso_step(scan)) return siso_step_kernel<Io>;
  switch (shape) {
    case 0:
      return step_kernel<Io, 0, false>;
    case 1:
      return step_kernel<Io, 1, false>;
    case 2:
      return is_full(shape, scan) ? step_kernel<Io, 2, true> : step_kernel<Io, 2, false>;
    case 3:
      return step_kernel<Io, 3, false>;
    case 4:
      return step_kernel<Io, 4, false>;
    default:
      return step_kernel<Io, 5, false>;
  }
}

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  return grid_too_large({scan.batch, scan.nheads}, "head of a sequence");
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-step " + *reason);
  const Mamba3Args args = bind_mamba3(problem, tensors);
  const int shape = row_shape_of(args.scan.dstate);
  const Kernel kernel = with_io_type(
      problem.dtype(), [&]<class Io>(std::type_identity<Io>) { return kernel_of<Io>(shape, args.scan); });
  const int bytes =
      takes_siso_step(args.scan) ? kSisoBytes : shared_bytes(shape, args.scan, is_full(shape, args.scan));
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes));
  return launch_of(kernel, args.scan.batch * args.scan.nheads, dim3(kStepThreads), bytes, args,
                   static_cast<int>(args.scan.heads_per_group()));
}

const Registration registration{{.name = "cuda-step",
                                 .op = "mamba3_step",
                                 .device = DeviceKind::cuda,
                                 .summary = "one decoding step, the state through registers once",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::mamba3::step
