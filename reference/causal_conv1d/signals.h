#pragma once

#include <cstdint>
#include <vector>

#include "model/tensor.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "reference/causal_conv1d/convolution.h"

namespace ssmbench {

/// Channels that are read at once.
inline constexpr std::int64_t kConvBlock = 8;

inline std::int64_t channel_blocks(std::int64_t dim) {
  return (dim + kConvBlock - 1) / kConvBlock;
}

/// x̃ of the channels from `first` on, kConvBlock of them or as many as there are.
std::vector<ConvSignal> signals_of(const CausalConv1d& conv, const TensorSet& inputs, std::int64_t batch,
                                   std::int64_t first);

/// The rows of a tensor (B, D, L) of the same channels.
std::vector<std::vector<double>> rows_of(const CausalConv1d& conv, const TensorView& tensor,
                                         std::int64_t batch, std::int64_t first);

}  // namespace ssmbench
