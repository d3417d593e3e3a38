// cuda-hopper backward, bf16: instantiations of walks.cuh.

#include "kernels/ssd_chunk_scan/hopper_bwd/walks.cuh"

namespace ssmbench::ssd_hopper_bwd {

template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                         void*);
template void launch_walks<__nv_bfloat16>(const Walks&, cudaStream_t);
template void launch_walks_alone<__nv_bfloat16>(const Walks&, cudaStream_t);
template void launch_all_parts<__nv_bfloat16>(const Walks&, cudaStream_t);
template void launch_images<__nv_bfloat16>(const Walks&, cudaStream_t);

}  // namespace ssmbench::ssd_hopper_bwd
