// Implementations of linear_scan that break the device, and one that works. All run on one thread, as the
// definition says: what is tested is what happens around them.

#include <cuda_runtime.h>

#include "base/cuda_check.h"
#include "kernels/linear_scan/bind.h"

namespace ssmbench {
namespace {

enum class Fault { none, hang, illegal_address };

__global__ void scan_kernel(LinearScanArgs args, Fault fault) {
  const auto* a = static_cast<const float*>(args.a);
  const auto* b = static_cast<const float*>(args.b);
  auto* out = static_cast<float*>(args.out);
  for (std::int64_t batch = 0; batch < args.batch; ++batch)
    for (std::int64_t d = 0; d < args.dim; ++d) {
      float state = 0;
      for (std::int64_t t = 0; t < args.seqlen; ++t) {
        const std::int64_t i = (batch * args.seqlen + t) * args.dim + d;
        out[i] = state = a[i] * state + b[i];
      }
    }
  if (fault == Fault::illegal_address) *reinterpret_cast<volatile float*>(std::uintptr_t{64}) = 1;
  volatile float* last = out;
  while (fault == Fault::hang) *last = 0;
}

Implementation implementation(const char* name, Fault fault) {
  return {.name = name,
          .op = "linear_scan",
          .device = DeviceKind::cuda,
          .summary = "test",
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = [fault](const Problem& problem, const TensorSet& tensors, void*) -> Launch {
            const LinearScanArgs args = bind_linear_scan(problem, tensors);
            return [args, fault](void* stream) {
              scan_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(args, fault);
              check_cuda(cudaGetLastError());
            };
          }};
}

const Registration hang(implementation("cuda-hang", Fault::hang));
const Registration illegal_address(implementation("cuda-illegal-address", Fault::illegal_address));
const Registration healthy(implementation("cuda-one-thread", Fault::none));

}  // namespace
}  // namespace ssmbench
