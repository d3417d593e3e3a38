// cuda-chunked, the kernels.

#include "kernels/ssd_chunk_scan/chunked/kernel.cuh"

namespace ssmbench {

template ChunkedVariant chunked_variant<HalfProducts<__nv_bfloat16>>(int states);
template ChunkedVariant chunked_variant<HalfProducts<__half>>(int states);
template ChunkedVariant chunked_variant<Tf32Products>(int states);

}  // namespace ssmbench
