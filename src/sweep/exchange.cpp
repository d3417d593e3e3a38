#include "sweep/exchange.h"

#include <algorithm>

namespace ssmbench {
namespace {

constexpr char kBatchAxis = 'b';  // TensorSpec::axes

/// Two of `count` from `begin` on that are not the same.
std::optional<Exchange> draw(char axis, std::int64_t begin, std::int64_t count, std::mt19937_64& random) {
  if (count < 2) return {};
  const std::int64_t first = std::uniform_int_distribution<std::int64_t>(0, count - 1)(random);
  const std::int64_t second = std::uniform_int_distribution<std::int64_t>(0, count - 2)(random);
  return Exchange{.axis = axis, .first = begin + first, .second = begin + second + (second >= first ? 1 : 0)};
}

bool has(const TensorSpec& spec, char axis) {
  return spec.axes.find(axis) != std::string::npos;
}

/// Two stretches of one length that do not overlap.
std::optional<SlicePair> two_stretches(const TensorSpec& spec, void* data, std::mt19937_64& random) {
  const std::size_t size = size_of(spec.dtype);
  const std::size_t count = spec.bytes() / size;
  if (count < 2) return {};
  const auto draw_from = [&](std::size_t least, std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(least, most)(random);
  };
  const std::size_t length = draw_from((count + 3) / 4, count / 2);
  const std::size_t first = draw_from(0, count - 2 * length);
  const std::size_t second = draw_from(first + length, count - length);
  auto* const begin = static_cast<std::byte*>(data);
  return SlicePair{.first = begin + first * size,
                   .second = begin + second * size,
                   .width = length * size,
                   .pitch = length * size,
                   .rows = 1};
}

}  // namespace

ExchangeDraw::ExchangeDraw(const Problem& problem) : groups_(problem.groups()) {
  const auto tensors = problem.tensors();
  const bool letters_are_known = std::ranges::all_of(
      tensors, [](const TensorSpec& spec) { return spec.axes.size() == spec.shape.size(); });
  if (!letters_are_known) return;
  if (const AxisSpec* axis = problem.find_axis(AxisRole::batch)) batch_ = problem.size(axis->name);
  if (const AxisSpec* axis = problem.find_axis(AxisRole::channel)) {
    channel_letter_ = axis->letter;
    channels_ = problem.size(axis->name);
  }
}

std::optional<Exchange> ExchangeDraw::of_channels(std::mt19937_64& random) const {
  const std::int64_t group = std::uniform_int_distribution<std::int64_t>(0, groups_ - 1)(random);
  const std::int64_t of_group = channels_ / groups_;
  return draw(channel_letter_, group * of_group, of_group, random);
}

std::optional<Exchange> ExchangeDraw::of_batch(std::mt19937_64& random) const {
  return draw(kBatchAxis, 0, batch_, random);
}

bool ExchangeDraw::is_shared(const TensorSpec& input) const {
  return has(input, kBatchAxis) && !has(input, channel_letter_);
}

std::vector<SlicePair> ExchangeDraw::stretches(const std::vector<TensorSpec>& inputs,
                                               const std::vector<void*>& data,
                                               std::mt19937_64& random) const {
  std::vector<SlicePair> pairs;
  if (channel_letter_ == 0) return pairs;
  const auto add = [&](const auto& is_wanted, std::size_t most) {
    for (std::size_t i = 0; i < inputs.size() && pairs.size() < most; ++i)
      if (!is_index(inputs[i].dtype) && is_wanted(inputs[i]))
        if (const auto pair = two_stretches(inputs[i], data[i], random)) pairs.push_back(*pair);
  };
  add([&](const TensorSpec& input) { return is_shared(input); }, inputs.size());
  if (pairs.empty())
    add([&](const TensorSpec& input) { return has(input, channel_letter_) && has(input, kTimeLetter); }, 1);
  return pairs;
}

std::optional<SlicePair> slices_of(const Exchange& exchange, const TensorSpec& spec, void* data) {
  const auto axis = spec.axes.find(exchange.axis);
  if (axis == std::string::npos) return {};
  const std::size_t width = static_cast<std::size_t>(spec.strides()[axis]) * size_of(spec.dtype);
  const std::size_t pitch = width * static_cast<std::size_t>(spec.shape[axis]);
  auto* const begin = static_cast<std::byte*>(data);
  return SlicePair{.first = begin + static_cast<std::size_t>(exchange.first) * width,
                   .second = begin + static_cast<std::size_t>(exchange.second) * width,
                   .width = width,
                   .pitch = pitch,
                   .rows = spec.bytes() / pitch};
}

}  // namespace ssmbench
