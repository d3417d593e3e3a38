#pragma once

#include "kernels/causal_conv1d/args.h"
#include "kernels/causal_conv1d/window/map.h"
#include "model/implementation.h"

namespace ssmbench::window {

/// Calls `call` with the template arguments of a kernel but for the io type: the taps it is compiled for,
/// whether its loads are vectors, whether sequences are packed, and whether there is an activation.
template <class Call>
Launch with_options(const ConvInputs1d& in, bool by_vectors, const Call& call) {
  const auto with_silu = [&]<int kReach, bool kVector, bool kPacked>() {
    return in.silu ? call.template operator()<kReach, kVector, kPacked, true>()
                   : call.template operator()<kReach, kVector, kPacked, false>();
  };
  const auto with_packed = [&]<int kReach, bool kVector>() {
    return in.seq_idx != nullptr ? with_silu.template operator()<kReach, kVector, true>()
                                 : with_silu.template operator()<kReach, kVector, false>();
  };
  const auto with_vector = [&]<int kReach>() {
    return by_vectors ? with_packed.template operator()<kReach, true>()
                      : with_packed.template operator()<kReach, false>();
  };
  return reach_of(in.width) == 4 ? with_vector.template operator()<4>()
                                 : with_vector.template operator()<8>();
}

}  // namespace ssmbench::window
