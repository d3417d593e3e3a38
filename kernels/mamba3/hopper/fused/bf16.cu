// cuda-hopper: the fused MIMO scan. The picture is in kernel.cuh.

#include "kernels/mamba3/hopper/fused/fused.h"
#include "kernels/mamba3/hopper/fused/kernel.cuh"

namespace ssmbench::mamba3_fused {
namespace {

template <int kPairs, bool kGated>
Variant variant_of() {
  using Fused = Traits<kPairs, kGated>;
  return {fused_kernel<Fused>, Fused::Layout::kBytes};
}

}  // namespace

Variant variant_for(std::int64_t angles, bool gated) {
  if (angles <= 32) return gated ? variant_of<32, true>() : variant_of<32, false>();
  return gated ? variant_of<64, true>() : variant_of<64, false>();
}

}  // namespace ssmbench::mamba3_fused
