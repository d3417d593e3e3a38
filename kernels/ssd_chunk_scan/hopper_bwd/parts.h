#pragma once

#include <algorithm>
#include <cstdint>

// Into how many parts the walks over time are cut (states.cuh). Host and device, so that the CPU tests cover
// it. Tuned on an H200.

namespace ssmbench::ssd_hopper_bwd {

/// Blocks that run at once: two on each multiprocessor of an H200.
inline constexpr int kWalkBlocks = 264;
/// What a chunk takes, in cycles of an H200 (measured): alone, and beside as many blocks as run at once.
inline constexpr double kWalkChunkCycles = 1800;
inline constexpr double kWalkFullCycles = 4300;
/// The same of the pass of states alone.
inline constexpr double kWalkPartChunkCycles = 1450;
inline constexpr double kWalkPartFullCycles = 2150;
/// What the pass of states costs besides.
inline constexpr double kWalkPartsCycles = 6000;
inline constexpr double kWalkPartCycles = 150;

/// Parts that both walks of each of `heads` sequences are cut into. Of the shape alone.
constexpr int walk_parts(std::int64_t heads, std::int64_t chunks) {
  const auto cycles = [&](std::int64_t parts) {
    const auto blocks = static_cast<double>(2 * heads * parts);
    const auto length = static_cast<double>((chunks + parts - 1) / parts);
    const auto chunk = [&](double alone, double full) {
      return std::max(alone, full * blocks / kWalkBlocks);
    };
    const double images = length * chunk(kWalkChunkCycles, kWalkFullCycles);
    if (parts == 1) return images;
    return images + length * chunk(kWalkPartChunkCycles, kWalkPartFullCycles) + kWalkPartsCycles +
           kWalkPartCycles * static_cast<double>(parts);
  };
  std::int64_t best = 1;
  const std::int64_t most =
      std::min(kWalkBlocks / std::min<std::int64_t>(2 * heads, kWalkBlocks + 1), chunks);
  for (std::int64_t parts = 2; parts <= most; ++parts)
    if (cycles(parts) < cycles(best)) best = parts;
  return static_cast<int>(best);
}

/// Parts of each of `walks` walks of which the ends alone are asked for. Blocks for two rounds: heads forget
/// at different speeds, and those that have forgotten end early.
constexpr int end_parts(std::int64_t walks, std::int64_t chunks) {
  return static_cast<int>(std::clamp<std::int64_t>(2 * kWalkBlocks / walks, 1, chunks));
}

/// Whether a block walks two heads of a group: where more walks than multiprocessors run at once, two of them on
/// one, which share B and C there.
constexpr bool walks_in_pairs(std::int64_t heads, int parts, std::int64_t heads_per_group) {
  return heads_per_group % 2 == 0 && 2 * heads * parts > kWalkBlocks / 2;
}

}  // namespace ssmbench::ssd_hopper_bwd
