#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/mamba3/chunked_bwd/team.h"

// Packed sequences in Mamba-3's gradients: a chunk ends with its sequence, so that nothing of one is in the products of
// another. Lengths are known on the device alone, where a block makes a table of all chunks. Host and device, so that
// the CPU tests cover it.

namespace ssmbench::mamba3_bwd {

/// Steps of a chunk of packed sequences, which have one rank.
inline constexpr int kSequenceChunkSteps = 64;

/// A chunk of a packed sequence.
struct alignas(16) SequenceChunk {
  static constexpr int kOpens = 1;   ///< it has its sequence's first step
  static constexpr int kCloses = 2;  ///< it has the last one

  std::int32_t start;     ///< first step
  std::int32_t steps;     ///< 0: there is no such chunk
  std::int32_t sequence;  ///< of a chunk that is not there the last one
  std::int32_t ends;      ///< kOpens | kCloses
};

SSMBENCH_HD constexpr int sequence_chunks(int steps) {
  return (steps + kSequenceChunkSteps - 1) / kSequenceChunkSteps;
}

/// The most chunks that `sequences` of `steps` steps together have.
constexpr std::int64_t most_sequence_chunks(std::int64_t steps, std::int64_t sequences) {
  return std::min(steps, (steps + (kSequenceChunkSteps - 1) * sequences) / kSequenceChunkSteps);
}

/// Where the table is.
struct SequenceTable {
  SequenceChunk* chunks;  ///< [chunk], the most that there can be
  std::int32_t* begins;   ///< (M + 1,): the first chunk of each sequence, and how many there are in all
};

/// Runs of sequences, of which a thread has one.
inline constexpr int kSequenceRuns = 256;

/// Fills the table in. `most`: most_sequence_chunks(). `runs`: [kSequenceRuns].
template <class Team>
SSMBENCH_TEAM void make_sequence_table(const std::int32_t* cu_seqlens, std::int64_t sequences,
                                       std::int64_t most, const SequenceTable& to, std::int32_t* runs,
                                       const Team& team) {
  const std::int64_t each = (sequences + kSequenceRuns - 1) / kSequenceRuns;
  const auto chunks_of = [&](std::int64_t i) { return sequence_chunks(cu_seqlens[i + 1] - cu_seqlens[i]); };
  const auto end_of = [&](int run) { return (run + 1) * each < sequences ? (run + 1) * each : sequences; };
  team.for_all(kSequenceRuns, [&](int run) {
    std::int32_t sum = 0;
    for (std::int64_t i = run * each; i < end_of(run); ++i) sum += chunks_of(i);
    runs[run] = sum;
  });
  team.for_all(kSequenceRuns, [&](int run) {
    std::int32_t before = 0;
    for (int earlier = 0; earlier < run && earlier * each < sequences; ++earlier) before += runs[earlier];
    for (std::int64_t i = run * each; i < end_of(run); ++i) {
      to.begins[i] = before;
      before += chunks_of(i);
    }
    if (run == kSequenceRuns - 1) to.begins[sequences] = before;
  });
  const std::int32_t* const begins = to.begins;
  team.for_all(static_cast<int>(most), [&](int chunk) {
    if (chunk >= begins[sequences]) {
      to.chunks[chunk] = {cu_seqlens[sequences], 0, static_cast<std::int32_t>(sequences) - 1, 0};
      return;
    }
    // The last one that begins no later: those before it with this begin are empty.
    std::int64_t sequence = 0;
    for (std::int64_t end = sequences; end - sequence > 1;) {
      const std::int64_t middle = (sequence + end) / 2;
      (begins[middle] <= chunk ? sequence : end) = middle;
    }
    const int of_sequence = chunk - begins[sequence];
    const int start = cu_seqlens[sequence] + of_sequence * kSequenceChunkSteps;
    const int left = cu_seqlens[sequence + 1] - start;
    to.chunks[chunk] = {start, left < kSequenceChunkSteps ? left : kSequenceChunkSteps,
                        static_cast<std::int32_t>(sequence),
                        (of_sequence == 0 ? SequenceChunk::kOpens : 0) |
                            (left <= kSequenceChunkSteps ? SequenceChunk::kCloses : 0)};
  });
}

}  // namespace ssmbench::mamba3_bwd
