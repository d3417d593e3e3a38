#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/workspace.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"
#include "ops/mamba3/mamba3.h"

// How cuda-chunked cuts Mamba-3's gradients up, and where its workspace lies; the picture is in launch.cu. Host
// and device, so that the CPU tests cover it.

namespace ssmbench::mamba3_bwd {

/// Steps of a chunk, head dims, and states of a tile: the tiles are those of SSD's kernels.
inline constexpr int kSteps = 64;
inline constexpr int kMaxHeaddim = 64;
inline constexpr int kMaxStates = 128;
inline constexpr int kMaxAngles = kMaxStates / 2;
/// Floats of a step in SSD's kernels, chunk_grid.h.
inline constexpr int kStepFloats = 4;

// What the gradient kernel leaves of each step.
inline constexpr int kFlowOut = 0;  ///< what reaches the step from before less what leaves it: for later sums
inline constexpr int kFlowIn = 1;   ///< what leaves it for the state behind the chunk: for earlier sums
inline constexpr int kFlowScale = 2;  ///< ds
inline constexpr int kFlowOwn = 3;    ///< dγ
inline constexpr int kFlowRows = 4;

/// Pairs of an angle tile, [step][pair]: those of 64 states.
inline constexpr int kTilePairs = kSteps / 2;
inline constexpr int kAngleTile = kSteps * kTilePairs;
inline constexpr int kAngleVector = 4;  ///< 16 bytes

/// Element of an angle tile. A thread of the gradient kernels has its pairs of a 64 × 64 product of tensor cores
/// (steps, states) in four vectors, and a warp's vectors are neighbours.
SSMBENCH_HD constexpr int angle_offset(int t, int pair) {
  const int thread = t / 16 * 32 + t % 8 * 4 + pair % 4;
  const int value = pair / 4 * 2 + t % 16 / 8;
  return (value / kAngleVector * 2 * kSteps + thread) * kAngleVector + value % kAngleVector;
}
/// The first element of a vector of an angle tile. The others are (t + kApartSteps, pair), (t, pair + kApartPairs)
/// and (t + kApartSteps, pair + kApartPairs).
struct AngleAt {
  int t, pair;
};
inline constexpr int kApartSteps = 8;
inline constexpr int kApartPairs = 4;
SSMBENCH_HD constexpr AngleAt angle_at(int vector) {
  const int thread = vector % (2 * kSteps);
  return {thread / 32 * 16 + thread % 32 / 4, vector / (2 * kSteps) * 2 * kApartPairs + thread % kApartPairs};
}

/// i = of·kLikely + rest: without a division where `width` is what it mostly is.
struct Split {
  int of, rest;
};
template <int kLikely>
SSMBENCH_HD inline Split split(int i, int width) {
  const auto index = static_cast<unsigned>(i);
  const unsigned of = width == kLikely ? index / kLikely : index / static_cast<unsigned>(width);
  return {static_cast<int>(of), i - static_cast<int>(of) * width};
}

/// Where the heads of a group are summed: from the workspace by a kernel, or in a block that walks through them.
enum class HeadSums { kernel, block };

/// A (batch, chunk, head) is a row, a ChunkGrid's.
struct Plan : ChunkGrid {
  std::int64_t batch, seqlen, nheads, groups;
  int headdim, dstate, angles, angle_tiles;
  std::int64_t slices;     ///< blocks that share a group's heads; only with HeadSums::block
  std::int64_t per_slice;  ///< heads of a slice; the last may have fewer
  int sums;                ///< of a row: dQ_bias and dK_bias, then dD

  // Byte offsets into the workspace.
  std::size_t q, k;        ///< [B, L, H, N] io dtype: rotated
  std::size_t dq, dk;      ///< [B, L, H, N] f32: their gradients, turned back; only with HeadSums::kernel
  std::size_t slice_sums;  ///< [slice][dK, dQ][B, L, G, N] f32; only where there are several slices
  std::size_t phases;      ///< [row][angle tile] tiles of u32: of θ
  std::size_t dtheta;      ///< the same of f32
  std::size_t starts;      ///< [row][S] u32: phases before the chunk
  std::size_t steps;       ///< [row][kStepFloats][step] f32
  std::size_t owns;        ///< [row][step] f32: γ
  std::size_t seeds;     ///< [B, H, P, N] f32: the states that sequences start with; only with initial states
  std::size_t states;    ///< [row][dstate tile] tiles: the states entering the chunk
  std::size_t dstates;   ///< the same of the gradients of the states leaving the chunk
  std::size_t turns;     ///< [row][S] f32: Σ dθ of the chunk; then of later chunks
  std::size_t flows;     ///< [row][kFlowRows][step] f32
  std::size_t row_sums;  ///< [row][sums] f32
  std::size_t first_own;  ///< [B, H] f32: ds of the step before the first; only with initial states
  std::size_t bytes;

  Plan(const Mamba3& scan, HeadSums head_sums)
      : ChunkGrid(chunk_grid(scan.batch, scan.seqlen, scan.nheads, scan.headdim, scan.dstate, kSteps)),
        batch(scan.batch),
        seqlen(scan.seqlen),
        nheads(scan.nheads),
        groups(scan.groups),
        headdim(static_cast<int>(scan.headdim)),
        dstate(static_cast<int>(scan.dstate)),
        angles(static_cast<int>(scan.angles)),
        angle_tiles(static_cast<int>(ceil_div(scan.angles, kTilePairs))),
        slices(1),
        per_slice(nheads / groups),
        sums(2 * dstate + 1) {
    constexpr std::size_t kIo = 2;
    const std::int64_t vectors = batch * seqlen * nheads * dstate;
    const std::int64_t of_heads = head_sums == HeadSums::kernel ? vectors : 0;
    const std::int64_t angle_elements = rows * angle_tiles * kAngleTile;
    if (head_sums == HeadSums::block) {
      constexpr TileKind kTiles{kSteps, kStepFloats, kIo, false};
      const ChunkedBwdPlan cut = plan_chunked_bwd(batch, seqlen, nheads, headdim, dstate, groups, 0, kTiles);
      slices = cut.slices;
      per_slice = cut.per_slice;
    }
    const std::int64_t heads = scan.has_initial_states ? batch * nheads : 0;
    WorkspaceLayout layout;
    q = layout.take(vectors, kIo);
    k = layout.take(vectors, kIo);
    dq = layout.take(of_heads, sizeof(float));
    dk = layout.take(of_heads, sizeof(float));
    slice_sums = layout.take(slices > 1 ? slices * 2 * batch * seqlen * groups * dstate : 0, sizeof(float));
    phases = layout.take(angle_elements, sizeof(float));
    dtheta = layout.take(angle_elements, sizeof(float));
    starts = layout.take(rows * angles, sizeof(float));
    steps = layout.take(rows * kStepFloats * kSteps, sizeof(float));
    owns = layout.take(rows * kSteps, sizeof(float));
    seeds = layout.take(heads * headdim * dstate, sizeof(float));
    states = layout.take(tiles() * kSteps * kSteps, kIo);
    dstates = layout.take(tiles() * kSteps * kSteps, kIo);
    turns = layout.take(rows * angles, sizeof(float));
    flows = layout.take(rows * kFlowRows * kSteps, sizeof(float));
    row_sums = layout.take(rows * sums, sizeof(float));
    first_own = layout.take(heads, sizeof(float));
    bytes = layout.bytes();
  }

  /// First element of an angle tile.
  SSMBENCH_HD std::int64_t angle_tile(std::int64_t row, int tile) const {
    return (row * angle_tiles + tile) * kAngleTile;
  }
};

/// The workspace as the kernels take it.
struct Workspace {
  void *q, *k;
  std::uint32_t* phases;
  std::uint32_t* starts;
  float* dtheta;
  float *dq, *dk, *slice_sums;
  float *steps, *owns, *seeds;
  void *states, *dstates;
  float *turns, *flows, *row_sums, *first_own;

  Workspace(const Plan& plan, void* memory) {
    auto* const base = static_cast<unsigned char*>(memory);
    const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(base + offset); };
    q = base + plan.q;
    k = base + plan.k;
    dq = floats(plan.dq);
    dk = floats(plan.dk);
    slice_sums = floats(plan.slice_sums);
    phases = reinterpret_cast<std::uint32_t*>(base + plan.phases);
    dtheta = floats(plan.dtheta);
    starts = reinterpret_cast<std::uint32_t*>(base + plan.starts);
    steps = floats(plan.steps);
    owns = floats(plan.owns);
    seeds = floats(plan.seeds);
    states = base + plan.states;
    dstates = base + plan.dstates;
    turns = floats(plan.turns);
    flows = floats(plan.flows);
    row_sums = floats(plan.row_sums);
    first_own = floats(plan.first_own);
  }
};

/// Where a row is.
struct Row {
  std::int64_t index, b, chunk, head, group;
  std::int64_t start;  ///< first step
  int steps;           ///< that exist

  /// Rows are blocks of a grid, so that 32 bits will do for the divisions. (Of unsigned numbers that it widens, the
  /// compiler would make 64-bit divisions.)
  SSMBENCH_HD Row(const Plan& plan, std::int64_t row) : index(row) {
    const int nheads = static_cast<int>(plan.nheads);
    const int chunks = static_cast<int>(plan.chunks);
    const int of_heads = static_cast<int>(row) / nheads;
    b = of_heads / chunks;
    chunk = of_heads % chunks;
    const int of_row = static_cast<int>(row) % nheads;
    head = of_row;
    group = of_row / (nheads / static_cast<int>(plan.groups));
    start = chunk * kSteps;
    steps = static_cast<int>(plan.seqlen - start < kSteps ? plan.seqlen - start : kSteps);
  }

  /// (b, t, head) of [B, L, H] and (b, head, t) of [B, H, L].
  SSMBENCH_HD std::int64_t step(const Plan& plan, int t) const {
    return (b * plan.seqlen + start + t) * plan.nheads + head;
  }
  SSMBENCH_HD std::int64_t scalar(const Plan& plan, int t) const {
    return (b * plan.nheads + head) * plan.seqlen + start + t;
  }
  /// The same chunk's row of Q or K.
  SSMBENCH_HD std::int64_t vector(const Plan& plan, int t) const {
    return ((b * plan.seqlen + start + t) * plan.groups + group) * plan.dstate;
  }
};

}  // namespace ssmbench::mamba3_bwd
