#pragma once

// Matrix products of a warpgroup (wgmma): D (64 × n, f32, in registers) += A (64 × 16) · B (16 × n), operands
// of 16 bits. B comes from shared memory, A from there or from registers. All four warps take part.
//
// Fragments of warp w of the warpgroup, with g = lane / 4 and t = lane % 4:
//
//   D   d[4j], d[4j + 1]     = (16w + g, 8j + 2t), (16w + g, 8j + 2t + 1)
//       d[4j + 2], d[4j + 3] = the same of row 16w + g + 8
//   A   a[0] = (16w + g, 2t..2t + 1)    a[1] = (16w + g + 8, 2t..)
//       a[2] = (16w + g, 2t + 8..)      a[3] = (16w + g + 8, 2t + 8..)
//
// so that a warp's D, rounded and packed in pairs, is A of the next product, 16 columns of D per product.
//
// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions".

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace ssmbench::hopper {

/// How a product reads an operand's tile, rows of 128 bytes, swizzled.
enum class Major {
  k,    ///< rows are those of the operand, k runs along them
  rows  ///< k counts the tile's rows: the operand transposed
};

/// Where an operand lies in shared memory, as the instructions take it. `tile` is aligned to 1024 bytes; the
/// next 64 columns of a wider operand are a tile of their own, `tile_bytes` on.
__device__ inline std::uint64_t operand_descriptor(std::uint32_t tile, int tile_bytes) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = 1024;
  return kSwizzle128 | (kEightRows >> 4) << 32 | static_cast<std::uint64_t>(tile_bytes >> 4) << 16 |
         (tile >> 4 & 0x3FFF);
}

/// The descriptor of the operand's part with k = 16·step … 16·step + 15.
template <Major kMajor>
__device__ inline std::uint64_t operand_step(std::uint64_t descriptor, int step, int tile_bytes) {
  const int bytes = kMajor == Major::k ? step / 4 * tile_bytes + step % 4 * 32 : step * 2048;
  return descriptor + static_cast<std::uint64_t>(bytes >> 4);
}

/// Before the first product that uses registers which the warp has written, and after waits between products.
__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
/// Waits until at most `kPending` of the youngest groups of products are under way.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving uses of registers across: those of a product's result to before its wait.
template <class T, int kCount>
__device__ __forceinline__ void pin_registers(T (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (std::is_same_v<T, float>)
      asm volatile("" : "+f"(r[i])::"memory");
    else
      asm volatile("" : "+r"(r[i])::"memory");
  }
}

#define SSMBENCH_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SSMBENCH_D16(i) SSMBENCH_D4(i), SSMBENCH_D4(i + 4), SSMBENCH_D4(i + 8), SSMBENCH_D4(i + 12)
#define SSMBENCH_D32 SSMBENCH_D16(0), SSMBENCH_D16(16)
#define SSMBENCH_D64 SSMBENCH_D32, SSMBENCH_D16(32), SSMBENCH_D16(48)

#define SSMBENCH_WGMMA_SS_64(type)                                                    \
  "{\n.reg .pred more;\nsetp.ne.b32 more, %34, 0;\n"                                  \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                         \
  " "                                                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
  "%32, %33, more, 1, 1, %35, %36;\n"                                                 \
  "}\n"

#define SSMBENCH_WGMMA_RS_64(type)                                                    \
  "{\n.reg .pred more;\nsetp.ne.b32 more, %37, 0;\n"                                  \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                         \
  " "                                                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
  "{%32, %33, %34, %35}, %36, more, 1, 1, %38;\n"                                     \
  "}\n"

#define SSMBENCH_WGMMA_RS_128(type)                                                   \
  "{\n.reg .pred more;\nsetp.ne.b32 more, %69, 0;\n"                                  \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                        \
  " "                                                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
  "{%64, %65, %66, %67}, %68, more, 1, 1, %70;\n"                                     \
  "}\n"

/// d = a·b, or += with `accumulate`; both operands from shared memory.
template <class Io, Major kMajorA, Major kMajorB>
__device__ __forceinline__ void wgmma(float (&d)[32], std::uint64_t a, std::uint64_t b, bool accumulate) {
  constexpr int kTransposeA = kMajorA == Major::rows;
  constexpr int kTransposeB = kMajorB == Major::rows;
  if constexpr (std::is_same_v<Io, __half>)
    asm volatile(SSMBENCH_WGMMA_SS_64("f16")
                 : SSMBENCH_D32
                 : "l"(a), "l"(b), "r"(int{accumulate}), "n"(kTransposeA), "n"(kTransposeB));
  else
    asm volatile(SSMBENCH_WGMMA_SS_64("bf16")
                 : SSMBENCH_D32
                 : "l"(a), "l"(b), "r"(int{accumulate}), "n"(kTransposeA), "n"(kTransposeB));
}

/// The same with A from registers.
template <class Io, Major kMajorB>
__device__ __forceinline__ void wgmma(float (&d)[32], const std::uint32_t* a, std::uint64_t b,
                                      bool accumulate) {
  constexpr int kTransposeB = kMajorB == Major::rows;
  if constexpr (std::is_same_v<Io, __half>)
    asm volatile(SSMBENCH_WGMMA_RS_64("f16")
                 : SSMBENCH_D32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{accumulate}),
                   "n"(kTransposeB));
  else
    asm volatile(SSMBENCH_WGMMA_RS_64("bf16")
                 : SSMBENCH_D32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{accumulate}),
                   "n"(kTransposeB));
}

/// The same, 128 columns wide.
template <class Io, Major kMajorB>
__device__ __forceinline__ void wgmma(float (&d)[64], const std::uint32_t* a, std::uint64_t b,
                                      bool accumulate) {
  constexpr int kTransposeB = kMajorB == Major::rows;
  if constexpr (std::is_same_v<Io, __half>)
    asm volatile(SSMBENCH_WGMMA_RS_128("f16")
                 : SSMBENCH_D64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{accumulate}),
                   "n"(kTransposeB));
  else
    asm volatile(SSMBENCH_WGMMA_RS_128("bf16")
                 : SSMBENCH_D64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{accumulate}),
                   "n"(kTransposeB));
}

#undef SSMBENCH_WGMMA_SS_64
#undef SSMBENCH_WGMMA_RS_64
#undef SSMBENCH_WGMMA_RS_128
#undef SSMBENCH_D64
#undef SSMBENCH_D32
#undef SSMBENCH_D16
#undef SSMBENCH_D4

}  // namespace ssmbench::hopper
