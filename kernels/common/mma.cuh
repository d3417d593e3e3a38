#pragma once

// Warp-wide matrix products and the asynchronous copies that feed them, as thin wrappers of PTX. The products
// need compute capability 8.0: on older GPUs the code compiles, and traps. The copies are synchronous there.
//
// Fragments of a warp's product D (16 × 8) += A (16 × K) · B (K × 8), with g = lane / 4 and t = lane % 4. An
// entry is (row, column); a register of 16-bit operands holds two neighbours along K.
//
//   register  D, f32         A, 16-bit, K = 16     B, 16-bit, K = 16   A, tf32, K = 8   B, tf32, K = 8
//      0      (g,     2t)    (g,     2t … 2t+1)    (2t … 2t+1, g)      (g,     t)       (t,     g)
//      1      (g,     2t+1)  (g + 8, 2t … 2t+1)    (2t+8 … 2t+9, g)    (g + 8, t)       (t + 4, g)
//      2      (g + 8, 2t)    (g,     2t+8 … 2t+9)                      (g,     t + 4)
//      3      (g + 8, 2t+1)  (g + 8, 2t+8 … 2t+9)                      (g + 8, t + 4)
//
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... m16n8k8".

#include <cstdint>

namespace ssmbench {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define SSMBENCH_NEEDS_SM80(...) __trap()
#else
#define SSMBENCH_NEEDS_SM80(...) __VA_ARGS__
#endif

/// The address that PTX takes for shared memory.
__device__ inline std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Starts to copy 16 bytes from global to shared memory, both aligned to 16. With `valid` 0, not 16, the
/// bytes become zeros and nothing is read.
__device__ inline void copy_async_16(std::uint32_t shared, const void* global, int valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  *static_cast<uint4*>(__cvta_shared_to_generic(shared)) =
      valid == 16 ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(valid)
               : "memory");
#endif
}

/// The same of 8 bytes, aligned to 8, with `valid` 0 or 8.
__device__ inline void copy_async_8(std::uint32_t shared, const void* global, int valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  *static_cast<uint2*>(__cvta_shared_to_generic(shared)) =
      valid == 8 ? *static_cast<const uint2*>(global) : make_uint2(0, 0);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(valid)
               : "memory");
#endif
}

/// copy_async_16 of all 16 bytes.
__device__ inline void copy_async_16(std::uint32_t shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  copy_async_16(shared, global, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared),
               "l"(__cvta_generic_to_global(global))
               : "memory");
#endif
}

/// Ends a group of this thread's copies.
__device__ inline void copy_async_commit() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

/// Waits until at most `kPending` of this thread's youngest groups are under way. What other threads copied
/// is there after the barrier that follows.
template <int kPending>
__device__ inline void copy_async_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
#endif
}

/// Four 8 × 8 matrices of 16-bit elements (8 × 4 of 32-bit ones). Lane i gives the address of row i % 8 of
/// matrix i / 8: 16 bytes, aligned. Register m of lane (g, t) gets the 32 bits at 4t of row g of matrix m.
__device__ inline void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

/// The same with each matrix transposed (16-bit elements only): lane (g, t) gets rows 2t and 2t + 1 of
/// column g.
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

/// d += a·b, operands bf16, accumulated in f32; K = 16.
__device__ inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  SSMBENCH_NEEDS_SM80(
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

/// d += a·b, operands f16, accumulated in f32; K = 16.
__device__ inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                               std::uint32_t b1) {
  SSMBENCH_NEEDS_SM80(
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

/// d += a·b, operands tf32 (round_to_tf32; the hardware drops the other bits), accumulated in f32; K = 8.
__device__ inline void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  SSMBENCH_NEEDS_SM80(
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

/// f32 bits → tf32 bits, to nearest, ties away from zero: the hardware drops the low 13 bits.
__device__ inline std::uint32_t round_to_tf32(std::uint32_t bits) {
  return bits + 0x1000U;
}
__device__ inline std::uint32_t round_to_tf32(float x) {
  return round_to_tf32(__float_as_uint(x));
}

/// Byte offset of 16-byte vector `vector` of row `row` in a shared tile whose rows are `row_bytes` long, a
/// multiple of 128. Vectors are permuted within each 128 bytes, by the row, so that the eight rows that
/// load_matrices reads lie in different banks.
__device__ inline std::uint32_t swizzled(int row, int vector, int row_bytes) {
  return static_cast<std::uint32_t>(row * row_bytes + ((vector ^ (row & 7)) << 4));
}

}  // namespace ssmbench
