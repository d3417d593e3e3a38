// cuda-chunked backward, f32 tensors, products in tf32: instantiations of kernel.cuh.

#include "kernels/ssd_chunk_scan/chunked_bwd/kernel.cuh"

namespace ssmbench {

template void launch_chunked_bwd<float>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                        cudaStream_t);

}  // namespace ssmbench
