#pragma once

#include "kernels/causal_conv1d/args.h"
#include "kernels/causal_conv1d/window/map.h"
#include "model/launch.h"

namespace ssmbench::window {

/// What a kernel is compiled for, or looks at as it runs.
enum class Is { no, yes, looked_at };

/// Whether loads are vectors, sequences packed, and outputs activated. Common combinations have kernels of
/// their own; to compile all of them would take minutes.
template <Is kVectors, Is kPacked, Is kSilu>
struct Options {
  /// Whether steps have the numbers of their sequences, all 0 where they are not packed.
  static constexpr bool kHasNumbers = kPacked != Is::no;
  static constexpr Is kAreVectors = kVectors;
  static constexpr Is kIsActivated = kSilu;

  bool are_vectors;

  SSMBENCH_HD bool by_vectors() const {
    return kVectors == Is::looked_at ? are_vectors : kVectors == Is::yes;
  }
  SSMBENCH_HD static bool silu(const ConvInputs1d& in) {
    return kSilu == Is::looked_at ? in.silu : kSilu == Is::yes;
  }

#ifdef __CUDACC__
  /// Of step t: one that no other step has where there is no step.
  __device__ static int number(const ConvInputs1d& in, std::int64_t batch, std::int64_t t) {
    if (!kHasNumbers || (kPacked == Is::looked_at && in.seq_idx == nullptr)) return 0;
    return t >= 0 && t < in.seqlen ? __ldg(in.seq_idx + batch * in.seqlen + t) : -2;
  }
#endif
};

/// Calls `call` with the taps that a kernel is compiled for, which are reach_of(in.width) as plans and
/// workspaces have it, and its options.
template <class Call>
Launch with_options(const ConvInputs1d& in, bool by_vectors, const Call& call) {
  const auto with = [&]<int kReach, Is kVectors, Is kPacked, Is kSilu>() {
    return call.template operator()<kReach>(Options<kVectors, kPacked, kSilu>{by_vectors});
  };
  const bool packed = in.seq_idx != nullptr;
  if (reach_of(in.width) == 4) {
    if (by_vectors && !packed)
      return in.silu ? with.template operator()<4, Is::yes, Is::no, Is::yes>()
                     : with.template operator()<4, Is::yes, Is::no, Is::no>();
    if (by_vectors)
      return in.silu ? with.template operator()<4, Is::yes, Is::yes, Is::yes>()
                     : with.template operator()<4, Is::yes, Is::yes, Is::no>();
    return packed ? with.template operator()<4, Is::no, Is::yes, Is::looked_at>()
                  : with.template operator()<4, Is::no, Is::no, Is::looked_at>();
  }
  if (by_vectors && !packed) return with.template operator()<8, Is::yes, Is::no, Is::looked_at>();
  return with.template operator()<8, Is::looked_at, Is::looked_at, Is::looked_at>();
}

}  // namespace ssmbench::window
