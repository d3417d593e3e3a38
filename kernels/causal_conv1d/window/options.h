#pragma once

#include "kernels/causal_conv1d/args.h"
#include "kernels/causal_conv1d/window/elements.cuh"
#include "kernels/causal_conv1d/window/map.h"
#include "model/implementation.h"

namespace ssmbench::window {

/// Calls `call` with the template arguments of a kernel but for the io type: the taps it is compiled for,
/// whether its loads are vectors, whether sequences may be packed, and the activation. The common case, short
/// filters of unpacked sequences by vectors, has kernels of its own. The others read more of the options when
/// they run: 7 kernels in place of 16, each of which takes a third of a second to compile.
template <class Call>
Launch with_options(const ConvInputs1d& in, bool by_vectors, const Call& call) {
  constexpr auto kAny = Activation::any;
  const bool is_short = reach_of(in.width) == 4;
  if (!by_vectors)
    return is_short ? call.template operator()<4, false, true, kAny>()
                    : call.template operator()<8, false, true, kAny>();
  if (in.seq_idx != nullptr)
    return is_short ? call.template operator()<4, true, true, kAny>()
                    : call.template operator()<8, true, true, kAny>();
  if (!is_short) return call.template operator()<8, true, false, kAny>();
  return in.silu ? call.template operator()<4, true, false, Activation::silu>()
                 : call.template operator()<4, true, false, Activation::none>();
}

}  // namespace ssmbench::window
