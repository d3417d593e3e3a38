#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.h"

namespace ssmbench {

/// Extents in logical axis order, outermost first: the `bdl` column of the operation's definition.
using Shape = std::vector<std::int64_t>;

std::int64_t element_count(const Shape& shape);
/// "2×16×257", for messages.
std::string to_string(const Shape& shape);

/// A problem that lists a tensor under one name both as input and as output, alike in all else, has it
/// updated in place: an implementation finds the input's values in the one buffer of that name and leaves the
/// output's there.
enum class Role { input, output };

/// What TensorSpec::axes calls the axis of time steps, in every operation.
inline constexpr char kTimeLetter = 'l';

/// What one tensor of a problem must look like. The layout (bdl or bld) changes only `storage_order`.
struct TensorSpec {
  std::string name;  ///< the field's name for it: u, delta, A, B, C, D, z, out, last_state, …
  Role role = Role::input;
  DType dtype = DType::f32;
  Shape shape;                     ///< logical order
  std::vector<int> storage_order;  ///< logical axes from outermost to innermost in memory
  /// One letter per logical axis, as definitions index it: b batch, d channel, l time, n state, g group, …
  std::string axes = {};
  /// The tensor with a scale for each row, which values are in units of; it has no last axis, and the same role
  /// as this one. Empty where values are what they say.
  std::string scaled_by = {};

  std::size_t bytes() const;
  Shape stored_shape() const;  ///< extents as they lie in memory and in HDF5 files (C order)
  Shape strides() const;       ///< elements between neighbours, per logical axis
};

/// A tensor somewhere in host or device memory. Does not own it.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;    ///< logical order
  Shape strides;  ///< in elements, logical order

  TensorView() = default;
  TensorView(void* memory, const TensorSpec& spec)
      : data(memory), dtype(spec.dtype), shape(spec.shape), strides(spec.strides()) {}
};

/// Index of the element at a row-major position.
Shape index_of(std::int64_t position, const Shape& shape);
/// Offset of the element at an index.
std::int64_t offset_of(const Shape& index, const Shape& strides);
/// "(b 0, d 3, l 17)": an element of a tensor with these axes; of c64 tensors seen as f32, "(…, real)".
std::string index_text(const Shape& index, const std::string& axes);

/// A c64 tensor as f32 with one more axis, innermost: (real, imaginary). Other dtypes as they are.
TensorView real_view(TensorView view);

/// The tensors of one problem by name; optional ones are absent.
class TensorSet {
 public:
  void add(std::string name, TensorView view) { views_[std::move(name)] = std::move(view); }
  const TensorView* find(std::string_view name) const;
  /// Throws ContractError when the tensor is missing.
  const TensorView& at(std::string_view name) const;
  const std::map<std::string, TensorView, std::less<>>& all() const { return views_; }

 private:
  std::map<std::string, TensorView, std::less<>> views_;
};

/// Host memory, 256-byte aligned, with a guard band on both sides (model/guard_band.h). Throws OutOfMemory.
/// Moves, never copies.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::size_t bytes);
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;  ///< the bands too
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A tensor that owns its host memory.
struct HostTensor {
  TensorSpec spec;
  HostBuffer buffer;

  explicit HostTensor(TensorSpec tensor) : spec(std::move(tensor)), buffer(spec.bytes()) {}
  TensorView view() const { return {buffer.data(), spec}; }
};

TensorSet views_of(const std::vector<HostTensor>& tensors);

}  // namespace ssmbench
