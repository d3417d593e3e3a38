// cuda-hopper backward, f16: instantiations of walks.cuh.

#include "kernels/ssd_chunk_scan/hopper_bwd/walks.cuh"

namespace ssmbench::ssd_hopper_bwd {

template Walks make_walks<__half>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                  void*);
template void launch_walks<__half>(const Walks&, cudaStream_t);
template void launch_all_parts<__half>(const Walks&, cudaStream_t);
template void launch_images<__half>(const Walks&, cudaStream_t);

}  // namespace ssmbench::ssd_hopper_bwd
