#pragma once

#include <cuda_runtime.h>

#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/fused_bwd/map.h"
#include "kernels/selective_scan/segment_range.h"
#include "model/dtype.h"

namespace ssmbench::fused_bwd {

/// Blocks of the largest launch that only adds.
std::int64_t add_blocks(const BackwardPlan& plan);

/// Whether the current device's blocks may have as much shared memory as these kernels take: from Hopper on.
bool fits(DType io);

/// Whether tensors are aligned as where x is given, in a plan of one round.
bool takes_x(const ScanGradientArgs& args, DType io);

/// What enters a problem at its ends, and what leaves it there; (B, D, N) or null.
struct ProblemEnds {
  const float *state, *gradient;  ///< before the first step, and of the state after the last; null: zeros
  float *leaving, *entering;      ///< the state after the last step, the gradient of the one before the first
};

struct KernelArgs;
struct BackwardKernels;

/// The gradients of problems for which applies() and fits() hold.
class Backward {
 public:
  /// `workspace` has backward_workspace(plan).floats.
  Backward(const ScanGradientArgs& args, DType io, const BackwardPlan& plan, float* workspace);
  /// Launches everything. Throws DeviceError.
  void launch(cudaStream_t stream) const;

  /// launch() in two halves, of a plan of one round: all segments from zeros; and, given that, the gradients.
  void launch_segments(cudaStream_t stream) const;
  void launch_gradients(cudaStream_t stream) const;
  /// Between them: what leaves when that enters, where it is asked for. The plan is not in turn.
  void launch_ends(const ProblemEnds& ends, cudaStream_t stream) const;

 private:
  /// As if the round's states were all.
  KernelArgs of_round(std::int64_t round) const;
  /// Segments of a span of time.
  SegmentRange segments_of(std::int64_t span) const;
  void run_segments(const BackwardKernels& kernels, const KernelArgs& kernel, cudaStream_t stream) const;
  void connect_segments(const KernelArgs& kernel, cudaStream_t stream) const;
  void run_span(const BackwardKernels& kernels, const KernelArgs& kernel, std::int64_t span,
                cudaStream_t stream) const;
  void add(const KernelArgs& kernel, const SegmentRange& steps, cudaStream_t stream) const;

  ScanGradientArgs args_;
  DType io_;
  BackwardPlan plan_;
  float* workspace_;
};

}  // namespace ssmbench::fused_bwd
