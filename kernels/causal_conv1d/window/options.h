#pragma once

#include "kernels/causal_conv1d/args.h"
#include "kernels/causal_conv1d/window/map.h"
#include "model/launch.h"

namespace ssmbench::window {

/// What a kernel is compiled for: filters of up to 4 taps on whole vectors, of one sequence or of packed
/// ones; or any of that, which it looks at as it runs. Compiling each combination would take minutes.
enum class Kind { vectors, packed, any };

/// Whether steps have the numbers of their sequences, all 0 where they are not packed.
template <Kind kKind>
inline constexpr bool kHasNumbers = kKind != Kind::vectors;

/// What a kernel looks at as it runs.
template <Kind kKind>
struct Access {
  bool are_vectors;

  SSMBENCH_HD bool by_vectors() const { return kKind != Kind::any || are_vectors; }

#ifdef __CUDACC__
  /// Of step t: one that no other step has where there is no step.
  __device__ int number(const ConvInputs1d& in, std::int64_t batch, std::int64_t t) const {
    if (!kHasNumbers<kKind> || (kKind == Kind::any && in.seq_idx == nullptr)) return 0;
    return t >= 0 && t < in.seqlen ? __ldg(in.seq_idx + batch * in.seqlen + t) : -2;
  }
#endif
};

/// Calls `call` with the template arguments of a kernel but for the io type, and what it looks at.
template <class Call>
Launch with_options(const ConvInputs1d& in, bool by_vectors, const Call& call) {
  const auto of_kind = [&]<int kReach, Kind kKind>() {
    return call.template operator()<kReach, kKind>(Access<kKind>{by_vectors});
  };
  if (reach_of(in.width) > 4) return of_kind.template operator()<8, Kind::any>();
  if (!by_vectors) return of_kind.template operator()<4, Kind::any>();
  return in.seq_idx != nullptr ? of_kind.template operator()<4, Kind::packed>()
                               : of_kind.template operator()<4, Kind::vectors>();
}

}  // namespace ssmbench::window
