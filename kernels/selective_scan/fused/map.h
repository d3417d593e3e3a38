#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/common/hardware.h"
#include "kernels/common/index_math.h"
#include "kernels/selective_scan/segments.h"

// Which thread of cuda-fused's fast kernel (kernel.cuh) does what, and where its tiles lie. Host and device,
// so that the CPU tests cover it.

namespace ssmbench::fused {

/// How channels are spread over threads: each on `lanes` threads with `states` of its states each.
struct ThreadShape {
  int states;  ///< 2 or 4
  int lanes;   ///< 4 or 8
  int slices;  ///< the most of a block, 1, 2 or 4

  friend bool operator==(const ThreadShape&, const ThreadShape&) = default;
};

/// Up to so many states are done at a time, in rounds, with tiles of so many steps.
inline constexpr int kRoundStates = 32;
inline constexpr int kRoundTileSteps = 64;
inline constexpr int kConsumerThreads = 128;  ///< of a slice
inline constexpr int kProducerThreads = 128;  ///< of a slice

/// The shape for `dstate` states in a problem of `rows` = batch · dim channels.
///
///   states     rows                       f32        16 bit
///   from 17                               4 × 8, 1   4 × 8, 1
///   1 to 16    up to 16 a multiprocessor  2 × 8, 1   2 × 8, 1
///              up to 64 a multiprocessor  4 × 4, 2   4 × 4, 4
///              more                       4 × 4, 4   4 × 4, 4
///              more, up to 64 steps       4 × 4, 1   4 × 4, 4
///
/// 4 states a thread take the fewest instructions. 2 states on twice the threads are faster while there are
/// too few threads to keep the multiprocessors busy. In f32 blocks of four slices leave room for a pipeline
/// of depth 2, too little where a multiprocessor has fewer slices; blocks of two have room for 3, and need
/// not add partial sums in pairs. Sequences of two tiles leave nothing to prefetch: four blocks of one slice,
/// for which there is room then, begin sooner. 16-bit elements gain from neither.
constexpr ThreadShape shape_for(std::int64_t rows, std::int64_t dstate, std::int64_t seqlen,
                                std::size_t element_bytes) {
  if (dstate > 16) return ThreadShape{4, 8, 1};
  if (rows <= h200::kMultiprocessors * 16) return ThreadShape{2, 8, 1};
  if (element_bytes == 2) return ThreadShape{4, 4, 4};
  if (rows <= h200::kMultiprocessors * 64) return ThreadShape{4, 4, 2};
  return ThreadShape{4, 4, seqlen <= 2 * 32 ? 1 : 4};
}

/// Whether a shape is one of those that plan_for() cuts time with.
constexpr bool can_be_cut(ThreadShape shape) {
  return shape.states == 4 && shape.slices != 2;
}

/// Whether there are kernels of a shape that leave x.
constexpr bool can_leave_x(ThreadShape shape) {
  return shape.states * shape.lanes == 16;
}

/// The shape of a problem, and how its time is cut.
struct FastPlan {
  ThreadShape shape;
  TimeSegments segments;

  /// Floats of the sums that rounds hand on, for `groups` groups of `channels` channels.
  constexpr std::int64_t sum_floats(std::int64_t groups, std::int64_t channels, std::int64_t dstate) const {
    if (dstate <= kRoundStates) return 0;
    constexpr int kChannels = kConsumerThreads / 8;
    const std::int64_t tiles = ceil_div(segments.steps, std::int64_t{kRoundTileSteps});
    return groups * ceil_div(channels, std::int64_t{kChannels}) * segments.count * tiles *
           (kChannels * kRoundTileSteps);
  }

  friend bool operator==(const FastPlan&, const FastPlan&) = default;
};

/// The plan for batch·groups `groups` of `channels` channels each. Time is cut where there are at most 16
/// channels a multiprocessor: segments then take the place of channels, so that multiprocessors are as full
/// as with many of these. In f32 a block of four slices leaves no room for another block, and would be half
/// empty with fewer.
constexpr FastPlan plan_for(std::int64_t groups, std::int64_t channels, std::int64_t dstate,
                            std::int64_t seqlen, std::size_t element_bytes, bool cuts_time = true) {
  const std::int64_t rows = groups * channels;
  const FastPlan whole{shape_for(rows, dstate, seqlen, element_bytes), {seqlen, 1}};
  if (!cuts_time || rows > h200::kMultiprocessors * 16) return whole;
  const bool wide = dstate > 16;
  const std::int64_t slices = ceil_div(channels, wide ? 16 : 32);
  const ThreadShape cut =
      wide ? ThreadShape{4, 8, 1} : ThreadShape{4, 4, element_bytes == 4 && slices < 4 ? 1 : 4};
  const int rounds = static_cast<int>(ceil_div(dstate, std::int64_t{kRoundStates}));
  const SegmentCosts costs = wide ? SegmentCosts{60 * rounds, 120 * rounds, 2} : SegmentCosts{34, 84, 4};
  const TimeSegments segments = cut_time(groups * slices, seqlen, 8 * cut.lanes, costs);
  return segments.count == 1 ? whole : FastPlan{cut, segments};
}

/// Calls `call` with the numbers of a shape of these elements as std::integral_constant, and returns what it
/// returns.
template <std::size_t element_bytes, class Call>
auto with_shape(ThreadShape shape, const Call& call) {
  using std::integral_constant;
  const integral_constant<int, 1> one;
  const integral_constant<int, 2> two;
  const integral_constant<int, 4> four;
  const integral_constant<int, 8> eight;
  if (shape.states == 2) return call(two, eight, one);
  if (shape.lanes == 8) return call(four, eight, one);
  if constexpr (element_bytes == 4) {
    if (shape.slices == 1) return call(four, four, one);
    if (shape.slices == 2) return call(four, four, two);
  }
  return call(four, four, four);
}

/// Slices of a block, of at most `most`, for `groups` times `slices_of_group` slices: `usual`, unless another
/// number saves the busiest multiprocessor a tenth of its slices (tail effect).
constexpr int slices_per_block(std::int64_t groups, std::int64_t slices_of_group, int usual, int most) {
  const auto of_busiest = [&](int slices) {
    return ceil_div(groups * ceil_div(slices_of_group, slices), h200::kMultiprocessors) * slices;
  };
  int best = usual;
  for (int slices = most; slices >= 1; --slices)
    if (10 * of_busiest(slices) <= 9 * of_busiest(best)) best = slices;
  return best;
}

/// Sizes and index maps of a kernel with kStates states of a channel on each of kLanes threads. A tile has 8
/// steps times the lanes of a channel, so that a producer thread stages 8 elements of each sequence.
template <int states_of_thread, int lanes_of_channel, int max_slices>
struct ThreadMap {
  static constexpr int kStates = states_of_thread;
  static constexpr int kLanes = lanes_of_channel;
  static constexpr int kThreads = kConsumerThreads + kProducerThreads;  ///< of a slice
  static constexpr int kMaxSlices = max_slices;                         ///< of a block
  /// Resident blocks of kMaxSlices on a multiprocessor.
  static constexpr int kBlocks = kLanes == 4 && kMaxSlices == 1 ? 4 : kStates == 4 && kLanes == 8 ? 2 : 1;
  static constexpr int kChannels = kConsumerThreads / kLanes;  ///< of a slice
  static constexpr int kSteps = 8 * kLanes;
  static constexpr int kStateFloats = 1;
  static constexpr int kPaddedStates = kStates * kLanes;
  /// Whether more states than these are done in rounds.
  static constexpr bool kRounds = kPaddedStates == kRoundStates;
  /// Partial sums of y that consumers leave to be added, each of one or two lanes.
  static constexpr int kPartials = kStates == 2 || kMaxSlices == 2 ? kLanes : kLanes / 2;

  /// A consumer's channel in its slice, and its lane. The lowest bits of the thread are one of the channel
  /// and one of the lane: shared memory serves 16-byte loads of 16 threads at once where threads that differ
  /// in only one of these two bits take the same address.
  SSMBENCH_HD static constexpr int channel_of(int thread) {
    constexpr int kChannelsOfWarp = 32 / kLanes;
    return (thread >> 5) * kChannelsOfWarp + (thread & 1) + (((thread >> 2) << 1) & (kChannelsOfWarp - 1));
  }
  SSMBENCH_HD static constexpr int lane_of(int thread) {
    return ((thread >> 1) & 1) + ((thread & 31) / (64 / kLanes) << 1);
  }
  /// Distance in the warp of threads whose lanes differ in bit 0.
  static constexpr int kFirstLaneBit = 2;

  // A staged tile of sequences, in floats. 8 steps of a channel are 16 floats: first {Δ, Δ·u} of each, then,
  // in their place, two partial sums of y, of 8 steps each. Other partial sums lie in planes of their own.
  // The pads put the 16-byte accesses of 8 neighbouring channels, of 8 channels apart, and of 8 threads along
  // time into different banks.
  SSMBENCH_HD static constexpr int step_at(int channel, int step) {
    return channel * kPitch + (channel >> 3) * 8 + within_row(step);
  }
  SSMBENCH_HD static constexpr int partial_at(int partial, int channel, int step) {
    return partial % kPlanes * kPlaneFloats + step_at(channel, step & ~7) + partial / kPlanes * 8 +
           (step & 7);
  }
  SSMBENCH_HD static constexpr int within_row(int step) {
    return 2 * step + (step >> 4) * 8 + (step >> 5) * 4;
  }
  static constexpr int kPitch =
      (2 * kSteps + ((kSteps - 1) >> 4) * 8 + ((kSteps - 1) >> 5) * 4) / 4 / 2 * 8 + 4;
  static constexpr int kPlaneFloats = (kChannels * kPitch + (kChannels >> 3) * 8 + 15) / 32 * 32 + 16;
  static constexpr int kPlanes = kPartials / 2;
  static constexpr int kSequenceFloats = kPlanes * kPlaneFloats;

  /// B and C: a thread reads one 16-byte vector at a time, its states in 4/kStates steps. A pad after every
  /// two steps puts the vectors of neighbouring steps, which a warp of producers stores at once, into other
  /// banks.
  static constexpr int kStepsAtOnce = 4 / kStates;
  SSMBENCH_HD static constexpr int projection_at(int step, int state) {
    const int vectors = (step / kStepsAtOnce) * kLanes;
    return (vectors + vectors / (kPaddedStates / 2) + state / kStates) * 4 + (step % kStepsAtOnce) * kStates +
           state % kStates;
  }
  static constexpr int kProjectionFloats = kSteps * kPaddedStates + (kSteps >> 3) * 16;
};

/// The same with complex states: pairs of what are states there, so that a thread has two. Without rounds.
struct ComplexThreadMap : ThreadMap<4, 8, 1> {
  static constexpr int kStateFloats = 2;
  static constexpr bool kRounds = false;
};
inline constexpr int kMostComplexStates = ComplexThreadMap::kPaddedStates / ComplexThreadMap::kStateFloats;

/// A tile of a tensor as TMA leaves it. A row of it has kRowBytes; those of each copy, at most 128, lie
/// together. Its 16-byte vectors are permuted by address bits 7 and up (CU_TENSOR_MAP_SWIZZLE_*), so that the
/// same vector of neighbouring rows is in different banks.
template <int rows, int row_elements, int element_bytes>
struct RawTile {
  static constexpr int kElementBytes = element_bytes;
  static constexpr int kRowBytes = row_elements * element_bytes;
  static constexpr int kRows = rows;
  static constexpr int kCopyRow = kRowBytes < 128 ? kRowBytes : 128;
  static constexpr int kCopies = kRowBytes / kCopyRow;
  static constexpr int kCopyBytes = rows * kCopyRow;
  static constexpr int kBytes = rows * kRowBytes;

  SSMBENCH_HD static constexpr int at(int row, int byte) {
    const int offset = byte / kCopyRow * kCopyBytes + row * kCopyRow + byte % kCopyRow;
    return offset ^ (offset >> 3 & (kCopyRow - 16));
  }
};

/// A block's shared memory, in bytes: what its slices share, and then a region of each slice.
///
///   shared      raw B, C  kDepth tiles each │ f32 B, C  2 tiles │ mbarriers
///   of a slice  raw u  kDepth + 2 tiles │ raw z, delta  kDepth tiles each │ {Δ, Δ·u}  2 tiles │ bias, D
///
/// Raw tiles lie in a ring buffer for each tensor; of two tiles in f32 one is scanned while the other is
/// finished and staged. A raw tile is loaded kDepth tiles before it is staged, and z's two tiles later, since
/// u and z are needed once more when a tile is finished: by then the next but one is staged.
template <class Map, int element_bytes>
struct SharedLayout {
  static constexpr int kElementBytes = element_bytes;
  /// Raw tiles, whose rows are steps of a channel or of a state, or else channels or states of a step.
  template <bool kAlongTime>
  using Sequence = RawTile<kAlongTime ? Map::kChannels : Map::kSteps,
                           kAlongTime ? Map::kSteps : Map::kChannels, element_bytes>;
  template <bool kAlongTime>
  using Projection = RawTile<kAlongTime ? Map::kPaddedStates / Map::kStateFloats : Map::kSteps,
                             kAlongTime ? Map::kSteps * Map::kStateFloats : Map::kPaddedStates,
                             Map::kStateFloats == 2 ? 4 : element_bytes>;
  static constexpr int kSequenceBytes = Sequence<true>::kBytes;
  static constexpr int kProjectionBytes = Projection<true>::kBytes;
  static_assert(Sequence<false>::kBytes == kSequenceBytes && Projection<false>::kBytes == kProjectionBytes);

  /// Floats of a slice, and of what all slices share.
  static constexpr int kSliceFloats = 2 * (Map::kSequenceFloats + Map::kChannels);
  static constexpr int kCommonFloats = 4 * Map::kProjectionFloats;

  static constexpr int slice_bytes_with(int depth) {
    return in_kilobytes((3 * depth + 2) * kSequenceBytes + kSliceFloats * 4);
  }
  /// With an mbarrier for each pipeline stage.
  static constexpr int common_bytes_with(int depth) {
    return in_kilobytes(2 * depth * kProjectionBytes + kCommonFloats * 4 + depth * 8);
  }
  /// Whether the largest blocks find room on a multiprocessor.
  static constexpr bool has_room(int depth) {
    return common_bytes_with(depth) + Map::kMaxSlices * slice_bytes_with(depth) <=
           h200::shared_bytes_of_each(Map::kBlocks);
  }
  /// The pipeline's depth.
  static constexpr int kDepth = has_room(3) ? 3 : has_room(2) ? 2 : 1;
  static constexpr int kSliceBytes = slice_bytes_with(kDepth);
  static constexpr int kCommonBytes = common_bytes_with(kDepth);
  SSMBENCH_HD static constexpr int bytes(int slices) { return kCommonBytes + slices * kSliceBytes; }
  /// Slices of a block unless something speaks against it: two resident blocks of two slices, of which one
  /// scans while the other waits at its barrier, or, where these do not fit, one block of all.
  static constexpr int kUsualSlices =
      Map::kMaxSlices > 2 && 2 * (bytes(2) + h200::kReservedSharedBytes) <= h200::kSharedBytes
          ? 2
          : Map::kMaxSlices;

  // Slots of the ring buffers, from the start of a slice's region.
  static constexpr int kKeptU = kDepth + 2;
  SSMBENCH_HD static constexpr int u_at(unsigned tile) {
    return static_cast<int>(tile % kKeptU) * kSequenceBytes;
  }
  SSMBENCH_HD static constexpr int z_at(unsigned tile) {
    return (kKeptU + static_cast<int>(tile % kDepth)) * kSequenceBytes;
  }
  SSMBENCH_HD static constexpr int delta_at(unsigned tile) {
    return (kKeptU + kDepth + static_cast<int>(tile % kDepth)) * kSequenceBytes;
  }
  static constexpr int kSliceRawBytes = (kKeptU + 2 * kDepth) * kSequenceBytes;
  /// B, C: 0, 1. From the start of the shared region.
  SSMBENCH_HD static constexpr int projection_at(int which, unsigned tile) {
    return (2 * static_cast<int>(tile % kDepth) + which) * kProjectionBytes;
  }
  static constexpr int kCommonRawBytes = 2 * kDepth * kProjectionBytes;

 private:
  /// Copies are permuted by address: they begin at multiples of 1 KB.
  static constexpr int in_kilobytes(int bytes) { return (bytes + 1023) / 1024 * 1024; }
};

/// The 8 elements of a tile of sequences that a producer thread stages: its channel and step of the first,
/// the others after it along the axis that is contiguous in memory. Where a raw row is two copies, whose
/// vectors of the same index are in the same banks, 8 neighbouring threads take one half of two rows.
template <class Map, bool kAlongTime, int element_bytes>
struct SequenceCoordinates {
  SSMBENCH_HD explicit SequenceCoordinates(int thread)
      : channel(kAlongTime ? channel_along(thread) : thread % kAcross * 8),
        step(kAlongTime ? item_along(thread) * 8 : step_across(thread / kAcross)) {}

  int channel, step;

 private:
  static constexpr int kAcross = Map::kChannels / 8;  ///< threads that share a step
  static constexpr bool kTwoCopies = Map::kLanes == 8 && Map::kSteps * element_bytes > 128;

  SSMBENCH_HD static constexpr int channel_along(int i) {
    return kTwoCopies ? (i >> 5 << 2) + (i >> 2 & 3) : i / Map::kLanes;
  }
  SSMBENCH_HD static constexpr int item_along(int i) {
    return kTwoCopies ? (i & 3) + (i >> 2 & 4) : i % Map::kLanes;
  }

  /// The steps that 16 threads store at once: with 32 channels 4 neighbours, with 16 channels 4 and the 4
  /// that are 8 later.
  SSMBENCH_HD static constexpr int step_across(int i) {
    return kAcross == 2 ? (i & ~12) + ((i & 4) << 1) + ((i & 8) >> 1) : i;
  }
};

/// The items of a tile of B and of C that a producer thread stages: 8 steps of one state, or 8 states of one
/// step; of complex ones half as many of either. With 16 states and 32 steps one half of the threads has one
/// item of B, the other one of C.
template <class Map, bool kAlongTime>
struct ProjectionCoordinates {
  static constexpr int kItemsOfTile = Map::kPaddedStates * Map::kSteps / 8;
  static constexpr bool kHalves = kItemsOfTile < kProducerThreads;
  static constexpr int kThreads = kHalves ? kItemsOfTile : kProducerThreads;
  static constexpr int kProjections = kHalves ? 1 : 2;    ///< of B and C those that a thread has items of
  static constexpr int kItems = kItemsOfTile / kThreads;  ///< of a thread, of B and of C each
  static constexpr int kStepsApart = kThreads * 8 / Map::kPaddedStates;

  static constexpr int kOfItem = 8 / Map::kStateFloats;  ///< steps or states
  static constexpr int kStates = Map::kPaddedStates / Map::kStateFloats;

  SSMBENCH_HD explicit ProjectionCoordinates(int thread)
      : state(kAlongTime ? thread % kThreads % kStates : thread % (kStates / kOfItem) * kOfItem),
        step(kAlongTime ? thread % kThreads / kStates * kOfItem : thread % kThreads / (kStates / kOfItem)) {}

  int state, step;
};

}  // namespace ssmbench::fused
