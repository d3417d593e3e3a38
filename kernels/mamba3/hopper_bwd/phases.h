#pragma once

// Phases for SISO's gradients of cuda-hopper, whose walks and gradient kernel turn Q and K themselves. Team and Io as in
// tensor_bwd/prepare.h.
//
// A step's phase is that before its chunk, in 32 bits, and what the chunk's steps have added, in 16: 5e-5 rad off at
// most, a fortieth of what rounding q and k to bf16 leaves. What chunks add is exact, so that angles do not drift.

#include "kernels/mamba3/tensor_bwd/prepare.h"

namespace ssmbench::mamba3_bwd {

/// Memory of a block that makes the phases of a chunk.
struct alignas(16) PhaseMemory {
  static constexpr int kPitch = kTilePairs + kAngleVector;  ///< rows in different banks
  std::uint32_t phases[kSteps * kPitch];                    ///< [step][pair]: from the part's first step on
  std::uint32_t parts[kSpanParts * kTilePairs];  ///< [part][pair]: sums; then those of the parts before
  float adt[kSteps];                             ///< of StepNumbers
};

/// The phases of a chunk of a head and what it adds to those of later ones, and the numbers of its steps.
template <class Io, class Team>
struct ChunkPhases {
  const Mamba3Args& args;
  const Plan& plan;
  const Workspace& to;
  PhaseMemory& memory;
  Span row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    for (int tile = 0; tile < plan.angle_tiles; ++tile) {
      team.for_all(kSpanParts * kTileVectors, [&](int i) {
        if (tile == 0 && i < kSpanParts) numbers().add_part(i);
        add_part(tile, i / kTileVectors, i % kTileVectors * kAngleVector);
      });
      const int rows = tile == 0 ? kSteps : 0;
      team.for_all(kTilePairs + rows, [&](int i) {
        if (i < kTilePairs) return add_parts(tile, i);
        numbers().make_row(0, i - kTilePairs);
      });
      team.for_all(kPhaseVectors, [&](int vector) { store_vector(tile, vector); });
    }
  }

 private:
  SSMBENCH_TEAM StepNumbers<Io, Siso> numbers() const { return {args, plan, to, row, memory.adt}; }
  SSMBENCH_TEAM PhaseTile& tile_of(int tile) const { return phase_tile(plan, to, row.index, tile); }

  SSMBENCH_TEAM void add_part(int tile, int part, int pair) const {
    std::uint32_t sums[kAngleVector] = {};
    const auto store = [&](int t) { Io::store_words(memory.phases + t * PhaseMemory::kPitch + pair, sums); };
    if (tile * kTilePairs + pair < plan.angles)
      for_increments<Io, Siso>(args, plan, row, part, tile * kTilePairs + pair,
                               [&](int t, const std::uint32_t(&increments)[kAngleVector]) {
                                 for (int k = 0; k < kAngleVector; ++k) sums[k] += increments[k];
                                 store(t);
                               });
    else
      for (int u = 0; u < kPartSteps; ++u) store(part * kPartSteps + u);
    Io::store_words(memory.parts + part * kTilePairs + pair, sums);
  }
  SSMBENCH_TEAM void add_parts(int tile, int pair) const {
    std::uint32_t sums[kSpanParts];
    for (int part = 0; part < kSpanParts; ++part) sums[part] = memory.parts[part * kTilePairs + pair];
    std::uint32_t before = 0;
    for (int part = 0; part < kSpanParts; ++part) {
      memory.parts[part * kTilePairs + pair] = before;
      before += sums[part];
    }
    tile_of(tile).starts[start_slot(pair)] = tile * kTilePairs + pair < plan.angles ? before : 0U;
  }
  /// Pairs that do not exist have phase 0.
  SSMBENCH_TEAM void store_vector(int tile, int vector) const {
    const AngleAt first = phase_at(vector, 0);
    const std::uint32_t* const phases = memory.phases + first.t * PhaseMemory::kPitch + first.pair;
    const std::uint32_t* const parts = memory.parts + first.t / kPartSteps * kTilePairs + first.pair;
    const int pairs = plan.angles - tile * kTilePairs - first.pair;
    std::uint32_t words[kPhaseElements / 2];
    for (int i = 0; i < kPhaseElements / 2; ++i) {
      const int pair = i * kApartPairs;   // two steps of each
      const auto phase_of = [&](int t) {  // rounded in the upper half
        return phases[t * PhaseMemory::kPitch + pair] + parts[t / kPartSteps * kTilePairs + pair] + 0x8000U;
      };
      words[i] = pair < pairs ? phase_of(0) >> 16 | (phase_of(kApartSteps) & 0xFFFF0000U) : 0U;
    }
    Io::store_words(tile_of(tile).of_steps + vector * (kPhaseElements / 2), words);
  }
};

/// From what chunks add to the phases before them.
template <class Team>
SSMBENCH_TEAM void add_phase_starts(const Mamba3Args& args, const Workspace& to,
                                    const ChunkScan<std::uint32_t, Team>& scan) {
  const Plan& plan = scan.plan;
  scan.run(
      [&](int head, int pair) -> ChunkColumn<std::uint32_t> {
        const auto nheads = static_cast<int>(plan.nheads);
        const ChunkRun chunks = chunks_of(plan, to, head / nheads);
        const std::int64_t row = chunks.first * nheads + head % nheads;
        return {first_phase(args, plan, head, pair),
                phase_tile(plan, to, row, pair / kTilePairs).starts + start_slot(pair % kTilePairs),
                plan.nheads * plan.angle_tiles * static_cast<std::int64_t>(sizeof(PhaseTile) / 4),
                chunks.count};
      },
      [](int, int, std::uint32_t) {});
}

}  // namespace ssmbench::mamba3_bwd
