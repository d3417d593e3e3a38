#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/common/index_math.h"

// Which thread of cuda-fused's fast kernel (fused_rows_kernel.cuh) does what, and where its tiles lie. Host
// and device, so that the CPU tests cover it.

namespace ssmbench {

/// How the states of a channel are spread: `states` per thread on `lanes` threads.
struct RowsShape {
  int states;  ///< 1, 2 or 4
  int lanes;   ///< 4, 8 or 16

  friend bool operator==(const RowsShape&, const RowsShape&) = default;
};

inline constexpr int kRowsThreads = 128;
inline constexpr int kRowsMaxStates = 32;

/// The spread of `dstate` states in a problem of `rows` = batch · dim channels; nothing over kRowsMaxStates.
/// 4 states a thread take the fewest instructions, but while there are not enough threads to keep the GPU
/// busy, fewer states on more threads are faster.
constexpr std::optional<RowsShape> rows_shape(std::int64_t rows, std::int64_t dstate) {
  if (dstate > kRowsMaxStates) return std::nullopt;
  if (dstate > 16) return RowsShape{4, 8};
  if (rows >= 6144) return RowsShape{4, 4};
  return rows >= 3072 ? RowsShape{2, 8} : RowsShape{1, 16};
}

/// Calls `call` with the shape's two numbers as std::integral_constant, and returns what it returns.
template <class Call>
auto with_rows_shape(RowsShape shape, const Call& call) {
  using std::integral_constant;
  if (shape.states == 1) return call(integral_constant<int, 1>(), integral_constant<int, 16>());
  if (shape.states == 2) return call(integral_constant<int, 2>(), integral_constant<int, 8>());
  if (shape.lanes == 4) return call(integral_constant<int, 4>(), integral_constant<int, 4>());
  return call(integral_constant<int, 4>(), integral_constant<int, 8>());
}

/// Sizes and index maps of a kernel with kStates states on each of a channel's kLanes threads. A block has
/// 128 threads, a tile 8 steps times the lanes of a channel, so that a thread stages 8 elements of each
/// sequence.
template <int states_of_thread, int lanes_of_channel>
struct RowsMap {
  static constexpr int kStates = states_of_thread;
  static constexpr int kLanes = lanes_of_channel;
  static constexpr int kChannels = kRowsThreads / kLanes;
  static constexpr int kSteps = 8 * kLanes;
  static constexpr int kPaddedStates = kStates * kLanes;
  static constexpr int kParts = 4;  ///< sums of a channel's states that the scan leaves to be added

  /// A thread's channel in its block and its lane. The lowest bits of the lane in a warp are one of the
  /// channel and one of the state: shared memory serves 16-byte loads of 16 threads at once where threads
  /// that differ in one of these two bits only take the same address.
  SSMBENCH_HD static constexpr int channel_of(int thread) {
    constexpr int kChannelsOfWarp = 32 / kLanes;
    return (thread >> 5) * kChannelsOfWarp + (thread & 1) + (((thread >> 2) << 1) & (kChannelsOfWarp - 1));
  }
  SSMBENCH_HD static constexpr int lane_of(int thread) {
    return ((thread >> 1) & 1) + ((thread & 31) / (64 / kLanes) << 1);
  }
  /// Distance in the warp of threads whose lanes differ in bit 0, in bit 1.
  static constexpr int kFirstLaneBit = 2;
  static constexpr int kSecondLaneBit = 64 / kLanes;

  // Shared memory, in floats. Sequences are [channel][step], 2 (Δ, Δ·u) or 1 (a part of y) floats a step.
  // The pads put the 16-byte accesses of 8 neighbouring channels, and those of 8 channels apart, into
  // different banks.
  SSMBENCH_HD static constexpr int step_at(int channel, int step) {
    return channel * (2 * kSteps + 4) + (channel >> 3) * 8 + 2 * step;
  }
  static constexpr int kStepFloats = kChannels * (2 * kSteps + 4) + (kChannels >> 3) * 8;
  SSMBENCH_HD static constexpr int part_at(int part, int channel, int step) {
    return part * kPartFloats + channel * (kSteps + 4) + (channel >> 3) * 8 + step;
  }
  static constexpr int kPartFloats = (kChannels * (kSteps + 4) + (kChannels >> 3) * 8 + 15) / 32 * 32 + 16;

  /// B and C: what a thread reads at once are 16 bytes, its states in 4/kStates steps.
  static constexpr int kStepsAtOnce = 4 / kStates;
  SSMBENCH_HD static constexpr int projection_at(int step, int state) {
    return ((step / kStepsAtOnce) * kLanes + state / kStates) * 4 + (step % kStepsAtOnce) * kStates +
           state % kStates + (step >> 3) * 16;
  }
  static constexpr int kProjectionFloats = kSteps * kPaddedStates + (kSteps >> 3) * 16;

  static constexpr int kSharedBytes =
      (kStepFloats + kParts * kPartFloats + 2 * kProjectionFloats + 2 * kChannels) *
      static_cast<int>(sizeof(float));
};

}  // namespace ssmbench
