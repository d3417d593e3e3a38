// causal_conv1d_update in fp64: the convolution of conv_state ++ x, of whose T last steps the outputs are. The
// state is copied, without an error. Rows of padding have no value: their bound is infinite.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "reference/causal_conv1d/convolution.h"
#include "reference/reference.h"

namespace ssmbench {
namespace {

class Update {
 public:
  /// Throws ContractError for indices that mean nothing.
  Update(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : shape_(problem),
        x_(inputs.at("x")),
        state_(inputs.at("conv_state")),
        weight_(inputs.at("weight")),
        bias_(inputs.find("bias")),
        out_(outputs.at("out")),
        new_state_(outputs.at("conv_state")) {
    if (shape_.has_indices()) {
      source_ = static_cast<const std::int32_t*>(inputs.at("source").data);
      destination_ = static_cast<const std::int32_t*>(inputs.at("destination").data);
      check_indices();
    }
#pragma omp parallel for schedule(static)
    for (std::int64_t slot = 0; slot < shape_.slots; ++slot) copy_slot(slot);
  }

  /// Channel `channel` of all rows.
  void run(std::int64_t channel) {
    const ConvFilter filter = filter_of(weight_, bias_, channel, shape_.silu);
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      const std::int64_t source = source_ == nullptr ? b : source_[b];
      const std::int64_t destination = destination_ == nullptr ? b : destination_[b];
      if (source < 0)
        skip_row(b, channel);
      else
        update_row(b, channel, filter, source, destination);
    }
  }

 private:
  void check_indices() const {
    std::vector<std::int64_t> writer(shape_.slots, -1);
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (const auto& [name, slot] : {std::pair("source", source_[b]), {"destination", destination_[b]}})
        if (slot < -1 || slot >= shape_.slots)
          throw ContractError(
              fmt::format("{} of row {} is {}, not one of {} slots", name, b, slot, shape_.slots));
      if (destination_[b] < 0) continue;
      if (source_[b] < 0)
        throw ContractError(fmt::format("row {} has a destination, {}, but no source", b, destination_[b]));
      if (writer[destination_[b]] >= 0)
        throw ContractError(fmt::format("rows {} and {} have the same destination, {}",
                                        writer[destination_[b]], b, destination_[b]));
      writer[destination_[b]] = b;
    }
    for (std::int64_t b = 0; b < shape_.batch; ++b)
      if (source_[b] >= 0 && writer[source_[b]] >= 0 && writer[source_[b]] != b)
        throw ContractError(fmt::format("the source of row {}, {}, is the destination of row {}", b,
                                        source_[b], writer[source_[b]]));
  }

  void copy_slot(std::int64_t slot) {
    for (std::int64_t channel = 0; channel < shape_.dim; ++channel)
      for (std::int64_t k = 0; k < shape_.state_len; ++k)
        new_state_.expected[(slot * shape_.dim + channel) * shape_.state_len + k] =
            load_as_double(state_.data, state_at(slot, channel, k), state_.dtype);
  }

  std::int64_t state_at(std::int64_t slot, std::int64_t channel, std::int64_t k) const {
    return slot * state_.strides[0] + channel * state_.strides[1] + k * state_.strides[2];
  }
  std::int64_t out_at(std::int64_t b, std::int64_t t, std::int64_t channel) const {
    return (b * shape_.tokens + t) * shape_.dim + channel;
  }

  void skip_row(std::int64_t b, std::int64_t channel) {
    for (std::int64_t t = 0; t < shape_.tokens; ++t)
      out_.bound[out_at(b, t, channel)] = std::numeric_limits<float>::infinity();
  }

  void update_row(std::int64_t b, std::int64_t channel, const ConvFilter& filter, std::int64_t source,
                  std::int64_t destination) {
    std::vector<double> all;  // conv_state ++ x
    for (std::int64_t k = 0; k < shape_.state_len; ++k)
      all.push_back(load_as_double(state_.data, state_at(source, channel, k), state_.dtype));
    for (std::int64_t t = 0; t < shape_.tokens; ++t)
      all.push_back(load_as_double(x_.data, out_at(b, t, channel), x_.dtype));
    const ConvSignal signal{{all.begin() + shape_.state_len - shape_.taps(), all.end()}};
    for (std::int64_t t = 0; t < shape_.tokens; ++t) {
      const Rounded<double> value = activation(convolve(filter, signal, t), shape_.silu).value;
      out_.expected[out_at(b, t, channel)] = value.value;
      out_.bound[out_at(b, t, channel)] = static_cast<float>(value.error);
    }
    if (destination >= 0)
      std::copy_n(all.end() - shape_.state_len, shape_.state_len,
                  new_state_.expected.begin() + (destination * shape_.dim + channel) * shape_.state_len);
  }

  ConvUpdate shape_;
  const TensorView &x_, &state_, &weight_;
  const TensorView* bias_;
  const std::int32_t *source_ = nullptr, *destination_ = nullptr;
  ReferenceOutput& out_;
  ReferenceOutput& new_state_;
};

/// Threads over channels.
ReferenceOutputs compute_update(const Problem& problem, const TensorSet& inputs,
                                const std::atomic<bool>& stop) {
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors())
    if (tensor.role == Role::output) outputs[tensor.name] = empty_output(tensor.shape);
  Update update(problem, inputs, outputs);
#pragma omp parallel for schedule(static)
  for (std::int64_t channel = 0; channel < problem.size("dim"); ++channel)
    if (!stop) update.run(channel);
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t bytes_of_update(const Problem& problem) {
  return output_bytes(problem, [](const TensorSpec&) { return false; });
}

const ReferenceRegistration update_registration({.op = "causal_conv1d_update",
                                                 .compute = compute_update,
                                                 .bytes = bytes_of_update});

}  // namespace
}  // namespace ssmbench
