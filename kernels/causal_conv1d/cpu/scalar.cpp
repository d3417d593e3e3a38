// cpu-scalar: the convolution as the definition has it, one channel after the other on one thread, f32. It is
// the readable version of what every faster implementation computes.

#include <algorithm>
#include <vector>

#include "kernels/causal_conv1d/bind.h"
#include "kernels/causal_conv1d/cpu/filters.h"
#include "kernels/common/activations.h"

namespace ssmbench::scalar_conv {
namespace {

/// Element (b, d, t) of a sequence.
std::int64_t offset_of_step(const ConvInputs1d& in, bool channels_last, std::int64_t b, std::int64_t d,
                            std::int64_t t) {
  return channels_last ? (b * in.seqlen + t) * in.dim + d : (b * in.dim + d) * in.seqlen + t;
}

/// One channel of one sequence, converted: x̃, W−1 steps before the first, then L.
template <class Io>
class Channel {
 public:
  Channel(const ConvInputs1d& in, const ConvFilters& filters, std::int64_t b, std::int64_t d)
      : in_(in),
        weight_(filters.weight.data() + d * in.width),
        bias_(filters.bias[d]),
        x_(in.taps() + in.seqlen, 0.0F),
        seq_idx_(in.seq_idx == nullptr ? nullptr : in.seq_idx + b * in.seqlen) {
    const std::int64_t state = (b * in.dim + d) * in.taps();
    for (int i = 0; in.initial_states != nullptr && i < in.taps(); ++i)
      x_[i] = Io::load(static_cast<const Storage*>(in.initial_states)[state + i]);
    for (std::int64_t t = 0; t < in.seqlen; ++t)
      x_[in.taps() + t] =
          Io::load(static_cast<const Storage*>(in.x)[offset_of_step(in, in.channels_last, b, d, t)]);
  }

  float x(std::int64_t at) const { return x_[at]; }  ///< from step −(W−1) on
  float weight(int j) const { return weight_[j]; }
  bool is_padding(std::int64_t t) const { return seq_idx_ != nullptr && seq_idx_[t] < 0; }
  /// Whether tap j of step t is of the same sequence.
  bool reaches(std::int64_t t, int j) const {
    if (seq_idx_ == nullptr) return true;
    const std::int64_t from = t - in_.taps() + j;
    return from >= 0 && seq_idx_[from] == seq_idx_[t];
  }
  float convolve(std::int64_t t) const {
    float s = bias_;
    for (int j = 0; j < in_.width; ++j)
      if (reaches(t, j)) s += weight_[j] * x_[t + j];
    return s;
  }

 private:
  using Storage = typename Io::Storage;

  const ConvInputs1d& in_;
  const float* weight_;
  float bias_;
  std::vector<float> x_;
  const std::int32_t* seq_idx_;
};

template <class Io>
void forward(const ConvForwardArgs& args) {
  using Storage = typename Io::Storage;
  const ConvInputs1d& in = args.in;
  const ConvFilters filters = ConvFilters::load<Io>(in.weights, in.dim, in.width);
  for (std::int64_t b = 0; b < in.batch; ++b)
    for (std::int64_t d = 0; d < in.dim; ++d) {
      const Channel<Io> channel(in, filters, b, d);
      for (std::int64_t t = 0; t < in.seqlen; ++t) {
        const float s = channel.is_padding(t) ? 0.0F : channel.convolve(t);
        static_cast<Storage*>(args.out)[offset_of_step(in, in.channels_last, b, d, t)] =
            Io::store(in.silu ? silu(s) : s);
      }
      for (int i = 0; args.final_states != nullptr && i < in.taps(); ++i)
        static_cast<Storage*>(args.final_states)[(b * in.dim + d) * in.taps() + i] =
            Io::store(channel.x(in.seqlen + i));
    }
}

/// The gradients of one channel of one sequence; adds to those of its weights.
template <class Io>
void backward_channel(const ConvBackwardArgs& args, const ConvFilters& filters, std::int64_t b,
                      std::int64_t d) {
  using Storage = typename Io::Storage;
  const ConvInputs1d& in = args.in;
  const Channel<Io> channel(in, filters, b, d);
  const std::int64_t state = (b * in.dim + d) * in.taps();
  std::vector<float> dx(in.taps() + in.seqlen, 0.0F);  // from step −(W−1) on
  for (int i = 0; args.dfinal_states != nullptr && i < in.taps(); ++i)
    dx[in.seqlen + i] = Io::load(static_cast<const Storage*>(args.dfinal_states)[state + i]);
  for (std::int64_t t = 0; t < in.seqlen; ++t) {
    if (channel.is_padding(t)) continue;
    const std::int64_t at = offset_of_step(in, args.dout_channels_last, b, d, t);
    float g = Io::load(static_cast<const Storage*>(args.dout)[at]);
    if (in.silu) g *= silu_slope(channel.convolve(t)).slope;
    if (args.dbias != nullptr) args.dbias[d] += g;
    for (int j = 0; j < in.width; ++j)
      if (channel.reaches(t, j)) {
        dx[t + j] += channel.weight(j) * g;
        args.dweight[d * in.width + j] += g * channel.x(t + j);
      }
  }
  for (std::int64_t t = 0; t < in.seqlen; ++t)
    static_cast<Storage*>(args.dx)[offset_of_step(in, in.channels_last, b, d, t)] =
        Io::store(dx[in.taps() + t]);
  for (int i = 0; args.dinitial_states != nullptr && i < in.taps(); ++i)
    static_cast<Storage*>(args.dinitial_states)[state + i] = Io::store(dx[i]);
}

template <class Io>
void backward(const ConvBackwardArgs& args) {
  const ConvInputs1d& in = args.in;
  const ConvFilters filters = ConvFilters::load<Io>(in.weights, in.dim, in.width);
  std::fill_n(args.dweight, in.dim * in.width, 0.0F);
  if (args.dbias != nullptr) std::fill_n(args.dbias, in.dim, 0.0F);
  for (std::int64_t b = 0; b < in.batch; ++b)
    for (std::int64_t d = 0; d < in.dim; ++d) backward_channel<Io>(args, filters, b, d);
}

template <class Io>
void update(const ConvUpdateArgs& args) {
  using Storage = typename Io::Storage;
  const ConvFilters filters = ConvFilters::load<Io>(args.weights, args.dim, args.width);
  const std::int64_t kept = args.state_len;
  const std::int64_t between = args.channels_last ? args.dim : 1;  // steps of a state
  std::vector<float> all(kept + args.tokens);                      // conv_state ++ x
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t source = args.source == nullptr ? b : args.source[b];
    const std::int64_t destination = args.source == nullptr ? b : args.destination[b];
    if (source < 0) {  // padding
      const std::int64_t row = args.tokens * args.dim;
      std::fill_n(static_cast<Storage*>(args.out) + b * row, row, Io::store(0.0F));
      continue;
    }
    for (std::int64_t d = 0; d < args.dim; ++d) {
      const std::int64_t channel = args.channels_last ? d : d * kept;
      const auto state_of = [&](std::int64_t slot) {
        return static_cast<Storage*>(args.conv_state) + slot * args.dim * kept + channel;
      };
      const auto at = [&](std::int64_t t) { return (b * args.tokens + t) * args.dim + d; };
      for (std::int64_t k = 0; k < kept; ++k) all[k] = Io::load(state_of(source)[k * between]);
      for (std::int64_t t = 0; t < args.tokens; ++t)
        all[kept + t] = Io::load(static_cast<const Storage*>(args.x)[at(t)]);
      for (std::int64_t t = 0; t < args.tokens; ++t) {
        float s = filters.bias[d];
        for (int j = 0; j < args.width; ++j)
          s += filters.weight[d * args.width + j] * all[kept - args.taps() + t + j];
        static_cast<Storage*>(args.out)[at(t)] = Io::store(args.silu ? silu(s) : s);
      }
      for (std::int64_t k = 0; destination >= 0 && k < kept; ++k)
        state_of(destination)[k * between] = Io::store(all[args.tokens + k]);
    }
  }
}

Launch bind_forward(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ConvForwardArgs args = bind_conv_fwd(problem, tensors);
  return with_io_type(problem.dtype(),
                      [&args]<class Io>(Io) -> Launch { return [args](void*) { forward<Io>(args); }; });
}

Launch bind_backward(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ConvBackwardArgs args = bind_conv_bwd(problem, tensors);
  return with_io_type(problem.dtype(),
                      [&args]<class Io>(Io) -> Launch { return [args](void*) { backward<Io>(args); }; });
}

Launch bind_update(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ConvUpdateArgs args = bind_conv_update(problem, tensors);
  return with_io_type(problem.dtype(),
                      [&args]<class Io>(Io) -> Launch { return [args](void*) { update<Io>(args); }; });
}

Implementation plain(const char* op, Launch (*bind)(const Problem&, const TensorSet&, void*)) {
  return {.name = "cpu-scalar",
          .op = op,
          .device = DeviceKind::cpu,
          .summary = "the plain loop of the definition, one thread",
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = bind};
}

const Registration registration_of_forward{plain("causal_conv1d_fwd", bind_forward)};
const Registration registration_of_backward{plain("causal_conv1d_bwd", bind_backward)};
const Registration registration_of_update{plain("causal_conv1d_update", bind_update)};

}  // namespace
}  // namespace ssmbench::scalar_conv
