#pragma once

#include "kernels/causal_conv1d/args.h"
#include "model/implementation.h"

namespace ssmbench::window {

/// The launch of the gradients' kernels, one function a dtype since each takes a while to compile.
/// `partials`: the workspace.
Launch backward_f32(const ConvBackwardArgs& args, float* partials);
Launch backward_f16(const ConvBackwardArgs& args, float* partials);
Launch backward_bf16(const ConvBackwardArgs& args, float* partials);

}  // namespace ssmbench::window
