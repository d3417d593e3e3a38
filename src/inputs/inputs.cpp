#include "inputs/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/errors.h"
#include "base/random.h"

namespace ssmbench {
namespace {

// Rows are generated in segments of this many elements, the same segment of neighbouring rows one after the
// other: in a layout whose rows are strided these write to the same cache lines, and a segment's lines mostly
// stay cached.
constexpr std::int64_t kSegment = 1024;

// Below this many elements, a tenth of a millisecond, waking threads costs more than it gains.
constexpr std::int64_t kWorthThreads = 16384;

float to_shared(float value) {
  const float rounded = bf16_to_float(float_to_bf16(value));
  // f16 has more digits than bf16, and in this range the exponents too.
  if (const float size = std::abs(rounded); size >= 0x1p-14F && size < 0x1p16F) return rounded;
  return f16_to_float(float_to_f16(rounded));
}

template <class Element, class Convert>
void store(std::span<const double> values, void* data, std::int64_t offset, std::int64_t stride,
           Convert convert) {
  Element* out = static_cast<Element*>(data) + offset;
  for (const double value : values) {
    *out = convert(static_cast<float>(value));
    out += stride;
  }
}

constexpr std::uint32_t kBitsOfSign = 0x80000000U;
/// As bits of floats: 2^-14, the least normal number of f16, 2^16, and what the exponents differ by.
constexpr std::uint32_t kLeastOfF16 = 0x38800000U, kBeyondF16 = 0x47800000U, kF16Rebias = 0x38000000U;

/// Rounds to bf16, as the bits of floats. False where not all of them are numbers of f16 too.
bool round_to_shared(std::span<const double> values, std::uint32_t* bits) {
  std::uint32_t outside = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto exact = std::bit_cast<std::uint32_t>(static_cast<float>(values[i]));
    const std::uint32_t rounded = (exact + 0x7FFFU + (exact >> 16U & 1U)) & 0xFFFF0000U;
    const std::uint32_t above_least = (rounded & ~kBitsOfSign) - kLeastOfF16;  // wraps for what is under it
    outside |= above_least >= kBeyondF16 - kLeastOfF16 ? 1U : 0U;
    bits[i] = rounded;
  }
  return outside == 0;
}

/// store_rounded() of values that dtypes share, in loops without branches or calls: most blocks of neighbours.
/// False: not one of these.
bool store_shared_row(std::span<const double> values, const TensorView& view, std::int64_t offset) {
  if (view.dtype != DType::f16 && view.dtype != DType::bf16 && view.dtype != DType::f32) return false;
  std::array<std::uint32_t, kSegment> bits;
  if (!round_to_shared(values, bits.data())) return false;
  if (view.dtype == DType::f32) {
    std::memcpy(static_cast<float*>(view.data) + offset, bits.data(), values.size_bytes() / 2);
    return true;
  }
  std::uint16_t* out = static_cast<std::uint16_t*>(view.data) + offset;
  if (view.dtype == DType::bf16)
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<std::uint16_t>(bits[i] >> 16U);
  else
    for (std::size_t i = 0; i < values.size(); ++i)
      out[i] = static_cast<std::uint16_t>((bits[i] & kBitsOfSign) >> 16U |
                                          ((bits[i] & ~kBitsOfSign) - kF16Rebias) >> 13U);
  return true;
}

/// Rounds `values`, kSegment at most, to the view's dtype and writes them from element `offset`, `stride`
/// elements apart.
void store_rounded(std::span<const double> values, bool shared, const TensorView& view, std::int64_t offset,
                   std::int64_t stride) {
  if (shared && stride == 1 && store_shared_row(values, view, offset)) return;
  switch (view.dtype) {
    case DType::f16:
      if (shared)
        return store<std::uint16_t>(values, view.data, offset, stride,
                                    [](float value) { return float_to_f16(to_shared(value)); });
      return store<std::uint16_t>(values, view.data, offset, stride, float_to_f16);
    case DType::bf16:
      if (shared)
        return store<std::uint16_t>(values, view.data, offset, stride,
                                    [](float value) { return float_to_bf16(to_shared(value)); });
      return store<std::uint16_t>(values, view.data, offset, stride, float_to_bf16);
    case DType::i32:
      return store<std::int32_t>(values, view.data, offset, stride,
                                 [](float value) { return static_cast<std::int32_t>(value); });
    case DType::i64:
      return store<std::int64_t>(values, view.data, offset, stride,
                                 [](float value) { return static_cast<std::int64_t>(value); });
    case DType::i16:
    case DType::i8:
    case DType::e4m3:
      for (const double value : values) {
        store_from_double(view.data, offset, view.dtype, value);
        offset += stride;
      }
      return;
    default:
      if (shared) return store<float>(values, view.data, offset, stride, to_shared);
      return store<float>(values, view.data, offset, stride, [](float value) { return value; });
  }
}

/// Element offset of the first element of a row, rows counted in row-major order.
std::int64_t row_offset(const TensorView& view, std::int64_t row) {
  std::int64_t offset = 0;
  for (auto axis = static_cast<std::ptrdiff_t>(view.shape.size()) - 2; axis >= 0; --axis) {
    offset += row % view.shape[axis] * view.strides[axis];
    row /= view.shape[axis];
  }
  return offset;
}

/// Row-major position in the whole tensor of a row's first element; rows are those of the part.
std::int64_t position_in_whole(const Shape& part, const Shape& whole, const Shape& begin, std::int64_t row) {
  std::int64_t position = begin.back();
  std::int64_t elements = whole.back();  // of what an index counts
  for (auto axis = static_cast<std::ptrdiff_t>(part.size()) - 2; axis >= 0; --axis) {
    position += (row % part[axis] + begin[axis]) * elements;
    row /= part[axis];
    elements *= whole[axis];
  }
  return position;
}

/// The part of a tensor of spec `whole_spec` that begins at `begin`.
void generate(const InputFill& fill, const HostTensor& tensor, const TensorSpec& whole_spec,
              Shape begin_of_part, bool shared, const std::atomic<bool>& stop) {
  const TensorView view = real_view(tensor.view());
  const TensorView whole = real_view(TensorView(nullptr, whole_spec));
  begin_of_part.resize(whole.shape.size(), 0);  // the parts of complex numbers
  const std::int64_t length = view.shape.back();
  const std::int64_t rows = element_count(view.shape) / length;
  const std::int64_t rows_in_plane = view.shape.size() < 2 ? 1 : view.shape[view.shape.size() - 2];
  const std::int64_t segments = (length + kSegment - 1) / kSegment;

#pragma omp parallel for schedule(static) if (rows * length > kWorthThreads)
  for (std::int64_t item = 0; item < rows * segments; ++item) {
    if (stop) continue;
    // A plane's rows follow each other for one segment, then for the next.
    const std::int64_t plane = item / (rows_in_plane * segments);
    const std::int64_t segment = item / rows_in_plane % segments;
    const std::int64_t row = plane * rows_in_plane + item % rows_in_plane;
    const std::int64_t begin = segment * kSegment;
    std::array<double, kSegment> buffer;
    const std::span values(buffer.data(), static_cast<std::size_t>(std::min(kSegment, length - begin)));
    fill(tensor.spec.name, position_in_whole(view.shape, whole.shape, begin_of_part, row) + begin, values);
    store_rounded(values, shared, view, row_offset(view, row) + begin * view.strides.back(),
                  view.strides.back());
  }
  if (stop) throw Interrupted();
}

/// Makes one element of one tensor NaN: the tensors take turns over seeds. `specs` are the whole inputs.
void put_nan(const std::vector<HostTensor>& tensors, const std::vector<TensorSpec>& specs, const Box& box,
             std::int64_t seed) {
  std::vector<std::size_t> choice;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (is_float(specs[i].dtype) || specs[i].dtype == DType::c64) choice.push_back(i);
  const std::size_t chosen = choice.at(static_cast<std::size_t>(seed) % choice.size());
  const TensorView view = real_view(tensors[chosen].view());
  const TensorView whole = real_view(TensorView(nullptr, specs[chosen]));
  std::array<double, 1> draw{};
  Stream(seed, "nan").uniforms(0, draw);
  const auto position = static_cast<std::int64_t>(draw[0] * static_cast<double>(element_count(whole.shape)));
  Shape index = index_of(position, whole.shape);
  const Shape begin = begin_of(specs[chosen], box);
  for (std::size_t axis = 0; axis < begin.size(); ++axis) {
    index[axis] -= begin[axis];
    if (index[axis] < 0 || index[axis] >= view.shape[axis]) return;  // in the part of another
  }
  store_from_double(view.data, offset_of(index, view.strides), view.dtype,
                    std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

std::vector<HostTensor> generate_inputs(const Problem& problem, const InputSpec& spec,
                                        const std::atomic<bool>& stop) {
  return generate_inputs(problem, spec, {}, stop);
}

std::vector<HostTensor> generate_inputs(const Problem& problem, const InputSpec& spec, const Box& box,
                                        const std::atomic<bool>& stop) {
  if (spec.values != "native" && spec.values != "shared" && spec.values != "nan")
    throw UsageError(fmt::format("values must be native, shared or nan, got '{}'", spec.values));
  const InputFill fill = problem.op().inputs(problem, spec);
  const auto specs = problem.tensors();
  // Only tensors that take the problem's dtype have values to share; the others are f32 or c64 in any case.
  const auto specs_in_bf16 = problem.with({{"dtype", "bf16"}}).tensors();
  std::vector<HostTensor> tensors;
  std::vector<TensorSpec> whole;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].role != Role::input) continue;
    whole.push_back(specs[i]);
    tensors.emplace_back(part_of(specs[i], box));
    const bool shared = spec.values == "shared" && specs_in_bf16[i].dtype == DType::bf16;
    generate(fill, tensors.back(), specs[i], begin_of(specs[i], box), shared, stop);
  }
  if (spec.values == "nan") put_nan(tensors, whole, box, spec.seed);
  return tensors;
}

}  // namespace ssmbench
