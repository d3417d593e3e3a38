#include "reference/causal_conv1d/signals.h"

#include <algorithm>

#include "reference/common/with_loader.h"

namespace ssmbench {

std::vector<std::vector<double>> rows_of(const CausalConv1d& conv, const TensorView& tensor,
                                         std::int64_t batch, std::int64_t first) {
  const std::int64_t channels = std::min(kConvBlock, conv.dim - first);
  std::vector<std::vector<double>> rows(channels, std::vector<double>(conv.seqlen));
  const std::int64_t begin = batch * tensor.strides[0] + first * tensor.strides[1];
  with_loader(tensor.dtype, [&](auto load) {
    for (std::int64_t t = 0; t < conv.seqlen; ++t)
      for (std::int64_t c = 0; c < channels; ++c)
        rows[c][t] = load(tensor.data, begin + c * tensor.strides[1] + t * tensor.strides[2]);
  });
  return rows;
}

std::vector<ConvSignal> signals_of(const CausalConv1d& conv, const TensorSet& inputs, std::int64_t batch,
                                   std::int64_t first) {
  std::vector<ConvSignal> signals;
  const TensorView* states = inputs.find("initial_states");
  const TensorView* seq_idx = inputs.find("seq_idx");
  for (const auto& row : rows_of(conv, inputs.at("x"), batch, first)) {
    const std::int64_t channel = first + std::ssize(signals);
    ConvSignal& signal = signals.emplace_back();
    signal.x.assign(conv.taps(), 0);
    for (std::int64_t i = 0; states != nullptr && i < conv.taps(); ++i)
      signal.x[i] =
          load_as_double(states->data, (batch * conv.dim + channel) * conv.taps() + i, states->dtype);
    signal.x.insert(signal.x.end(), row.begin(), row.end());
    if (seq_idx != nullptr)
      signal.seq_idx = static_cast<const std::int32_t*>(seq_idx->data) + batch * conv.seqlen;
  }
  return signals;
}

}  // namespace ssmbench
