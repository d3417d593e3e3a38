// cuda-chunked backward, f16: instantiations of chunked_bwd_launch.cuh.

#include "kernels/ssd/chunked_bwd_launch.cuh"

namespace ssmbench {

template void launch_chunked_bwd<__half>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                         cudaStream_t);

}  // namespace ssmbench
