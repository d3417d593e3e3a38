#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/workspace.h"
#include "kernels/ssd_chunk_scan/chunk_grid.h"
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

/// A (batch, chunk, head) is a row, a ChunkGrid's.
struct Plan : ChunkGrid {
  std::int64_t batch, seqlen, nheads, groups;
  int headdim, dstate, angles;
  int sums;  ///< of a row: dQ_bias and dK_bias, then dD

  // Byte offsets into the workspace.
  std::size_t q, k;      ///< [B, L, H, N] io dtype: rotated
  std::size_t dq, dk;    ///< [B, L, H, N] f32: their gradients, turned back
  std::size_t phases;    ///< [B, L, H, S] u32: from the chunk's first step on
  std::size_t dtheta;    ///< [B, L, H, S] f32
  std::size_t starts;    ///< [row][S] u32: phases before the chunk
  std::size_t steps;     ///< [row][kStepFloats][step] f32
  std::size_t owns;      ///< [row][step] f32: γ
  std::size_t seeds;     ///< [B, H, P, N] f32: the states that sequences start with; only with initial states
  std::size_t states;    ///< [row][dstate tile] tiles: the states entering the chunk
  std::size_t dstates;   ///< the same of the gradients of the states leaving the chunk
  std::size_t turns;     ///< [row][S] f32: Σ dθ of the chunk; then of later chunks
  std::size_t flows;     ///< [row][kFlowRows][step] f32
  std::size_t row_sums;  ///< [row][sums] f32
  std::size_t first_own;  ///< [B, H] f32: ds of the step before the first; only with initial states
  std::size_t bytes;

  explicit Plan(const Mamba3& scan)
      : ChunkGrid(chunk_grid(scan.batch, scan.seqlen, scan.nheads, scan.headdim, scan.dstate, kSteps)),
        batch(scan.batch),
        seqlen(scan.seqlen),
        nheads(scan.nheads),
        groups(scan.groups),
        headdim(static_cast<int>(scan.headdim)),
        dstate(static_cast<int>(scan.dstate)),
        angles(static_cast<int>(scan.angles)),
        sums(2 * dstate + 1) {
    constexpr std::size_t kIo = 2;
    const std::int64_t vectors = batch * seqlen * nheads * dstate;
    const std::int64_t heads = scan.has_initial_states ? batch * nheads : 0;
    WorkspaceLayout layout;
    q = layout.take(vectors, kIo);
    k = layout.take(vectors, kIo);
    dq = layout.take(vectors, sizeof(float));
    dk = layout.take(vectors, sizeof(float));
    phases = layout.take(batch * seqlen * nheads * angles, sizeof(float));
    dtheta = layout.take(batch * seqlen * nheads * angles, sizeof(float));
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
};

/// The workspace as the kernels take it.
struct Workspace {
  void *q, *k;
  std::uint32_t* phases;
  std::uint32_t* starts;
  float* dtheta;
  float *dq, *dk;
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

  /// Rows are blocks of a grid, so that 32 bits will do for the divisions.
  SSMBENCH_HD Row(const Plan& plan, std::int64_t row) : index(row) {
    const auto nheads = static_cast<std::uint32_t>(plan.nheads);
    const auto chunks = static_cast<std::uint32_t>(plan.chunks);
    const std::uint32_t of_heads = static_cast<std::uint32_t>(row) / nheads;
    b = of_heads / chunks;
    chunk = of_heads % chunks;
    head = static_cast<std::uint32_t>(row) % nheads;
    group = static_cast<std::uint32_t>(head) / (nheads / static_cast<std::uint32_t>(plan.groups));
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
