#include "model/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>

#include "base/errors.h"
#include "model/guard_band.h"

namespace ssmbench {

std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string to_string(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape, "×"));
}

Shape index_of(std::int64_t position, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = position % shape[axis];
    position /= shape[axis];
  }
  return index;
}

std::int64_t offset_of(const Shape& index, const Shape& strides) {
  return std::inner_product(index.begin(), index.end(), strides.begin(), std::int64_t{0});
}

std::string index_text(const Shape& index, const std::string& axes) {
  std::string text;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    if (!text.empty()) text += ", ";
    if (axis < axes.size())
      text += fmt::format("{} {}", axes[axis], index[axis]);
    else if (axes.empty())
      text += fmt::format("{}", index[axis]);
    else
      text += index[axis] == 0 ? "real" : "imaginary";
  }
  return "(" + text + ")";
}

std::size_t TensorSpec::bytes() const {
  return static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
}

Shape TensorSpec::stored_shape() const {
  Shape stored;
  for (const int axis : storage_order) stored.push_back(shape.at(axis));
  return stored;
}

Shape TensorSpec::strides() const {
  Shape result(shape.size());
  std::int64_t step = 1;
  for (auto axis = storage_order.rbegin(); axis != storage_order.rend(); ++axis) {
    result.at(*axis) = step;
    step *= shape.at(*axis);
  }
  return result;
}

TensorView real_view(TensorView view) {
  if (view.dtype != DType::c64) return view;
  view.dtype = DType::f32;
  for (auto& stride : view.strides) stride *= 2;
  view.shape.push_back(2);
  view.strides.push_back(1);
  return view;
}

const TensorView* TensorSet::find(std::string_view name) const {
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : &found->second;
}

const TensorView& TensorSet::at(std::string_view name) const {
  if (const TensorView* view = find(name)) return *view;
  throw ContractError(fmt::format("tensor '{}' is missing", name));
}

namespace {

/// Asks for large pages, as NumPy does for its arrays: with pages of 4 KiB the first touch of a large buffer
/// takes longer than what all cores write there. No more than a wish.
void ask_for_large_pages(void* memory, std::size_t bytes) {
  constexpr std::size_t kLarge = std::size_t{1} << 21;
  void* begin = memory;
  std::size_t room = bytes;
  if (std::align(kLarge, kLarge, begin, room) != nullptr)
    madvise(begin, room / kLarge * kLarge, MADV_HUGEPAGE);
}

}  // namespace

HostBuffer::HostBuffer(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t kAlignment =
      256;  // more than a cache line or the widest SIMD register: as cudaMalloc
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  memory_.reset(std::aligned_alloc(kAlignment, kBandBytes + rounded + kBandBytes));
  if (memory_ == nullptr) throw OutOfMemory(fmt::format("out of host memory: {} bytes", bytes));
  ask_for_large_pages(memory_.get(), kBandBytes + rounded + kBandBytes);
  auto* const before = static_cast<std::byte*>(memory_.get());
  std::memset(before, kBandByte, kBandBytes);
  data_ = before + kBandBytes;
  // Up to the end of what was allocated, so that the band begins with the byte past the end.
  std::memset(before + kBandBytes + bytes, kBandByte, rounded - bytes + kBandBytes);
}

void HostBuffer::Free::operator()(void* memory) const {
  std::free(memory);
}

TensorSet views_of(const std::vector<HostTensor>& tensors) {
  TensorSet set;
  for (const auto& tensor : tensors) set.add(tensor.spec.name, tensor.view());
  return set;
}

}  // namespace ssmbench
