#include "ops/causal_conv1d/work.h"

#include <algorithm>

#include "ops/causal_conv1d/causal_conv1d.h"

namespace ssmbench {

Work conv_fwd_least_work(const Problem& problem, Math /*math*/) {
  const CausalConv1d conv(problem);
  return {.bytes = tensor_bytes(problem),
          .exponentials = conv.silu ? conv.elements() : 0,
          .fmas = static_cast<double>(conv.width) * conv.elements()};
}

/// silu's slope needs the convolution again; dx and dweight are as much each.
Work conv_bwd_least_work(const Problem& problem, Math /*math*/) {
  const CausalConv1d conv(problem);
  return {.bytes = tensor_bytes(problem),
          .exponentials = conv.silu ? conv.elements() : 0,
          .fmas = static_cast<double>((conv.silu ? 3 : 2) * conv.width) * conv.elements()};
}

Work conv_update_least_work(const Problem& problem, Math /*math*/) {
  const ConvUpdate update(problem);
  const std::int64_t rows = update.batch - (update.pads ? update.batch / 4 : 0);
  const double io_bytes = static_cast<double>(size_of(problem.dtype()));
  const double channels = static_cast<double>(rows) * static_cast<double>(update.dim);
  const std::int64_t read = std::max(update.taps(), update.state_len - update.tokens);
  const std::int64_t written = update.store == ConvUpdate::Store::none ? 0 : update.state_len;
  double shared = 0;  // by all rows, and indices
  for (const auto& tensor : problem.tensors())
    if (tensor.name == "weight" || tensor.name == "bias" || tensor.dtype == DType::i32)
      shared += static_cast<double>(tensor.bytes());
  const double outputs = channels * static_cast<double>(update.tokens);
  return {.bytes = shared + io_bytes * (2 * outputs + channels * static_cast<double>(read + written)),
          .exponentials = update.silu ? outputs : 0,
          .fmas = static_cast<double>(update.width) * outputs};
}

}  // namespace ssmbench
