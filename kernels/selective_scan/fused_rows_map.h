#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/common/index_math.h"

// Which thread of cuda-fused's fast kernel (fused_rows_kernel.cuh) does what, and where its tiles lie. Host
// and device, so that the CPU tests cover it.

namespace ssmbench {

/// How channels are spread: `channels` and `states` of each per thread, the states on `lanes` threads.
struct RowsShape {
  int states;    ///< 2 or 4
  int lanes;     ///< 4 or 8
  int channels;  ///< 1 or 2

  friend bool operator==(const RowsShape&, const RowsShape&) = default;
};

inline constexpr int kRowsScanners = 128;  ///< threads of a block that scan
inline constexpr int kRowsMaxStates = 32;

/// Channels on the busiest of an H200's 132 multiprocessors, of `rows` in blocks of `channels`.
constexpr std::int64_t rows_of_busiest(std::int64_t rows, std::int64_t channels) {
  return ceil_div(ceil_div(rows, channels), 132) * channels;
}

/// The spread of `dstate` states in a problem of `rows` = batch · dim channels; nothing over kRowsMaxStates.
/// 4 states a thread take the fewest instructions, but while there are not enough threads to keep the GPU
/// busy, fewer states on more threads are faster. 2 channels a thread read B and C half as often and leave
/// registers for more bytes under way, which f32 needs, while 16-bit elements gain from more warps; but their
/// blocks are twice as large, which must not leave more to the busiest multiprocessor.
constexpr std::optional<RowsShape> rows_shape(std::int64_t rows, std::int64_t dstate,
                                              std::size_t element_bytes) {
  if (dstate > kRowsMaxStates) return std::nullopt;
  if (dstate > 16) return RowsShape{4, 8, 1};
  if (element_bytes < 4) return rows <= 6144 ? RowsShape{2, 8, 1} : RowsShape{4, 4, 1};
  if (rows <= 4096) return RowsShape{2, 8, 1};
  return RowsShape{4, 4, rows_of_busiest(rows, 64) <= rows_of_busiest(rows, 32) ? 2 : 1};
}

/// Calls `call` with the shape's three numbers as std::integral_constant, and returns what it returns. The
/// shape is one of elements of this size: 2 channels a thread are for 4 bytes only.
template <std::size_t element_bytes, class Call>
auto with_rows_shape(RowsShape shape, const Call& call) {
  using std::integral_constant;
  const integral_constant<int, 1> one;
  const integral_constant<int, 2> two;
  const integral_constant<int, 4> four;
  const integral_constant<int, 8> eight;
  if constexpr (element_bytes == 4) {
    if (shape.channels == 2) return call(four, four, two);
  }
  if (shape.states == 2) return call(two, eight, one);
  return shape.lanes == 4 ? call(four, four, one) : call(four, eight, one);
}

/// Sizes and index maps of a kernel with kStates states of kRows channels on each of kLanes threads. A tile
/// has 8 steps times the lanes of a channel, so that a helper stages 8 elements of each sequence.
template <int states_of_thread, int lanes_of_channel, int channels_of_thread>
struct RowsMap {
  static constexpr int kStates = states_of_thread;
  static constexpr int kLanes = lanes_of_channel;
  static constexpr int kRows = channels_of_thread;
  static constexpr int kHelpers = kRows * 128;          ///< of one group
  static constexpr int kGroups = kStates == 2 ? 2 : 1;  ///< of helpers, which take turns
  static constexpr int kThreads = kRowsScanners + kGroups * kHelpers;
  static constexpr int kChannels = kRows * kRowsScanners / kLanes;
  static constexpr int kSteps = 8 * kLanes;
  static constexpr int kPaddedStates = kStates * kLanes;
  /// Sums of a channel's states that the scan leaves to be added.
  static constexpr int kParts = kPaddedStates <= 16 ? kLanes : 4;

  static constexpr int kChannelsApart = kRowsScanners / kLanes;  ///< of a thread's channels

  /// A scanner's first channel in its block and its lane. The lowest bits of the lane in a warp are one of
  /// the channel and one of the state: shared memory serves 16-byte loads of 16 threads at once where threads
  /// that differ in one of these two bits only take the same address.
  SSMBENCH_HD static constexpr int channel_of(int thread) {
    constexpr int kChannelsOfWarp = 32 / kLanes;
    return (thread >> 5) * kChannelsOfWarp + (thread & 1) + (((thread >> 2) << 1) & (kChannelsOfWarp - 1));
  }
  SSMBENCH_HD static constexpr int lane_of(int thread) {
    return ((thread >> 1) & 1) + ((thread & 31) / (64 / kLanes) << 1);
  }
  /// Distance in the warp of threads whose lanes differ in bit 0.
  static constexpr int kFirstLaneBit = 2;

  // Shared memory, in floats. 8 steps of a channel are 16 floats: first {Δ, Δ·u} of each, then the parts of
  // y of lanes 0 and 2, of 8 steps each, that the scan leaves in their place. Other parts lie in planes of
  // their own. The pads put the 16-byte accesses of 8 neighbouring channels, those of 8 channels apart, and
  // those of 8 threads along time into different banks.
  SSMBENCH_HD static constexpr int step_at(int channel, int step) {
    return channel * kPitch + (channel >> 3) * 8 + within_row(step);
  }
  SSMBENCH_HD static constexpr int part_at(int part, int channel, int step) {
    const int plane = (part & 1) + (part >> 2 << 1);
    return plane * kPlaneFloats + step_at(channel, step & ~7) + (part >> 1 & 1) * 8 + (step & 7);
  }
  SSMBENCH_HD static constexpr int within_row(int step) {
    return 2 * step + (step >> 4) * 8 + (step >> 5) * 4;
  }
  static constexpr int kPitch =
      (2 * kSteps + ((kSteps - 1) >> 4) * 8 + ((kSteps - 1) >> 5) * 4) / 4 / 2 * 8 + 4;
  static constexpr int kPlaneFloats = (kChannels * kPitch + (kChannels >> 3) * 8 + 15) / 32 * 32 + 16;
  static constexpr int kSequenceFloats = kParts / 2 * kPlaneFloats;

  /// B and C: what a thread reads at once are 16 bytes, its states in 4/kStates steps.
  static constexpr int kStepsAtOnce = 4 / kStates;
  SSMBENCH_HD static constexpr int projection_at(int step, int state) {
    return ((step / kStepsAtOnce) * kLanes + state / kStates) * 4 + (step % kStepsAtOnce) * kStates +
           state % kStates + (step >> 3) * 16;
  }
  static constexpr int kProjectionFloats = kSteps * kPaddedStates + (kSteps >> 3) * 16;

  /// A tile: planes of sequences, B, C. Two of them, one scanned while the other is finished and staged.
  static constexpr int kTileFloats = kSequenceFloats + 2 * kProjectionFloats;
  static constexpr int kSharedBytes = (2 * kTileFloats + 2 * kChannels) * static_cast<int>(sizeof(float));
};

/// Where a helper's octet of a tile of sequences lies: 8 elements along the axis that is contiguous in
/// memory.
template <class Map, bool kAlongTime>
struct SequencePlace {
  SSMBENCH_HD explicit SequencePlace(int thread)
      : channel(kAlongTime ? thread / Map::kLanes
                           : thread % kAcross * 8 + thread / kRowsScanners * Map::kChannelsApart),
        step(kAlongTime ? thread % Map::kLanes * 8 : step_across(thread % kRowsScanners / kAcross)) {}

  int channel, step;

 private:
  static constexpr int kAcross = Map::kChannelsApart / 8;  ///< octets of a step

  /// Which of the steps it is of which 16 octets are stored at once: of 32 channels 4 neighbours, of 16
  /// channels 4 and the 4 that are 8 later.
  SSMBENCH_HD static constexpr int step_across(int i) {
    return kAcross == 2 ? (i & ~12) + ((i & 4) << 1) + ((i & 8) >> 1) : i;
  }
};

/// Where a helper's octets of a tile of B, of C lie: 8 steps of one state, or 8 states of one step. Of 16
/// states and 32 steps one half of the threads has one octet of B, the other one of C.
template <class Map, bool kAlongTime>
struct ProjectionPlace {
  static constexpr int kOctetsOfTile = Map::kPaddedStates * Map::kSteps / 8;
  static constexpr bool kHalves = kOctetsOfTile < Map::kHelpers;
  static constexpr int kThreads = kHalves ? kOctetsOfTile : Map::kHelpers;
  static constexpr int kProjections = kHalves ? 1 : 2;      ///< of which a thread has octets
  static constexpr int kOctets = kOctetsOfTile / kThreads;  ///< a thread's, of B and of C each
  static constexpr int kStepsApart = kThreads * 8 / Map::kPaddedStates;

  SSMBENCH_HD explicit ProjectionPlace(int thread)
      : state(kAlongTime ? thread % kThreads % Map::kPaddedStates : thread % (Map::kPaddedStates / 8) * 8),
        step(kAlongTime ? thread % kThreads / Map::kPaddedStates * 8
                        : thread % kThreads / (Map::kPaddedStates / 8)) {}

  int state, step;
};

}  // namespace ssmbench
