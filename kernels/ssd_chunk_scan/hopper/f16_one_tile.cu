// cuda-hopper: f16, items of one row tile.

#include "kernels/ssd_chunk_scan/hopper/variants.cuh"

namespace ssmbench::ssd_hopper {

template Variant variant_for<__half, 1>(int states, bool gated);

}  // namespace ssmbench::ssd_hopper
