#pragma once

// Parts of the warpgroups of the gradient kernel for f32 tensors: products, gradients of B and C.

#include "kernels/common/hopper/wgmma_tf32.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/projections.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/block.cuh"

namespace ssmbench::ssd_hopper_bwd::tf32 {

inline constexpr auto kAlong = hopper::Major::k;
/// dB or dC of a chunk: 64 steps × N, columns in the order of image_row().
using ProjectionGradient = float[kStates / 2];

/// Starts to += a·b, of 64 deep operands, a in registers, b of 64 or 128 rows.
template <int kRegisters>
__device__ __forceinline__ void start_product(float (&to)[kRegisters], std::uint32_t (&a)[32],
                                              std::uint32_t b, int tile_bytes, bool accumulate) {
  hopper::pin_registers(a);
  hopper::pin_registers(to);
  const std::uint64_t descriptor = hopper::operand_descriptor(b, tile_bytes);
  hopper::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps / 8; ++k)
    hopper::wgmma_tf32(to, a + 4 * k, hopper::operand_step<kAlong>(descriptor, k, tile_bytes),
                       accumulate || k > 0);
  hopper::wgmma_commit();
}

/// Starts to = S·Cᵀ, or S'·Bᵀ, p × steps. What was started before has ended when it returns.
__device__ __forceinline__ void start_state_product(float (&to)[32], const Elements& image,
                                                    std::uint32_t projection) {
  const std::uint64_t descriptor = hopper::operand_descriptor(projection, kTile);
  std::uint32_t a[2][16];  // 16 are filled while products read 16 others
#pragma unroll
  for (int at = 0; at < kStates / 32; ++at) {
    if (at >= 2) hopper::wgmma_wait<1>();
#pragma unroll
    for (int i = 0; i < 16; ++i) a[at % 2][i] = __float_as_uint(image.at(4 * at + i / 4, i % 2, i / 2 % 2));
    hopper::pin_registers(a[at % 2]);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      hopper::wgmma_tf32(to, a[at % 2] + 4 * k, hopper::operand_step<kAlong>(descriptor, 4 * at + k, kTile),
                         at + k > 0);
    hopper::wgmma_commit();
  }
}

/// A warp's 16 rows of a square [row][k] as an operand, unrounded. `fragment`: fragment_offset() of the
/// thread.
__device__ __forceinline__ void load_rows(std::uint32_t (&to)[32], std::uint32_t square,
                                          std::uint32_t fragment) {
#pragma unroll
  for (int k = 0; k < kSteps / 8; ++k)
    load_matrices(*reinterpret_cast<std::uint32_t(*)[4]>(to + 4 * k),
                  square + k / 4 * kTile + (fragment ^ k % 4 * 32));
}
/// Elements of a square [k][p] as an operand [p][k], rounded.
__device__ __forceinline__ void load_columns(std::uint32_t (&to)[32], const Elements& from) {
#pragma unroll
  for (int i = 0; i < 32; ++i) to[i] = round_to_tf32(from.at(i / 4, i % 2, i / 2 % 2));
}

/// B or C of 64 steps, transposed, as an image of a state is: the operand of the products with Q.
__device__ __forceinline__ void transpose_projection(unsigned char* to, const unsigned char* from,
                                                     int thread) {
#pragma unroll 4
  for (int i = 0; i < kStates * kSteps / kGroupThreads; ++i) {
    const int t = i;
    const int n = thread;
    const int row = image_row(n);
    const float value = *reinterpret_cast<const float*>(from + n / kTileColumns * kTile + t * kTileRow +
                                                        ((n % kTileColumns / 4 ^ t % 8) << 4) + n % 4 * 4);
    *reinterpret_cast<float*>(to + t / kTileColumns * kImageHalf + row * kTileRow +
                              ((t % kTileColumns / 4 ^ row % 8) << 4) + t % 4 * 4) = value;
  }
}

/// dB or dC += Q or Qᵀ (a square) times C or B (transposed).
__device__ __forceinline__ void add_product_with_q(ProjectionGradient& to, std::uint32_t q,
                                                   std::uint32_t fragment, std::uint32_t transposed) {
  std::uint32_t a[32];
  load_rows(a, q, fragment);
  start_product(to, a, transposed, kImageHalf, true);
  hopper::wgmma_wait<0>();
  hopper::pin_registers(to);
}

/// dB or dC, or the slice's sum of it to the workspace.
__device__ __forceinline__ void write_projection(const GradientArgs& args, Projection which,
                                                 const ProjectionGradient& from, int thread) {
  const BlockPlace place(args);
  const SsdInputs& in = args.bwd.in;
  const std::int64_t all = in.batch * in.seqlen * in.groups * in.dstate;
  float* target = static_cast<float*>(which == Projection::B ? args.bwd.dB : args.bwd.dC);
  if (args.plan.slices > 1)
    target = args.workspace.projections + (place.slice * 2 + (which == Projection::C ? 1 : 0)) * all;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = thread / 32 * 16 + thread % 32 / 4 + 8 * half;
    if (t >= place.steps_valid) continue;
    float* const to =
        target + ((place.b * in.seqlen + place.start + t) * in.groups + place.group) * in.dstate + thread % 4;
#pragma unroll
    for (int i = 0; i < kStates / 4; ++i) {
      const int n = i / 2 * 8 + i % 2 * 4;
      if (n + thread % 4 < in.dstate) to[n] = from[i / 2 * 4 + 2 * half + i % 2];
    }
  }
}

/// D of a lane's two rows p of a head of the slice.
__device__ __forceinline__ void load_skip(float (&skip)[2], const GradientArgs& args, int of_slice,
                                          int thread) {
  const SsdInputs& in = args.bwd.in;
  const int head = BlockPlace(args).first_head + of_slice;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int p = thread / 32 * 16 + thread % 32 / 4 + 8 * half;
    const bool exists = in.D != nullptr && p < in.headdim;
    skip[half] = exists ? in.D[in.skip_per_headdim ? head * in.headdim + p : head] : 0.0F;
  }
}

}  // namespace ssmbench::ssd_hopper_bwd::tf32
