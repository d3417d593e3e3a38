// cuda-hopper: bf16, items of two row tiles.

#include "kernels/ssd_chunk_scan/hopper/variants.cuh"

namespace ssmbench::ssd_hopper {

template Variant variant_for<__nv_bfloat16, 2>(int states, bool gated);

}  // namespace ssmbench::ssd_hopper
