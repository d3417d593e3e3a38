// cuda-fused for selective_scan_bwd, the common case from Hopper on: real A, zoh, variable B and C, 9 to 16
// states. Segments of time are done side by side, so that a batch of one fills the GPU too. The two kernels
// that go over time are in fused_bwd_parallel_kernel.cuh and fused_bwd_parallel_gradient.cuh, their
// instantiations in a file per io dtype.
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
//   share_kernel, sums_kernel          sums over blocks of dB and dC, over segments and batches of the rest
//
// With carry_t = Ā_t·g_t, g_t = dy_t·C_t + carry_{t+1}. Where there are channels enough to fill the GPU, a
// block of gradient_kernel goes through all segments in turn, ◄───◄───◄──┤, with the carry in registers, and
// segment_kernel leaves the carries out (plan.in_turn). If the workspace would grow too large, states are
// kept for a span of several segments only: segment_kernel goes over each span once more.
//
//   blocks   segment_kernel: 4 warps, 64 channels, which stage tiles for themselves; 4 or 5 on an SM
//            gradient_kernel: 8 warps that compute, 128 channels, and 8 helpers; one on an SM
//
// gradient_kernel, a tile of 16 steps:
//
//     helpers    │ store 5, stage 3 in A │ store 4, stage 2 in B │ store 3, stage 1 in A │
//     computing  │ tile 4 in B           │ tile 3 in A           │ tile 2 in B           │
//
//     fetch    u, delta, dout, z of the next tile in 16-byte pieces of time or of channels, each helper its
//              own; h of the tile at both halves and at the segment's start
//     stage    {Δ, Δ·u, dy, u}, {Δ's slope, dz/y}, a helper warp 16 channels; four copies of B and C
//     half     twice, the later 8 steps first: forward through it, states and decays into registers; back,
//              two steps at a time: sums over states (du, ∂Δ, y) and over channels (dB, dC) by shuffles,
//              which leave each lane one (channel, step) and one (state, step); then du, ddelta, dz of these,
//              in the places of {Δ, Δ·u, dy}, and dB and dC, in those of {Δ's slope, dz/y}
//     store    du, ddelta, dz; dB and dC added over the warps, to the workspace
//
// One barrier of all a tile. What helpers do fills the gaps that two computing warps on a scheduler leave.
//
// Exchanging sums between lanes takes two instructions per pair of values where lanes keep their states and
// channels in orders of their own (ParallelLane), four where what is kept is selected. That is why B and C
// lie in shared memory in each of the four orders.
//
// Registers of gradient_kernel: per pair of channel and state h, carry, A, the sum of dA: 32; h and Ā of 8
// steps: 128; and B, C, Δ, Δ·u, dy of two steps: 216, where helpers have 40. These compute addresses again
// where they use them: what is spilled has hardly any L1 cache. Shared memory: two tiles, 68 KB each;
// {Δ's slope, dz/y} of a third; raw tiles: 219 KB, 16 less for 16-bit types. No atomics, all orders of sums
// are fixed. What was measured: docs/performance-notes.md.

#include "kernels/selective_scan/fused_bwd/launch.h"

#include "device/cuda_attribute.h"
#include "kernels/selective_scan/fused_bwd/kernel.cuh"

namespace ssmbench {

extern template ParallelKernels parallel_kernels<float>(bool pieces);
extern template ParallelKernels parallel_kernels<__half>(bool pieces);
extern template ParallelKernels parallel_kernels<__nv_bfloat16>(bool pieces);

namespace {

using namespace parallel_bwd;

constexpr int kCombineThreads = 256;
constexpr int kSumSlices = 8;
constexpr int kSumWidth = kCombineThreads / kSumSlices;

/// blockIdx.y 0: `states` from those at the ends of segments to those at their starts; 1: `carries`, the
/// other way.
///
///   block    256 neighbouring states of the grid, in the order of the workspace; a thread each
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(const ParallelProblem problem) {
  const ScanArgs& args = problem.args.scan;
  const FusedBackwardParallelPlan& plan = problem.plan;
  const StoredState state(args, plan, static_cast<std::int64_t>(blockIdx.x) * kCombineThreads + threadIdx.x);
  const bool forward = blockIdx.y == 0;
  const float A = state.exists ? kLog2E * args.A[state.in_channels] : 0.0F;
  float value =
      forward && state.exists && args.initial_state != nullptr ? args.initial_state[state.in_batches] : 0.0F;
  float* const own = problem.workspace + (forward ? problem.at.states : problem.at.carries) + state.index;
  const float* const sums = problem.workspace + problem.at.delta_sums + state.row;
  const std::int64_t segments = plan.segments();
  constexpr int kAtOnce = 8;  // loads under way together
  for (std::int64_t first = 0; first < segments; first += kAtOnce) {
    float local[kAtOnce], sum[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t i = min(first + k, segments - 1);
      const std::int64_t segment = forward ? i : segments - 1 - i;
      local[k] = own[segment * plan.state_floats()];
      sum[k] = sums[segment * plan.rows()];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t i = first + k;
      if (i >= segments) break;
      own[(forward ? i : segments - 1 - i) * plan.state_floats()] = value;
      value = fmaf(exp2_approximate(sum[k] * A), value, local[k]);
    }
  }
}

/// dA, dD, ddelta_bias: sums over batches and segments. In order.
///
///   block    32 neighbouring states of the channels, in the order of the workspace; 32 channels in the last
///            blocks. Times 8 slices: every eighth run of all batches
__global__ void __launch_bounds__(kCombineThreads)
    sums_kernel(const ParallelProblem problem, const std::int64_t state_blocks) {
  __shared__ float partial[kSumSlices][kSumWidth];
  const FusedBackwardParallelPlan& plan = problem.plan;
  const ScanGradientArgs& args = problem.args;
  const int column = static_cast<int>(threadIdx.x) % kSumWidth;
  const int slice = static_cast<int>(threadIdx.x) / kSumWidth;
  // Complete in slice 0; all threads of a block have to call it.
  const auto sum = [&](std::int64_t from, std::int64_t of_run, std::int64_t of_batch) {
    const auto runs = static_cast<unsigned>(plan.runs());
    const unsigned terms = static_cast<unsigned>(plan.batch) * runs;
    float total = 0.0F;
#pragma unroll 4
    for (unsigned i = slice; i < terms; i += kSumSlices) {
      const unsigned b = i / runs;
      total += problem.workspace[from + (i - b * runs) * of_run + b * of_batch];
    }
    __syncthreads();
    partial[slice][column] = total;
    __syncthreads();
    for (int other = 1; slice == 0 && other < kSumSlices; ++other) total += partial[other][column];
    return total;
  };
  if (blockIdx.x < state_blocks) {
    const StoredState state(args.scan, plan, static_cast<std::int64_t>(blockIdx.x) * kSumWidth + column);
    const float dA = sum(problem.at.states + state.index, plan.run() * plan.state_floats(),
                         plan.state_floats() / plan.batch);
    if (slice == 0 && state.exists) args.dA[state.in_channels] = dA;
    return;
  }
  const StoredRow row(plan, (blockIdx.x - state_blocks) * kSumWidth + column);
  const float dD = sum(problem.at.dD + row.index, plan.rows(), plan.rows() / plan.batch);
  const float ddelta_bias = sum(problem.at.ddelta_bias + row.index, plan.rows(), plan.rows() / plan.batch);
  if (slice != 0 || !row.exists) return;
  if (args.dD != nullptr) args.dD[row.d] = dD;
  if (args.ddelta_bias != nullptr) args.ddelta_bias[row.d] = ddelta_bias;
}

unsigned grid_of(std::int64_t blocks) {
  return static_cast<unsigned>(blocks);
}

ParallelKernels kernels_of(const ScanGradientArgs& args, DType io) {
  return with_io_type(
      io, [&]<class Io>(std::type_identity<Io>) { return parallel_kernels<Io>(in_pieces(args, io)); });
}

}  // namespace

bool parallel_backward_fits(DType io) {
  const auto bytes = with_io_type(
      io, []<class Io>(std::type_identity<Io>) { return parallel_kernels<Io>(true).gradient_bytes; });
  return static_cast<int>(bytes) <= cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

ParallelBackward::ParallelBackward(const ScanGradientArgs& args, DType io,
                                   const FusedBackwardParallelPlan& plan, float* workspace)
    : args_(args), io_(io), plan_(plan), workspace_(workspace) {
  const auto allow = [](auto* kernel, std::size_t bytes) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  };
  const ParallelKernels kernels = kernels_of(args, io);
  allow(kernels.segment, kernels.segment_bytes);
  allow(kernels.segment_with_carry, kernels.segment_with_carry_bytes);
  allow(kernels.gradient, kernels.gradient_bytes);
}

void ParallelBackward::launch(cudaStream_t stream, const AddShares& add_shares) const {
  const ParallelKernels kernels = kernels_of(args_, io_);
  const ParallelProblem problem{args_, plan_, fused_backward_parallel_workspace(plan_), workspace_};
  const bool one_span = plan_.spans() == 1;
  const auto forward = plan_.in_turn ? kernels.segment : kernels.segment_with_carry;
  forward<<<grid_of(plan_.segments() * plan_.blocks() * kSegmentBlocks), kSegmentThreads,
            plan_.in_turn ? kernels.segment_bytes : kernels.segment_with_carry_bytes, stream>>>(
      problem, 0, one_span, true);
  check_cuda(cudaGetLastError());
  // What blocks go through in turn needs no carries beforehand.
  combine_kernel<<<dim3(grid_of(plan_.state_floats() / kCombineThreads), plan_.in_turn ? 1 : 2),
                   kCombineThreads, 0, stream>>>(problem);
  check_cuda(cudaGetLastError());
  for (std::int64_t span = plan_.spans() - 1; span >= 0; --span) {
    const std::int64_t first = span * plan_.span_segments();
    const std::int64_t end = std::min((span + 1) * plan_.span, plan_.seqlen);
    const std::int64_t segments = std::min(first + plan_.span_segments(), plan_.segments()) - first;
    if (!one_span) {
      kernels.segment<<<grid_of(segments * plan_.blocks() * kSegmentBlocks), kSegmentThreads,
                        kernels.segment_bytes, stream>>>(problem, first, true, false);
      check_cuda(cudaGetLastError());
    }
    kernels.gradient<<<grid_of(ceil_div(segments, plan_.run()) * plan_.blocks()), kGradientThreads,
                       kernels.gradient_bytes, stream>>>(problem, first);
    check_cuda(cudaGetLastError());
    add_shares(problem.at.shares_B, args_.dB, args_.scan.b_strides, {span * plan_.span, end});
    add_shares(problem.at.shares_C, args_.dC, args_.scan.c_strides, {span * plan_.span, end});
  }
  const std::int64_t state_blocks = plan_.state_floats() / plan_.batch / kSumWidth;
  const std::int64_t row_blocks = plan_.rows() / plan_.batch / kSumWidth;
  sums_kernel<<<grid_of(state_blocks + row_blocks), kCombineThreads, 0, stream>>>(problem, state_blocks);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench
