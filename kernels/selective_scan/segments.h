#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/index_math.h"
#include "kernels/common/workspace.h"

// Where there are too few channels to fill the GPU, time is cut into segments that run side by side:
//
//   states    ├──►  ├──►  ├──►        the state at each segment's end from zero at its start, and the product
//                                     of its decays
//   combine   ──────►─────►─────►     the true states at the ends (combine_kernel in segments.cuh)
//   outputs   ├──►  ├──►  ├──►  ├──►  the scan itself, each segment from the true state before it
//
// Host and device, so that the CPU tests cover it.

namespace ssmbench {

/// `count` segments of `steps` steps each; the last may have fewer.
struct TimeSegments {
  std::int64_t steps, count;

  friend bool operator==(const TimeSegments&, const TimeSegments&) = default;
};

/// What decides whether time is cut: times of a kernel on an H200, in cycles a step. A part is what one block
/// of the kernel, or a slice of a block, does of the channels.
struct SegmentCosts {
  int alone;     ///< of a part that has a multiprocessor to itself, time uncut
  int shared;    ///< of each of the parts that share a multiprocessor, in both passes together
  int resident;  ///< parts that a multiprocessor holds
};

/// The two launches more and the states through memory, in cycles of an H200.
inline constexpr std::int64_t kSegmentCycles = 20000;
inline constexpr std::int64_t kShortestSegment = 64;

/// How time is cut for `parts` parts of the channels: into as many segments of whole tiles as multiprocessors
/// hold at once, none under kShortestSegment, if that is faster than one.
constexpr TimeSegments cut_time(std::int64_t parts, std::int64_t seqlen, int tile_steps,
                                const SegmentCosts& costs) {
  const TimeSegments whole{seqlen, 1};
  const std::int64_t most = h200::kMultiprocessors * costs.resident / parts;
  if (most < 2) return whole;
  const std::int64_t least = std::max(ceil_div(seqlen, most), kShortestSegment);
  const std::int64_t steps = ceil_div(least, tile_steps) * tile_steps;
  const std::int64_t count = ceil_div(seqlen, steps);
  const std::int64_t of_busiest = ceil_div(parts * count, h200::kMultiprocessors);
  if (costs.shared * of_busiest * steps + kSegmentCycles >= costs.alone * seqlen) return whole;
  return {steps, count};
}

/// The segments as kernels take them, and the states between them. Both arrays are [segment][b][d][n] for all
/// segments but the last, null where there is only one. With complex A all values are complex.
struct SegmentStates {
  TimeSegments segments;
  std::int64_t states;  ///< B·D·N
  float* decays;        ///< products of a segment's decays
  float* ends;          ///< states at its end: from zero at its start, and once combined the true ones
};

/// The floats that these arrays take in the workspace; `values` floats are a state.
constexpr std::int64_t segment_floats(const TimeSegments& segments, std::int64_t states, int values) {
  WorkspaceLayout layout;
  for (int array = 0; array < 2; ++array) layout.take_floats((segments.count - 1) * states * values);
  return layout.floats();
}

inline SegmentStates segment_states(const TimeSegments& segments, std::int64_t states, int values,
                                    void* workspace) {
  if (segments.count == 1) return {segments, states, nullptr, nullptr};
  WorkspaceLayout layout;
  float* const floats = static_cast<float*>(workspace);
  const std::int64_t of_array = (segments.count - 1) * states * values;
  float* const decays = floats + layout.take_floats(of_array);
  return {segments, states, decays, floats + layout.take_floats(of_array)};
}

}  // namespace ssmbench
