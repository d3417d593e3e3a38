#pragma once

#include <cstdint>
#include <vector>

#include "model/tensor.h"
#include "reference/common/activations.h"
#include "reference/common/rounded.h"

// The convolution in fp64, of one channel, with the error of an implementation beside each value.

namespace ssmbench {

/// W weights, from the tap of the oldest step to that of the newest, and the bias of one channel.
struct ConvFilter {
  std::vector<double> weight;
  double bias = 0;
  bool silu = false;

  std::int64_t width() const { return static_cast<std::int64_t>(weight.size()); }
};

/// The filter of channel `channel`; `bias` may be null.
ConvFilter filter_of(const TensorView& weight, const TensorView* bias, std::int64_t channel, bool silu);

/// x̃ of one channel: W−1 steps before the first, then L.
struct ConvSignal {
  std::vector<double> x;
  const std::int32_t* seq_idx = nullptr;  ///< of the L steps; null where nothing is packed

  /// Whether step t reaches the step at x[t + j] by tap j.
  bool reaches(std::int64_t t, std::int64_t j, std::int64_t width) const {
    if (seq_idx == nullptr) return true;
    const std::int64_t from = t - (width - 1) + j;
    return from >= 0 && seq_idx[from] == seq_idx[t];
  }
  bool is_padding(std::int64_t t) const { return seq_idx != nullptr && seq_idx[t] < 0; }
};

/// s_t, charged with W + 1 roundings of all terms' magnitude: whatever their order, a term is multiplied once
/// and takes part in W sums at most.
Rounded<double> convolve(const ConvFilter& filter, const ConvSignal& signal, std::int64_t t);

/// The activation of s and its derivative. An error of s counts with the derivative of either.
Gate activation(const Rounded<double>& s, bool silu);

}  // namespace ssmbench
