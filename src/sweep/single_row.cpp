#include "sweep/single_row.h"

#include <algorithm>
#include <cstring>

#include "base/errors.h"

namespace ssmbench {
namespace {

// TensorSpec::axes
constexpr char kBatchLetter = 'b';
constexpr char kGroupLetter = 'g';

const TensorSpec* find(const std::vector<TensorSpec>& tensors, const TensorSpec& like) {
  const auto found = std::ranges::find_if(
      tensors, [&](const TensorSpec& spec) { return spec.name == like.name && spec.role == like.role; });
  return found == tensors.end() ? nullptr : &*found;
}

/// For each axis of a row's part which one it is of the whole tensor; a tensor may have no axis of groups where
/// there is one group. Nothing where they do not correspond.
std::optional<std::vector<std::size_t>> axes_in_whole(const std::string& part, const std::string& whole) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < whole.size(); ++axis)
    if (axes.size() < part.size() && part[axes.size()] == whole[axis])
      axes.push_back(axis);
    else if (whole[axis] != kGroupLetter)
      return {};
  if (axes.size() < part.size()) return {};
  return axes;
}

/// Elements of `size` bytes from one layout to another, axis by axis.
void copy_elements(std::byte* to, const Shape& to_strides, const std::byte* from, const Shape& from_strides,
                   const Shape& shape, std::size_t axis, std::size_t size) {
  if (axis == shape.size()) {
    std::memcpy(to, from, size);
    return;
  }
  for (std::int64_t i = 0; i < shape[axis]; ++i)
    copy_elements(to + i * to_strides[axis] * static_cast<std::int64_t>(size), to_strides,
                  from + i * from_strides[axis] * static_cast<std::int64_t>(size), from_strides, shape,
                  axis + 1, size);
}

}  // namespace

SingleRow::SingleRow(const Problem& problem) : groups_(problem.groups()) {
  std::map<std::string, AxisValue> changes;
  for (const AxisRole role : {AxisRole::batch, AxisRole::channel, AxisRole::groups})
    if (const AxisSpec* axis = problem.find_axis(role)) changes[axis->name] = std::int64_t{1};
  if (const AxisSpec* axis = problem.find_axis(AxisRole::batch)) batch_ = problem.size(axis->name);
  if (const AxisSpec* axis = problem.find_axis(AxisRole::channel)) {
    channel_letter_ = axis->letter;
    channels_ = problem.size(axis->name);
  }
  try {
    row_ = problem.with(changes);
  } catch (const ContractError&) {  // axes that allow no such row
    return;
  }
  // What is no axis of rows has to be the same in the row as in the whole.
  const auto whole = problem.tensors();
  const auto fits = [&](const TensorSpec& part) {
    const TensorSpec* spec = find(whole, part);
    if (spec == nullptr || part.axes.size() != part.shape.size()) return false;
    const auto axes = axes_in_whole(part.axes, spec->axes);
    for (std::size_t axis = 0; axes && axis < part.shape.size(); ++axis) {
      const char letter = part.axes[axis];
      const bool is_of_rows = letter == kBatchLetter || letter == channel_letter_ || letter == kGroupLetter;
      if (part.shape[axis] != (is_of_rows ? 1 : spec->shape[axes->at(axis)])) return false;
    }
    return axes.has_value();
  };
  if (!std::ranges::all_of(row_->tensors(), fits)) row_.reset();
}

Row SingleRow::draw(std::mt19937_64& random) const {
  return {.sequence = std::uniform_int_distribution<std::int64_t>(0, batch_ - 1)(random),
          .channel = std::uniform_int_distribution<std::int64_t>(0, channels_ - 1)(random)};
}

std::int64_t SingleRow::position(const Row& row, char axis) const {
  if (axis == kBatchLetter) return row.sequence;
  if (axis == channel_letter_) return row.channel;
  return axis == kGroupLetter ? row.channel / (channels_ / groups_) : 0;
}

HostTensor SingleRow::part(const Row& row, const TensorSpec& spec, const void* data) const {
  const auto tensors = row_->tensors();
  HostTensor part(*find(tensors, spec));
  const Shape strides = spec.strides();
  const auto size = static_cast<std::int64_t>(size_of(spec.dtype));
  std::int64_t begin = 0;
  for (std::size_t axis = 0; axis < strides.size(); ++axis)
    begin += position(row, spec.axes[axis]) * strides[axis];
  const auto axes = axes_in_whole(part.spec.axes, spec.axes).value();
  Shape strides_of_part;
  for (const std::size_t axis : axes) strides_of_part.push_back(strides[axis]);
  copy_elements(static_cast<std::byte*>(part.buffer.data()), part.spec.strides(),
                static_cast<const std::byte*>(data) + begin * size, strides_of_part, part.spec.shape, 0,
                static_cast<std::size_t>(size));
  return part;
}

bool SingleRow::owns_part(const TensorSpec& spec) const {
  const auto has = [&](char letter) { return spec.axes.find(letter) != std::string::npos; };
  return (batch_ == 1 || has(kBatchLetter)) && (channels_ == 1 || has(channel_letter_));
}

Shape SingleRow::index_in_whole(const Row& row, const TensorSpec& spec, const Shape& index) const {
  const auto tensors = row_->tensors();
  const auto axes = axes_in_whole(find(tensors, spec)->axes, spec.axes).value();
  Shape whole;
  for (const char letter : spec.axes) whole.push_back(position(row, letter));
  for (std::size_t axis = 0; axis < axes.size(); ++axis) whole[axes[axis]] += index[axis];
  whole.insert(whole.end(), index.begin() + static_cast<std::ptrdiff_t>(axes.size()), index.end());
  return whole;
}

}  // namespace ssmbench
