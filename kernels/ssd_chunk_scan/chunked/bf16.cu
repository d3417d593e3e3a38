// cuda-chunked, the kernels of one arithmetic: a file each, so that they compile side by side.

#include "kernels/ssd_chunk_scan/chunked/kernel.cuh"

namespace ssmbench {

template ChunkedVariant chunked_variant<HalfProducts<__nv_bfloat16>>(int states);

}  // namespace ssmbench
