#pragma once

#include "kernels/common/hopper/tensor_map.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/parts.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/walk.h"

// The host's side of the Hopper gradient kernel: tensor maps, launch.

namespace ssmbench::ssd_hopper_bwd {

/// A kernel and the dynamic shared memory of its blocks.
struct Variant {
  void (*kernel)(GradientArgs);
  int shared_bytes;
};

/// The kernels of walks: of parts, where time is in parts, and of all chunks' states.
struct WalkKernels {
  void (*parts)(WalkArgs, WalkArgs);
  void (*images)(WalkArgs, WalkArgs);
  int heads_of_block;
  int shared_bytes;
};

/// The walks over all chunks of all heads.
struct Walks {
  ChunkedBwdPlan plan;
  float* steps;
  WalkArgs forward, backward;
  WalkKernels kernels;
  WalkKernels of_one_head;  ///< a block has one head
};

/// The kernel for a padded dstate of 64 or 128, with or without z.
template <class Io>
Variant variant_for(int states, bool gated);

/// What comes before the gradients: the steps of all chunks, then the states and their gradients. `handed`: room
/// for walk_handed_layout. Throws DeviceError when a tensor cannot be mapped.
template <class Io>
Walks make_walks(const SsdBwdArgs& bwd, const ChunkedBwdPlan& plan, const ChunkedBwdWorkspace& workspace,
                 void* handed);
/// Throws DeviceError when they cannot be launched.
template <class Io>
void launch_walks(const Walks& walks, cudaStream_t stream);
/// The same where `steps` have been filled in.
template <class Io>
void launch_walks_alone(const Walks& walks, cudaStream_t stream);

/// A map of a (B, L, rows, columns) tensor, in tiles of a chunk's steps.
inline CUtensorMap map_sequences(const void* data, const SsdInputs& in, std::int64_t rows,
                                 std::int64_t columns) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return hopper::tensor_map({.data = data,
                             .rank = 4,
                             .sizes = {size(columns), size(rows), size(in.seqlen), size(in.batch)},
                             .tile = {hopper::kTileColumns, 1, kSteps, 1}});
}

/// Throws DeviceError when a tensor cannot be mapped.
inline GradientArgs make_args(const SsdBwdArgs& bwd, const ChunkedBwdPlan& plan,
                              const ChunkedBwdWorkspace& workspace) {
  const SsdInputs& in = bwd.in;
  const auto of_heads = [&](const void* data) { return map_sequences(data, in, in.nheads, in.headdim); };
  GradientArgs args{};
  args.x = of_heads(in.x);
  args.dout = of_heads(bwd.dout);
  args.dx = of_heads(bwd.dx);
  if (in.z != nullptr) {
    args.z = of_heads(in.z);
    args.dz = of_heads(bwd.dz);
  }
  args.B = map_sequences(in.B, in, in.groups, in.dstate);
  args.C = map_sequences(in.C, in, in.groups, in.dstate);
  args.bwd = bwd;
  args.plan = plan;
  args.workspace = workspace;
  return args;
}

/// Throws DeviceError when it cannot be launched.
inline void launch(const Variant& variant, const GradientArgs& args, cudaStream_t stream) {
  const SsdInputs& in = args.bwd.in;
  const std::int64_t blocks = in.batch * args.plan.chunks * in.groups * args.plan.slices;
  variant.kernel<<<static_cast<unsigned>(blocks), kGradientThreads,
                   static_cast<std::size_t>(variant.shared_bytes), stream>>>(args);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench::ssd_hopper_bwd
