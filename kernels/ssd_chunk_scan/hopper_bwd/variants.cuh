#pragma once

#include "kernels/ssd_chunk_scan/hopper_bwd/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::ssd_hopper_bwd {

/// How a block's work is divided in bf16 with z.
inline constexpr Roles kGatedRoles = Roles::two;

template <class T>
Variant variant_of() {
  return {ssd_hopper_gradients_kernel<T>, Layout<T>::kBytes, T::kThreads};
}

template <class Io>
Variant variant_for(int states, bool gated) {
  constexpr Roles kRoles = kNarrowRange<Io> ? Roles::two : kGatedRoles;
  if (states == 64)
    return gated ? variant_of<Traits<Io, 64, true, kRoles>>() : variant_of<Traits<Io, 64, false>>();
  return gated ? variant_of<Traits<Io, 128, true, kRoles>>() : variant_of<Traits<Io, 128, false>>();
}

}  // namespace ssmbench::ssd_hopper_bwd
