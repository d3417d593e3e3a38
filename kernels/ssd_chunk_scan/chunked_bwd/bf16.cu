// cuda-chunked backward, bf16: instantiations of kernel.cuh.

#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"

namespace ssmbench {

template void launch_gradient_sums<__nv_bfloat16, __nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                                 const ChunkedBwdWorkspace&, cudaStream_t);
template void launch_chunked_bwd<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, cudaStream_t);

}  // namespace ssmbench
