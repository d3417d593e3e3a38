// causal_conv1d_bwd in fp64. With g_t = dout_t·act'(s_t), 0 where t is padding:
//   dx̃_τ = Σ_j weight_j·g_{τ+W−1−j}, over the steps that reach τ, and dfinal_states_{τ−(L−W+1)}
//   dweight_j = Σ_{b,t} g_t·x̃_{t−W+1+j},   dbias = Σ_{b,t} g_t
// dx and dinitial_states are dx̃ from step 0 on and before it. A term of dx̃ is multiplied once and takes part
// in W sums at most, W + 1 with dfinal_states. Sums over time and batch are those of reference/common/rounded.h.
// Threads over blocks of channels, each of which goes through the batch in order.

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "reference/causal_conv1d/convolution.h"
#include "reference/causal_conv1d/signals.h"
#include "reference/reference.h"

namespace ssmbench {
namespace {

/// dweight and dbias of a channel.
struct FilterGradient {
  std::vector<Sum<double>> weight;
  Sum<double> bias;
};

std::vector<Rounded<double>> adjoints_of(const ConvFilter& filter, const ConvSignal& signal,
                                         const std::vector<double>& dout) {
  std::vector<Rounded<double>> g(dout.size());
  for (std::int64_t t = 0; t < std::ssize(dout); ++t) {
    if (signal.is_padding(t)) continue;
    const Gate gate = activation(convolve(filter, signal, t), filter.silu);
    g[t] = filter.silu ? exactly(dout[t]) * gate.slope : exactly(dout[t]);
  }
  return g;
}

/// dx̃_τ for τ = at − (W−1); `dfinal` is what final_states add.
Rounded<double> input_gradient(const ConvFilter& filter, const ConvSignal& signal,
                               const std::vector<Rounded<double>>& g, std::int64_t at, double dfinal) {
  const std::int64_t width = filter.width();
  Rounded<double> sum{dfinal, std::abs(dfinal), 0};
  for (std::int64_t j = 0; j < width; ++j) {
    const std::int64_t t = at - j;
    if (t < 0 || t >= std::ssize(g) || signal.is_padding(t) || !signal.reaches(t, j, width)) continue;
    sum.value += filter.weight[j] * g[t].value;
    sum.magnitude += std::abs(filter.weight[j]) * g[t].magnitude;
    sum.error += std::abs(filter.weight[j]) * g[t].error;
  }
  sum.error += static_cast<double>(width + 2) * (sum.magnitude + kUnderflowError);
  return within_f32(sum);
}

void add_to(FilterGradient& gradient, const ConvSignal& signal, const std::vector<Rounded<double>>& g) {
  const std::int64_t width = std::ssize(gradient.weight);
  for (std::int64_t t = 0; t < std::ssize(g); ++t) {
    gradient.bias.add(g[t]);
    for (std::int64_t j = 0; j < width; ++j)
      if (!signal.is_padding(t) && signal.reaches(t, j, width))
        gradient.weight[j].add(g[t] * exactly(signal.x[t + j]));
  }
}

void put(ReferenceOutput& output, std::int64_t at, const Rounded<double>& value) {
  output.expected[at] = value.value;
  output.bound[at] = static_cast<float>(value.error);
}

class Backward {
 public:
  Backward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : conv_(problem), inputs_(inputs), outputs_(outputs) {}

  /// The channels from `first` on.
  void run(std::int64_t first, const std::atomic<bool>& stop) {
    const std::int64_t channels = std::min(kConvBlock, conv_.dim - first);
    std::vector<FilterGradient> gradients(
        channels, FilterGradient{std::vector<Sum<double>>(static_cast<std::size_t>(conv_.width)), {}});
    for (std::int64_t batch = 0; batch < conv_.batch && !stop; ++batch) {
      const auto signals = signals_of(conv_, inputs_, batch, first);
      const auto douts = rows_of(conv_, inputs_.at("dout"), batch, first);
      for (std::int64_t c = 0; c < channels; ++c) {
        const ConvFilter filter =
            filter_of(inputs_.at("weight"), inputs_.find("bias"), first + c, conv_.silu);
        const auto g = adjoints_of(filter, signals[c], douts[c]);
        put_row(batch * conv_.dim + first + c, filter, signals[c], g);
        add_to(gradients[c], signals[c], g);
      }
    }
    const std::int64_t terms = conv_.batch * conv_.seqlen;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t j = 0; j < conv_.width; ++j)
        put(outputs_.at("dweight"), (first + c) * conv_.width + j, gradients[c].weight[j].over(terms));
      if (conv_.has_bias) put(outputs_.at("dbias"), first + c, gradients[c].bias.over(terms));
    }
  }

 private:
  /// dx and dinitial_states of row `row` of batch × channels.
  void put_row(std::int64_t row, const ConvFilter& filter, const ConvSignal& signal,
               const std::vector<Rounded<double>>& g) {
    const std::int64_t taps = conv_.taps();
    const TensorView* dfinal = inputs_.find("dfinal_states");
    for (std::int64_t at = conv_.has_initial_states ? 0 : taps; at < taps + conv_.seqlen; ++at) {
      const std::int64_t final = at - conv_.seqlen;
      const double added = dfinal != nullptr && final >= 0
                               ? load_as_double(dfinal->data, row * taps + final, dfinal->dtype)
                               : 0;
      const Rounded<double> value = input_gradient(filter, signal, g, at, added);
      if (at < taps)
        put(outputs_.at("dinitial_states"), row * taps + at, value);
      else
        put(outputs_.at("dx"), row * conv_.seqlen + at - taps, value);
    }
  }

  CausalConv1d conv_;
  const TensorSet& inputs_;
  ReferenceOutputs& outputs_;
};

ReferenceOutputs compute_backward(const Problem& problem, const TensorSet& inputs,
                                  const std::atomic<bool>& stop) {
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors())
    if (tensor.role == Role::output) outputs[tensor.name] = empty_output(tensor.shape);
  Backward backward(problem, inputs, outputs);
  const std::int64_t blocks = channel_blocks(problem.size("dim"));
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t block = 0; block < blocks; ++block)
    if (!stop) backward.run(block * kConvBlock, stop);
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t bytes_of_backward(const Problem& problem) {
  return output_bytes(problem, [](const TensorSpec&) { return false; });
}

const ReferenceRegistration backward_registration({.op = "causal_conv1d_bwd",
                                                   .compute = compute_backward,
                                                   .bytes = bytes_of_backward});

}  // namespace
}  // namespace ssmbench
