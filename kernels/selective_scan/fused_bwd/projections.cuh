#pragma once

// The fast kernels of selective_scan_bwd: how B and C are staged in shared memory. The picture is in
// kernel.cuh.

#include "kernels/common/io_types.cuh"
#include "kernels/selective_scan/fused_bwd/coordinates.cuh"

namespace ssmbench::fused_bwd {

/// A thread's values of B or C of a tile, four states of one step, on their way through registers to shared
/// memory.
template <class Io>
class ProjectionTile {
 public:
  static constexpr int kThreads = 2 * kTileSteps * kPaddedStates / kLaneStates;
  static_assert(kThreads == kSegmentThreads && kThreads < kProducerThreads);

  /// In registers, as they lie in memory.
  struct Loaded {
    unsigned raw[kLaneStates];
  };

  /// For `thread`, and the tile that begins at `start`.
  __device__ ProjectionTile(const KernelArgs& kernel, const WarpCoordinates& own, std::int64_t start,
                            int thread) {
    const ScanArgs& args = kernel.args.scan;
    constexpr int kQuads = kPaddedStates / kLaneStates;
    which_ = thread / (kTileSteps * kQuads);
    const int i = thread % (kTileSteps * kQuads);
    const ProjectionStrides& strides = which_ == 0 ? args.b_strides : args.c_strides;
    const bool by_time = strides.time == 1;
    step_ = by_time ? i % kTileSteps : i / kQuads;
    state_ = kLaneStates * (by_time ? i / kTileSteps : i % kQuads);
    count_ = kernel.round.states - state_;
    from_ = static_cast<const Bits*>(which_ == 0 ? args.B : args.C) + own.block.b * strides.batch +
            own.block.g * strides.group + (start + step_) * strides.time + state_ * strides.state;
    stride_ = strides.state;
    tile_stride_ = kTileSteps * strides.time;
  }
  /// Goes on to the next tile.
  __device__ void move() { from_ += tile_stride_; }
  /// Starts to load them. The tile has `valid` steps.
  __device__ Loaded load(int valid) const {
    Loaded loaded;
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k)
      loaded.raw[k] = step_ < valid && k < count_ ? static_cast<unsigned>(from_[k * stride_]) : 0U;
    return loaded;
  }
  /// Stores them in each of the four orders; zeros for what does not exist.
  __device__ void finish(const Loaded& loaded, float (*to)[kTileSteps * kProjectionPitch]) const {
    float values[kLaneStates];
#pragma unroll
    for (int k = 0; k < kLaneStates; ++k) values[k] = from_bits(loaded.raw[k]);
#pragma unroll
    for (int order = 0; order < kOrders; ++order)
      store_vector(&to[which_][step_ * kProjectionPitch + order * kPaddedStates + state_], values[0 ^ order],
                   values[1 ^ order], values[2 ^ order], values[3 ^ order]);
  }

 private:
  using Bits = std::conditional_t<sizeof(Io) == sizeof(unsigned), unsigned, unsigned short>;

  __device__ static float from_bits(unsigned bits) {
    if constexpr (sizeof(Io) == sizeof(unsigned)) return __uint_as_float(bits);
    const auto half = static_cast<unsigned short>(bits);
    return to_float(reinterpret_cast<const Io&>(half));
  }

  int which_, step_, state_, count_;
  const Bits* from_;
  std::int64_t stride_, tile_stride_;
};

}  // namespace ssmbench::fused_bwd
