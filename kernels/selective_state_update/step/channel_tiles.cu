// cuda-step: the kernels of channel_tiles.cuh.

#include "kernels/selective_state_update/step/channel_tiles.cuh"

#include "kernels/selective_state_update/step/instances.cuh"

namespace ssmbench::step {
namespace {

template <class Io, class State>
Kernel tiles_of(bool several_tokens) {
  return several_tokens ? tokens_channel_tiles<Io, State> : step_channel_tiles<Io, State>;
}

}  // namespace

Kernel channel_tiles_kernel(DType io, DType state, bool several_tokens) {
  return with_io_type(io, [&]<class Io>(std::type_identity<Io>) -> Kernel {
    if (state == DType::f32) return tiles_of<Io, float>(several_tokens);
    if constexpr (std::is_same_v<Io, __nv_bfloat16>)
      if (state == DType::f16) return tiles_of<Io, __half>(several_tokens);
    return tiles_of<Io, Io>(several_tokens);
  });
}

}  // namespace ssmbench::step
