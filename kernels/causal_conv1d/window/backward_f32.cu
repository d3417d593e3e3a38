#include "kernels/causal_conv1d/window/backward.cuh"
#include "kernels/causal_conv1d/window/backward.h"

namespace ssmbench::window {

Launch backward_f32(const ConvBackwardArgs& args, float* partials) {
  return launch_backward<float>(args, partials);
}

}  // namespace ssmbench::window
