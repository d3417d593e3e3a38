#pragma once

// The fast kernels of cuda-fused for selective_scan_bwd, the common case from Hopper on: real A, zoh,
// variable B and C. Segments of time are done side by side, so that a batch of one fills the GPU too.
//
//   warp     16 channels of one group, one segment; a thread has two of them and four states of each
//
//     lane bits    4 | 3 | 2 1 | 0      channels  8·(bit 4) + 4·(bit 0) + {0, 2} + (bit 3)
//                                       states    4·(bits 2..1) + {0, 1, 2, 3}
//
//   segment_kernel   ├──►  ├──►  ├──►  all segments from zero: h every 8 steps and at the end, and what the
//                    ◄──┤  ◄──┤  ◄──┤  end's carry is at the start, Σ_t (Π_{s≤t} Ā_s)·dy_t·C_t, on the way
//   combine_kernel   ├─────►─────►──►  the true h at the starts, the true carries at the ends: a chain over
//                    ◄──◄─────◄──────┤ segments with Ā = e^(A·ΣΔ), a thread per state
//   gradient_kernel  ◄──┤  ◄──┤  ◄──┤  all segments, last tile first
//   add_kernel                         sums over blocks of dB and dC, over segments and batches of the rest
//
// With carry_t = Ā_t·g_t, g_t = dy_t·C_t + carry_{t+1}. Where there are channels enough to fill the GPU, a
// block of gradient_kernel goes through all segments in turn, ◄───◄───◄──┤, with the carry in registers, and
// segment_kernel leaves the carries out (plan.in_turn). If the workspace would grow too large, states are
// kept for a span of several segments only: segment_kernel goes over each span once more. Where x is given
// (plan.given_states) it has the states of every 8 steps, and the first two kernels make carries alone, or
// nothing in turn.
//
//   blocks   segment_kernel: 4 warps, 64 channels, which stage tiles for themselves; 4 or 5 on an SM
//            gradient_kernel: 8 consumer warps, 128 channels, and 8 producer warps; one on an SM. Where a
//            group has at most 64 channels, half of both, two on an SM
//
// gradient_kernel, a tile of 16 steps:
//
//     producers  │ store 5, stage 3 in A │ store 4, stage 2 in B │ store 3, stage 1 in A │
//     consumers  │ tile 4 in B           │ tile 3 in A           │ tile 2 in B           │
//
//     fetch    u, delta, dout, z of the next tile in 16-byte vectors along time or channels, each producer
//              its own; h of the tile at both halves and at the segment's start
//     stage    {Δ, Δ·u, dy, u}, {Δ's slope, dz/y}, a producer warp 16 channels; four copies of B and C
//     half     twice, the later 8 steps first: forward through it, states and decays into registers; back,
//              two steps at a time: sums over states (du, ∂Δ, y) and over channels (dB, dC) by shuffles,
//              which leave each lane one (channel, step) and one (state, step); then du, ddelta, dz of these,
//              over {Δ, Δ·u, dy}, and dB and dC, over {Δ's slope, dz/y}
//     store    du, ddelta, dz; dB and dC added over the warps, to the workspace
//
// More than 16 states are done in rounds of 16, all launches once more for each: states share no more than
// du, ddelta and dz, to which each round adds its part in f32, in the workspace, as it stores a tile. What a
// step has but once, D and dD, is the first round's, the outputs the last one's.
//
// One barrier a tile for all threads. Producers fill the gaps that two consumer warps on a scheduler leave.
//
// Exchanging sums between lanes takes two instructions per pair of values where lanes keep their states and
// channels in orders of their own (LaneMap), four where what is kept is selected. That is why B and C
// lie in shared memory in each of the four orders.
//
// Registers of gradient_kernel: per pair of channel and state h, carry, A, the sum of dA: 32; h and Ā of 8
// steps: 128; and B, C, Δ, Δ·u, dy of two steps: 216; producers have 40, and
// rematerialize addresses where they use them: spills would have hardly any L1 cache. Shared memory: two
// tiles, 68 KB each; {Δ's slope, dz/y} of a third; raw tiles: 219 KB, 16 less for 16-bit types. No atomics,
// all orders of sums are fixed. What was measured: docs/performance-notes.md.

#include "kernels/selective_scan/fused_bwd/gradient_kernel.cuh"
#include "kernels/selective_scan/fused_bwd/segment_kernel.cuh"

namespace ssmbench::fused_bwd {

/// The kernels of one io dtype, and the shared memory that they need.
struct BackwardKernels {
  using Segment = void (*)(KernelArgs, std::int64_t first_segment, bool keep_tiles, bool keep_ends);
  using Gradient = void (*)(KernelArgs, std::int64_t first_segment);

  /// A kernel of gradients in blocks with so many consumer warps.
  struct Gradients {
    Gradient kernel;
    int warps;
    std::size_t bytes;
  };

  Segment segment, segment_with_carry;
  /// Where states are given: the carries alone. Null where there are none.
  Segment segment_of_carry;
  std::size_t segment_bytes, segment_with_carry_bytes;
  /// From states that are kept, or given; null where there are none.
  Gradients gradients, gradients_with_x;
};

/// Kernels with `idle_warps` do what the others do: where tensors are not read by vectors, or states are done
/// in `rounds`, there are no others. `small_blocks` is asked for where these are so few that idle warps are.
template <class Io>
BackwardKernels backward_kernels(bool vectorized, bool idle_warps, bool small_blocks, bool rounds) {
  const auto kernels = []<bool kVectorized, bool kIdleWarps, int kWarps, bool kRounds>(
                           std::bool_constant<kVectorized>, std::bool_constant<kIdleWarps>,
                           std::integral_constant<int, kWarps>, std::bool_constant<kRounds>) {
    // In f32 shared memory has no room for two small blocks with kept states.
    constexpr int kKeptWarps = sizeof(Io) == sizeof(float) ? kBlockWarps : kWarps;
    BackwardKernels all{segment_kernel<Io, kVectorized, true, false, kIdleWarps>,
                        segment_kernel<Io, kVectorized, true, true, kIdleWarps>,
                        nullptr,
                        sizeof(SegmentShared<Io, false>),
                        sizeof(SegmentShared<Io, true>),
                        {gradient_kernel<Io, kVectorized, kIdleWarps, kRounds, false, kKeptWarps>, kKeptWarps,
                         sizeof(GradientShared<Io, kKeptWarps, false>)},
                        {}};
    if constexpr (kVectorized && !kRounds) {
      all.segment_of_carry = segment_kernel<Io, true, false, true, kIdleWarps>;
      all.gradients_with_x = {gradient_kernel<Io, true, kIdleWarps, false, true, kWarps>, kWarps,
                              sizeof(GradientShared<Io, kWarps, true>)};
    }
    return all;
  };
  const std::true_type yes;
  const std::false_type no;
  const std::integral_constant<int, kBlockWarps> large;
  if (rounds) return vectorized ? kernels(yes, yes, large, yes) : kernels(no, yes, large, yes);
  if (!vectorized) return kernels(no, yes, large, no);
  if (!idle_warps) return kernels(yes, no, large, no);
  return small_blocks ? kernels(yes, yes, std::integral_constant<int, kSmallBlockWarps>(), no)
                      : kernels(yes, yes, large, no);
}

}  // namespace ssmbench::fused_bwd
