#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "kernels/common/cpu/io_elements.h"
#include "kernels/common/discretize_derivative.h"
#include "kernels/common/index_math.h"
#include "kernels/selective_scan/bind.h"

// What kernels/selective_scan/cpu/scalar_bwd.cpp works on: the tensors by logical index, and the workspace.

namespace ssmbench::scalar_bwd {

/// One channel of one batch.
struct Row {
  std::int64_t b, g, d;
};

/// (B, D, L) in the io dtype; null where absent.
struct Sequence {
  void* data = nullptr;
  DType io{};
  SequenceStrides strides{};

  Sequence(const TensorSet& tensors, const char* name) {
    const TensorView* view = tensors.find(name);
    if (view == nullptr) return;
    data = view->data;
    io = view->dtype;
    strides = {view->strides[0], view->strides[1], view->strides[2]};
  }
  std::int64_t offset(const Row& row, std::int64_t t) const {
    return row.b * strides.batch + row.d * strides.dim + t * strides.time;
  }
  float load(const Row& row, std::int64_t t) const { return load_element(data, offset(row, t), io); }
  void store(const Row& row, std::int64_t t, float x) const { store_element(data, offset(row, t), x, io); }
};

/// B, C or a gradient of theirs: (B, G, N, L), in the io dtype when real, or constant (D, N) of Values.
template <class Value>
struct Projection {
  void* data;
  DType io;
  bool variable;
  ProjectionStrides strides;

  Projection(const TensorSet& tensors, const char* name, bool per_step)
      : data(tensors.at(name).data), io(tensors.at(name).dtype), variable(per_step), strides{} {
    const Shape& s = tensors.at(name).strides;
    if (variable)
      strides = {s[0], s[1], 0, s[2], s[3]};
    else
      strides = {0, 0, s[0], s[1], 0};
  }
  std::int64_t offset(const Row& row, std::int64_t n, std::int64_t t) const {
    return row.b * strides.batch + row.g * strides.group + row.d * strides.channel + n * strides.state +
           t * strides.time;
  }
  Value load(const Row& row, std::int64_t n, std::int64_t t) const {
    if constexpr (std::is_same_v<Value, float>)
      if (variable) return load_element(data, offset(row, n, t), io);
    return static_cast<const Value*>(data)[offset(row, n, t)];
  }
  /// Steps [begin, begin + count), or the one value that is constant.
  void load(const Row& row, std::int64_t n, std::int64_t begin, std::int64_t count, Value* to) const {
    if (!variable) count = 1;
    if (variable && io != DType::f32)
      for (std::int64_t i = 0; i < count; ++i) to[i] = load(row, n, begin + i);
    else
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<const Value*>(data)[offset(row, n, begin + i)];
  }
  void store(const Row& row, std::int64_t n, std::int64_t t, Value x) const {
    if constexpr (std::is_same_v<Value, float>)
      if (variable) return store_element(data, offset(row, n, t), x, io);
    static_cast<Value*>(data)[offset(row, n, t)] = x;
  }
};

/// Steps of a tile: near √L, where checkpoints and a tile take the least together; more where there are many
/// states, which have all the checkpoints but share the room of a tile. At L = 65536 all workspace is under a
/// quarter of the tensors, from 4 channels on.
inline std::int64_t tile_steps(const SelectiveScan& shape) {
  const auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(shape.seqlen)));
  return std::min(shape.seqlen, std::clamp<std::int64_t>(std::max(root, 8 * shape.dstate), 64, 1024));
}

/// What a step of one channel needs, and gathers over the states.
struct StepRow {
  float u, delta, delta_slope;  ///< delta_slope: ∂Δ/∂delta
  float dy, dz_factor;          ///< dz = (y + D·u)·dz_factor
  float y, du, ddelta;
};

template <class Value>
struct Carry {
  Value of_state, of_product;  ///< conj(Ā)·g and conj(c')·g of the step after
};

template <class Value>
struct ProjectionSums {
  Value dB, dC;
};

/// The workspace as arrays, or only its size when there is none yet.
template <class Value, Family family>
struct Room {
  using Rule = decltype(StepDerivative<family>({}, 0.0F)(Value{}));

  Value* checkpoints = nullptr;             // [channel of the group][state][tile]
  Carry<Value>* carries = nullptr;          // [channel of the group][state]
  ProjectionSums<Value>* shares = nullptr;  // [state][step], where B or C is variable
  StepRow* steps = nullptr;                 // [step]
  Rule* rules = nullptr;                    // [step]
  Value* B = nullptr;                       // [step] of the state that is worked on; [0] where it is constant
  Value* C = nullptr;                       // [step], likewise
  Value* states = nullptr;                  // [step + 1]: h at the step; [0] is the one before the tile
  Value* products = nullptr;                // [step + 1]: B·u, likewise
  std::size_t bytes = 0;

  Room(const SelectiveScan& shape, void* workspace) {
    const std::int64_t tile = tile_steps(shape);
    const std::int64_t rows = shape.channels_per_group() * shape.dstate;
    const auto take = [&]<class T>(T*& array, std::int64_t count) {
      if (workspace != nullptr) array = reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + bytes);
      constexpr std::size_t kAlign = 64;
      bytes += (static_cast<std::size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    };
    take(checkpoints, rows * ceil_div(shape.seqlen, tile));
    take(carries, rows);
    take(shares, shape.variable_b || shape.variable_c ? shape.dstate * tile : 0);
    take(steps, tile);
    take(rules, tile);
    take(B, shape.variable_b ? tile : 1);
    take(C, shape.variable_c ? tile : 1);
    take(states, tile + 1);
    take(products, tile + 1);
  }
};

}  // namespace ssmbench::scalar_bwd
