#pragma once

#include "kernels/causal_conv1d/args.h"
#include "kernels/causal_conv1d/window/map.h"
#include "model/launch.h"

namespace ssmbench::window {

/// What a kernel is compiled for, or looks at as it runs.
enum class Is { no, yes, looked_at };

/// Whether inputs are plain, sequences packed, and outputs activated. Inputs are plain where the filter has
/// all taps of its kernel, rows of channels are whole vectors, and dout lies as x does. Common combinations
/// have kernels of their own; to compile all of them would take minutes.
template <bool kPlain, Is kPacked, Is kSilu>
struct Options {
  static constexpr bool kIsPlain = kPlain;
  /// Whether steps have the numbers of their sequences, all 0 where they are not packed.
  static constexpr bool kHasNumbers = kPacked != Is::no;
  static constexpr Is kIsActivated = kSilu;

  bool are_vectors;  ///< rows of channels

  SSMBENCH_HD bool by_vectors() const { return kPlain || are_vectors; }
  SSMBENCH_HD static bool silu(const ConvInputs1d& in) {
    return kSilu == Is::looked_at ? in.silu : kSilu == Is::yes;
  }
  template <class Filter>
  SSMBENCH_HD static bool has(const Filter& filter, int tap) {
    return kPlain || filter.has(tap);
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
/// workspaces have it, and its options. by_vectors: rows of channels are whole vectors.
template <class Call>
Launch with_options(const ConvInputs1d& in, bool by_vectors, bool is_same_layout, const Call& call) {
  const auto with = [&]<int kReach, bool kPlain, Is kPacked, Is kSilu>() {
    return call.template operator()<kReach>(Options<kPlain, kPacked, kSilu>{by_vectors});
  };
  const bool packed = in.seq_idx != nullptr;
  const bool is_plain = by_vectors && is_same_layout && in.width == reach_of(in.width);
  if (reach_of(in.width) == 4) {
    if (is_plain && !packed)
      return in.silu ? with.template operator()<4, true, Is::no, Is::yes>()
                     : with.template operator()<4, true, Is::no, Is::no>();
    if (is_plain)
      return in.silu ? with.template operator()<4, true, Is::yes, Is::yes>()
                     : with.template operator()<4, true, Is::yes, Is::no>();
    return packed ? with.template operator()<4, false, Is::yes, Is::looked_at>()
                  : with.template operator()<4, false, Is::no, Is::looked_at>();
  }
  return with.template operator()<8, false, Is::looked_at, Is::looked_at>();
}

}  // namespace ssmbench::window
