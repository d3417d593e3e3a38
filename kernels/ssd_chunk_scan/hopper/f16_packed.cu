// cuda-hopper: f16, packed sequences.

#include "kernels/ssd_chunk_scan/hopper/variants.cuh"

namespace ssmbench::ssd_hopper {

template PackedVariant packed_variant_for<__half, 1>(int states, bool gated, bool stops);

}  // namespace ssmbench::ssd_hopper
