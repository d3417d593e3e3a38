// cuda-hopper backward, f16: instantiations of kernel.cuh.

#include "kernels/ssd_chunk_scan/hopper_bwd/variants.cuh"

namespace ssmbench::ssd_hopper_bwd {

template Variant variant_for<__half>(int states, bool gated);

}  // namespace ssmbench::ssd_hopper_bwd
