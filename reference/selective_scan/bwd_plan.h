#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "model/method.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/selective_scan/x.h"

namespace ssmbench::scan_bwd {

/// How the reference's backward pass cuts its work: time into tiles, the channels of a group into slabs,
/// batches into waves that are done together.
struct BackwardPlan {
  /// Channels [first, last) of group `group` of one batch: what one thread does, one channel after the other.
  struct Task {
    std::int64_t index;  ///< in the wave
    std::int64_t batch, group, first, last;
  };

  SelectiveScan shape;
  std::int64_t tile, tiles;     ///< steps of a tile, tiles of the sequence
  std::int64_t slab, slabs;     ///< channels of a slab, slabs of a group
  std::int64_t wave;            ///< batches done together
  std::int64_t states_at_once;  ///< states that go through a tile together, a stretch of it at a time
  bool two_samples;             ///< of the method
  std::int64_t stretch;         ///< steps of a tile that are done together

  /// With x, stretches begin where it has states, and no tile begins between two of these.
  BackwardPlan(const SelectiveScan& scan, bool x)
      : shape(scan),
        tile(x ? tile_steps(scan.seqlen) / kStepsOfX * kStepsOfX : tile_steps(scan.seqlen)),
        tiles(ceil_div(scan.seqlen, tile)),
        slab(std::max(kSlabChannels, ceil_div(scan.channels_per_group(), kMostSlabs))),
        slabs(ceil_div(scan.channels_per_group(), slab)),
        wave(std::clamp<std::int64_t>(kTasks / (slabs * scan.groups), 1, scan.batch)),
        states_at_once(is_zoh() ? std::min(kStatesAtOnce, scan.dstate) : 1),
        two_samples(methods()[static_cast<std::size_t>(scan.method)].two_samples()),
        stretch(x ? kStepsOfX : kUsualStretch) {}

  bool is_zoh() const { return shape.method == MethodId::zoh; }
  /// Slab `of_all` of all groups' in a batch.
  Task task(std::int64_t batch, std::int64_t of_all, std::int64_t index) const {
    const std::int64_t group = of_all / slabs;
    const std::int64_t first = group * shape.channels_per_group();
    const std::int64_t begin = first + of_all % slabs * slab;
    return {index, batch, group, begin, std::min(begin + slab, first + shape.channels_per_group())};
  }
  /// That a channel belongs to, of all groups'.
  std::int64_t slab_of(std::int64_t channel) const {
    return channel / shape.channels_per_group() * slabs + channel % shape.channels_per_group() / slab;
  }
  /// That a range of so many channels may have.
  std::int64_t most_slabs(std::int64_t channels) const {
    const std::int64_t all = shape.groups * slabs;
    if (channels == shape.dim) return all;
    return std::min(all, ceil_div(channels, slab) + ceil_div(channels, shape.channels_per_group()));
  }
  std::int64_t steps_in(std::int64_t of_tile) const { return std::min(tile, shape.seqlen - of_tile * tile); }

  static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

 private:
  /// Steps of a stretch: what a step has for its states is 1.6 KB, so that a stretch stays in a first-level
  /// cache while all of kStatesAtOnce, which have their own 0.5 KB a step in the second, go through it.
  static constexpr std::int64_t kUsualStretch = 16;

  /// The slabs' shares of dB and dC are added up as their channels come, each slab's into its own; so at most
  /// so many slabs per group.
  static constexpr std::int64_t kSlabChannels = 16;
  static constexpr std::int64_t kMostSlabs = 128;
  /// Batches are done together while there are fewer tasks than this; more than the cores of any machine.
  static constexpr std::int64_t kTasks = 64;

  /// For method zoh; the rules of others take more room.
  static constexpr std::int64_t kStatesAtOnce = 8;

  /// Checkpoints and tiles take the least memory together near √L steps apart.
  static std::int64_t tile_steps(std::int64_t seqlen) {
    return std::clamp<std::int64_t>(std::llround(std::sqrt(static_cast<double>(seqlen))), 64, 256);
  }
};

}  // namespace ssmbench::scan_bwd
