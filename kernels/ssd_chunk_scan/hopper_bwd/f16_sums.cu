// cuda-hopper backward, f16: the kernels after that of the gradients.

#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"

namespace ssmbench {

template void launch_gradient_sums<__half, __half>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                   const ChunkedBwdWorkspace&, cudaStream_t);

}  // namespace ssmbench
