#pragma once

// Matrix products of a warpgroup (wgmma.cuh) of tf32 operands: D (64 × n, f32) += A (64 × 8) · B (8 × n). k runs
// along the rows of both operands' tiles, of 32 elements: these instructions transpose none. They drop the low 13
// bits of what they read.
//
// Fragments of warp w, with g = lane / 4 and t = lane % 4; D is as in wgmma.cuh:
//
//   A   a[0] = (16w + g, t)    a[1] = (16w + g + 8, t)    a[2] = (16w + g, t + 4)    a[3] = (16w + g + 8, t + 4)
//
// so that a D of 8 columns is such an A if k and k + 4 stand for columns 2k and 2k + 1: d[0], d[2], d[1], d[3]. Of
// registers in another order, so that it takes a copy.
//
// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions".

#include <cstdint>

#include "kernels/common/hopper/wgmma.cuh"

namespace ssmbench::hopper {

#define SSMBENCH_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SSMBENCH_D16(i) SSMBENCH_D4(i), SSMBENCH_D4(i + 4), SSMBENCH_D4(i + 8), SSMBENCH_D4(i + 12)
#define SSMBENCH_D32 SSMBENCH_D16(0), SSMBENCH_D16(16)
#define SSMBENCH_D64 SSMBENCH_D32, SSMBENCH_D16(32), SSMBENCH_D16(48)

/// d = a·b, or += with `accumulate`; both operands from shared memory.
__device__ __forceinline__ void wgmma_tf32(float (&d)[32], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n.reg .pred more;\nsetp.ne.b32 more, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, more, 1, 1;\n"
      "}\n"
      : SSMBENCH_D32
      : "l"(a), "l"(b), "r"(int{accumulate}));
}

/// The same with A from four registers.
__device__ __forceinline__ void wgmma_tf32(float (&d)[32], const std::uint32_t* a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n.reg .pred more;\nsetp.ne.b32 more, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, more, 1, 1;\n"
      "}\n"
      : SSMBENCH_D32
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{accumulate}));
}

/// The same, 128 columns wide.
__device__ __forceinline__ void wgmma_tf32(float (&d)[64], const std::uint32_t* a, std::uint64_t b,
                                           bool accumulate) {
  asm volatile(
      "{\n.reg .pred more;\nsetp.ne.b32 more, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, more, 1, 1;\n"
      "}\n"
      : SSMBENCH_D64
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{accumulate}));
}

#undef SSMBENCH_D64
#undef SSMBENCH_D32
#undef SSMBENCH_D16
#undef SSMBENCH_D4

}  // namespace ssmbench::hopper
