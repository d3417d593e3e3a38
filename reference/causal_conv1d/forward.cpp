// causal_conv1d_fwd in fp64. Blocks of neighbouring channels share the cache lines of layout bld; threads over
// blocks. final_states are copies, without an error.

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "reference/causal_conv1d/convolution.h"
#include "reference/causal_conv1d/signals.h"
#include "reference/reference.h"

namespace ssmbench {
namespace {

void forward_row(const CausalConv1d& conv, const ConvFilter& filter, const ConvSignal& signal,
                 std::int64_t row, ReferenceOutputs& outputs) {
  ReferenceOutput& out = outputs.at("out");
  for (std::int64_t t = 0; t < conv.seqlen; ++t) {
    if (signal.is_padding(t)) continue;  // exactly 0
    const Rounded<double> value = activation(convolve(filter, signal, t), conv.silu).value;
    out.expected[row * conv.seqlen + t] = value.value;
    out.bound[row * conv.seqlen + t] = static_cast<float>(value.error);
  }
  if (conv.has_final_states)
    std::copy_n(signal.x.begin() + conv.seqlen, conv.taps(),
                outputs.at("final_states").expected.begin() + row * conv.taps());
}

ReferenceOutputs compute_forward(const Problem& problem, const TensorSet& inputs,
                                 const std::atomic<bool>& stop) {
  const CausalConv1d conv(problem);
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors())
    if (tensor.role == Role::output) outputs[tensor.name] = empty_output(tensor.shape);
  const std::int64_t blocks = channel_blocks(conv.dim);
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t item = 0; item < conv.batch * blocks; ++item) {
    if (stop) continue;
    const std::int64_t batch = item / blocks;
    const std::int64_t first = item % blocks * kConvBlock;
    const auto signals = signals_of(conv, inputs, batch, first);
    for (std::int64_t c = 0; c < std::ssize(signals); ++c)
      forward_row(conv, filter_of(inputs.at("weight"), inputs.find("bias"), first + c, conv.silu), signals[c],
                  batch * conv.dim + first + c, outputs);
  }
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t bytes_of_forward(const Problem& problem) {
  return output_bytes(problem, [](const TensorSpec&) { return false; });
}

const ReferenceRegistration forward_registration({.op = "causal_conv1d_fwd",
                                                  .compute = compute_forward,
                                                  .bytes = bytes_of_forward});

}  // namespace
}  // namespace ssmbench
