#include "ops/causal_conv1d/inputs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"
#include "model/problem.h"

namespace ssmbench {
namespace {

constexpr double kShareOfShortRuns = 0.25;
constexpr double kShareOfPadding = 0.125;
constexpr double kShareOfReturns = 0.125;

void fill_weights(std::int64_t seed, std::string_view tensor, std::int64_t width, std::int64_t first,
                  std::span<double> values) {
  Stream(seed, tensor).uniforms(first, values);
  const double bound = 1 / std::sqrt(static_cast<double>(width));
  for (double& value : values) value = bound * (2 * value - 1);
}

/// The numbers of one sequence of the batch.
void draw_seq_idx(const CausalConv1d& conv, std::int64_t seed, std::int64_t batch, std::int32_t* to) {
  const Stream stream(seed, "seq_idx");
  const auto share_of = [](double draw, std::int64_t most) {
    return 1 + static_cast<std::int64_t>(draw * static_cast<double>(most));
  };
  std::int32_t next = 0;
  std::int32_t last = -1;
  std::int32_t before = -1;
  std::int64_t t = 0;
  for (std::int64_t run = 0; t < conv.seqlen; ++run) {
    std::array<double, 3> draws{};
    stream.uniforms((batch * conv.seqlen + run) * std::ssize(draws), draws);
    const std::int64_t most =
        draws[0] < kShareOfShortRuns ? conv.width : std::max<std::int64_t>(1, conv.seqlen / 4);
    const std::int64_t end = std::min(conv.seqlen, t + share_of(draws[1], most));
    std::int32_t number = next;
    if (draws[2] < kShareOfPadding)
      number = -1;
    else if (draws[2] < kShareOfPadding + kShareOfReturns && run >= 2)
      number = before;
    else
      ++next;
    std::fill(to + t, to + end, number);
    before = last;
    last = number;
    t = end;
  }
}

}  // namespace

ConvInputs::ConvInputs(const Problem& problem, const InputSpec& spec)
    : conv_(problem), seed_(spec.seed), distribution_(&find_distribution(spec.distribution)) {
  if (!conv_.has_seq_idx) return;
  seq_idx_.resize(static_cast<std::size_t>(conv_.batch * conv_.seqlen));
  for (std::int64_t b = 0; b < conv_.batch; ++b)
    draw_seq_idx(conv_, seed_, b, seq_idx_.data() + b * conv_.seqlen);
}

void ConvInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor == "weight" || tensor == "bias") return fill_weights(seed_, tensor, conv_.width, first, values);
  if (tensor == "seq_idx")
    std::copy_n(seq_idx_.begin() + first, values.size(), values.begin());
  else
    fill_projected(*distribution_, seed_, tensor, first, values);
}

ConvUpdateInputs::ConvUpdateInputs(const Problem& problem, const InputSpec& spec)
    : update_(problem), seed_(spec.seed), distribution_(&find_distribution(spec.distribution)) {
  if (!update_.has_indices()) return;
  const std::vector<std::int64_t> slots = shuffled_slots(update_.slots, seed_);
  for (std::int64_t b = 0; b < update_.batch; ++b) {
    source_.push_back(update_.is_pad(b) ? -1 : slots[b]);
    if (update_.store == ConvUpdate::Store::none || update_.is_pad(b))
      destination_.push_back(-1);
    else
      destination_.push_back(update_.store == ConvUpdate::Store::last ? slots[b] : slots[update_.batch + b]);
  }
}

void ConvUpdateInputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor == "weight" || tensor == "bias")
    return fill_weights(seed_, tensor, update_.width, first, values);
  if (tensor == "source")
    std::copy_n(source_.begin() + first, values.size(), values.begin());
  else if (tensor == "destination")
    std::copy_n(destination_.begin() + first, values.size(), values.begin());
  else
    fill_projected(*distribution_, seed_, tensor, first, values);
}

}  // namespace ssmbench
