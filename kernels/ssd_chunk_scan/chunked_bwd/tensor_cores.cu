// cuda-chunked backward, the kernels; those of f32 tensors make products in tf32.

#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"

namespace ssmbench {

template void launch_gradient_sums<__nv_bfloat16, __nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                                 const ChunkedBwdWorkspace&, cudaStream_t);
template void launch_chunked_bwd<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, cudaStream_t);
template void launch_chunked_bwd<__half>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                         cudaStream_t);
template void launch_chunked_bwd<float>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                        cudaStream_t);

}  // namespace ssmbench
