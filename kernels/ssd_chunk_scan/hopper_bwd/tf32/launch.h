#pragma once

#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

// cuda-hopper backward for f32 tensors, on the host.

namespace ssmbench::ssd_hopper_bwd::tf32 {

/// All kernels but those that read flows.
struct Gradients {
  WalkArgs forward, backward;
  GradientArgs args;
};

/// `workspace`: that of cuda-chunked. Throws DeviceError when a tensor cannot be mapped, or the device has
/// less shared memory.
Gradients make_gradients(const SsdBwdArgs& bwd, const ChunkedBwdPlan& plan,
                         const ChunkedBwdWorkspace& workspace);
/// The steps, the walks over states, the gradients and the sums. Throws DeviceError.
void launch(const Gradients& gradients, cudaStream_t stream);

}  // namespace ssmbench::ssd_hopper_bwd::tf32
