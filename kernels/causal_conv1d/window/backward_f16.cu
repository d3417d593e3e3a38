#include "kernels/causal_conv1d/window/backward.cuh"
#include "kernels/causal_conv1d/window/backward.h"

namespace ssmbench::window {

Launch backward_f16(const ConvBackwardArgs& args, float* partials) {
  return launch_backward<__half>(args, partials);
}

}  // namespace ssmbench::window
