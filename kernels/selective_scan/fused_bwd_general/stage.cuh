#pragma once

// The general kernels of selective_scan_bwd: the coordinates of a thread, and how tiles are staged in shared
// memory.

#include "kernels/common/activations.h"
#include "kernels/common/complex.h"
#include "kernels/common/io_types.cuh"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/fused_general/map.h"
#include "kernels/selective_scan/io_dtype.cuh"
#include "kernels/selective_scan/states.cuh"

namespace ssmbench::fused_bwd_general {

using fused_general::GeneralPlan;
using fused_general::kThreadStates;

/// The coordinates of a thread: its channel and its four states.
struct ThreadCoordinates {
  BlockChannels block;
  std::int64_t row;  ///< of the block's first channel in the (B, D, L) tensors
  int channel;       ///< of the block
  int state;         ///< first of four
  int count;         ///< states from there on that exist; the others keep zeros
  std::int64_t d;

  __device__ ThreadCoordinates(const ScanArgs& args, const GeneralPlan& plan)
      : block(block_channels(plan, blockIdx.x, args.groups, args.channels_per_group)),
        row(block.b * args.sequence.batch + block.first * args.sequence.dim),
        channel(plan.channel_of(threadIdx.x)),
        state(plan.first_state_of(threadIdx.x)),
        count(channel < block.count ? static_cast<int>(args.dstate) - state : 0),
        d(block.first + channel) {}

  /// Index in (D, N) tensors.
  __device__ std::int64_t channel_state(const ScanArgs& args) const { return d * args.dstate + state; }
  /// Index in (B, D, N) tensors.
  __device__ std::int64_t batch_state(const ScanArgs& args) const {
    return (block.b * args.dim + d) * args.dstate + state;
  }
  /// Index among the values that all threads of the grid hold.
  __device__ std::int64_t grid_state(const GeneralPlan& plan) const {
    return (static_cast<std::int64_t>(blockIdx.x) * plan.threads() + threadIdx.x) * kThreadStates;
  }
};

template <class Value>
__device__ void load_constants(Value (&to)[kThreadStates], const void* source,
                               const ProjectionStrides& strides, const ThreadCoordinates& own) {
  load_states(to, static_cast<const Value*>(source), own.d * strides.channel + own.state, own.count);
}

/// u·B of one step, from memory; `B` has the values that it keeps when constant. `joins`: as in with_io().
template <bool joins, class Value>
__device__ void load_products(Value (&products)[kThreadStates], const Value (&B)[kThreadStates],
                              const ScanArgs& args, DType io, const ThreadCoordinates& own, std::int64_t t) {
  with_io<joins>(io, [&]<class Io>(std::type_identity<Io>) {
    using Stored = StoredProjection<Io, Value>;
    const auto* variable = static_cast<const Stored*>(args.B) + own.block.b * args.b_strides.batch +
                           own.block.g * args.b_strides.group + t * args.b_strides.time;
    const std::int64_t at = own.row + own.channel * args.sequence.dim + t * args.sequence.time;
    const float u = own.count > 0 ? to_float(static_cast<const Io*>(args.u)[at], io) : 0.0F;
#pragma unroll
    for (int s = 0; s < kThreadStates; ++s) {
      products[s] = Value{};
      if (s < own.count)
        products[s] =
            u * (args.variable_b ? to_value(variable[(own.state + s) * args.b_strides.state], io) : B[s]);
    }
  });
}

/// Loads that a thread has in flight while it stages: staging waits for the latency of memory. They are free
/// of branches, which would put one after the other: in place of an element that does not exist one that does
/// is read, and not used.
inline constexpr int kInFlight = 4;

/// A tile of `rows` × `steps` elements that exist, at least one, out of 2^rows_log2 × 2^steps_log2.
struct TileShape {
  int rows_log2, steps_log2, rows, steps;
  std::int64_t row_stride, time_stride;

  struct Element {
    int row, step;
  };
  __device__ int count() const { return 1 << (rows_log2 + steps_log2); }
  /// The i-th, so that neighbours are neighbours in memory.
  __device__ Element element(int i) const {
    if (time_stride == 1) return {i >> steps_log2, i & ((1 << steps_log2) - 1)};
    return {i & ((1 << rows_log2) - 1), i >> rows_log2};
  }
  __device__ bool exists(const Element& e) const { return e.row < rows && e.step < steps; }
  __device__ std::int64_t offset(const Element& e) const {
    return min(e.row, rows - 1) * row_stride + min(e.step, steps - 1) * time_stride;
  }
};

/// A thread's elements of B or C on their way from memory to a [step][state] tile.
template <class Stored, class Value, int in_flight>
class ProjectionLoader {
 public:
  /// Starts to load the first of them, unless `source` is constant.
  __device__ ProjectionLoader(Value* tile, const void* source, bool variable,
                              const ProjectionStrides& strides, const ThreadCoordinates& own,
                              std::int64_t start, int valid, std::int64_t dstate, const GeneralPlan& plan,
                              DType io)
      : tile_(tile),
        source_(static_cast<const Stored*>(source) + own.block.b * strides.batch +
                own.block.g * strides.group + start * strides.time),
        variable_(variable),
        shape_{plan.states_log2(), plan.steps_log2, static_cast<int>(dstate), valid,
               strides.state,      strides.time},
        threads_(plan.threads()),
        pitch_(plan.projection_pitch()),
        io_(io) {
    if (variable_) load(threadIdx.x);
  }
  /// Stores them, and all others.
  __device__ void finish() {
    if (!variable_) return;
    for (int first = threadIdx.x; first < shape_.count(); first += in_flight * threads_) {
      if (first >= in_flight * threads_) load(first);
#pragma unroll
      for (int k = 0; k < in_flight; ++k) {
        const int i = first + k * threads_;
        const TileShape::Element e = shape_.element(i);
        if (i < shape_.count())
          tile_[e.step * pitch_ + e.row] = shape_.exists(e) ? to_value(raw_[k], io_) : Value{};
      }
    }
  }

 private:
  __device__ void load(int first) {
#pragma unroll
    for (int k = 0; k < in_flight; ++k)
      raw_[k] = source_[shape_.offset(shape_.element(first + k * threads_))];
  }

  Value* tile_;
  const Stored* source_;
  bool variable_;
  TileShape shape_;
  int threads_, pitch_;
  DType io_;
  Stored raw_[in_flight];
};

__device__ inline TileShape sequence_shape(const ScanArgs& args, const ThreadCoordinates& own, int valid,
                                           const GeneralPlan& plan) {
  return {plan.channels_log2, plan.steps_log2, own.block.count, valid, args.sequence.dim, args.sequence.time};
}

/// Loads the thread's elements of `count` (B, D, L) tensors and calls store(index in a sequence tile, whether
/// it exists, values) for each. The second of the sources is delta, and gets delta_bias added. A null source
/// has the values of the first.
template <class Io, int count, class Store>
__device__ void stage_sequences(const void* const (&sources)[count], const ScanArgs& args,
                                const ThreadCoordinates& own, std::int64_t start, int valid,
                                const GeneralPlan& plan, DType io, const Store& store) {
  const TileShape shape = sequence_shape(args, own, valid, plan);
  const std::int64_t origin = own.row + start * args.sequence.time;
  for (int first = threadIdx.x; first < shape.count(); first += kInFlight * plan.threads()) {
    Io raw[kInFlight][count];
    float bias[kInFlight] = {};
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const TileShape::Element e = shape.element(first + k * plan.threads());
      const std::int64_t at = origin + shape.offset(e);
      if (args.delta_bias != nullptr) bias[k] = args.delta_bias[own.block.first + min(e.row, shape.rows - 1)];
#pragma unroll
      for (int i = 0; i < count; ++i)
        raw[k][i] = static_cast<const Io*>(sources[i] != nullptr ? sources[i] : sources[0])[at];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const TileShape::Element e = shape.element(first + k * plan.threads());
      if (first + k * plan.threads() >= shape.count()) continue;
      float loaded[count];
#pragma unroll
      for (int i = 0; i < count; ++i) loaded[i] = to_float(raw[k][i], io);
      loaded[1] += bias[k];
      store(e.row * plan.sequence_pitch() + e.step, shape.exists(e), loaded);
    }
  }
}

}  // namespace ssmbench::fused_bwd_general
