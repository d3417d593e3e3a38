// cuda-hopper backward, bf16: instantiations of kernel.cuh.

#include "kernels/ssd_chunk_scan/hopper_bwd/variants.cuh"

namespace ssmbench::ssd_hopper_bwd {

template Variant variant_for<__nv_bfloat16>(int states, bool gated);

}  // namespace ssmbench::ssd_hopper_bwd
