#pragma once

// Products of a warpgroup that are 16 columns wide; otherwise as in kernels/common/hopper/wgmma.cuh.

#include "kernels/common/hopper/wgmma.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"

namespace ssmbench::mamba3_bwd {

/// d = a·bᵀ, or += with `accumulate`, of bf16 in shared memory; k runs along the rows of both.
__device__ __forceinline__ void narrow_wgmma(float (&d)[8], std::uint64_t a, std::uint64_t b,
                                             bool accumulate) {
  asm volatile(
      "{\n.reg .pred more;\nsetp.ne.b32 more, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, more, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(a), "l"(b), "r"(int{accumulate}));
}

/// Starts to = a·bᵀ, with sums of kInner products.
template <int kInner>
__device__ __forceinline__ void start_narrow_product(float (&to)[8], std::uint32_t a, std::uint32_t b) {
  constexpr auto kAlong = hopper::Major::k;
  const std::uint64_t of_a = ssd_hopper_bwd::tile_operand(a);
  const std::uint64_t of_b = ssd_hopper_bwd::tile_operand(b);
#pragma unroll
  for (int k = 0; k < kInner / 16; ++k)
    narrow_wgmma(to, hopper::operand_step<kAlong>(of_a, k, ssd_hopper_bwd::kTile),
                 hopper::operand_step<kAlong>(of_b, k, ssd_hopper_bwd::kTile), k > 0);
}

}  // namespace ssmbench::mamba3_bwd
