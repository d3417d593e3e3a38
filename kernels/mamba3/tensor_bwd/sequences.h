#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/mamba3/chunked_bwd/team.h"

// Packed sequences in Mamba-3's gradients: a chunk ends with its sequence, so that nothing of one is in the
// products of another. Lengths are known on the device alone, where a block makes a table of all spans. Host
// and device, so that the CPU tests cover it.

namespace ssmbench::mamba3_bwd {

/// Steps of a span of packed sequences, which has as many chunks as there are ranks.
inline constexpr int kSequenceSpanSteps = 64;

/// A span of a packed sequence, or a chunk of one.
struct alignas(16) SequenceSpan {
  static constexpr int kOpens = 1;   ///< it has its sequence's first step
  static constexpr int kCloses = 2;  ///< it has the last one

  std::int32_t start;     ///< first step
  std::int32_t steps;     ///< 0: there is no such span or chunk
  std::int32_t sequence;  ///< of a span that is not there the last one
  std::int32_t ends;      ///< kOpens | kCloses
};

SSMBENCH_HD constexpr int sequence_spans(int steps) {
  return (steps + kSequenceSpanSteps - 1) / kSequenceSpanSteps;
}

/// A chunk of a span, each of `most` steps. The last span of a sequence may lack the last ones.
SSMBENCH_HD constexpr SequenceSpan chunk_of_span(const SequenceSpan& span, int chunk, int most) {
  const int first = chunk * most;
  const int left = span.steps - first;
  const int ends = (chunk == 0 ? span.ends & SequenceSpan::kOpens : 0) |
                   (left > 0 && left <= most ? span.ends & SequenceSpan::kCloses : 0);
  return {span.start + first, left < 0 ? 0 : left < most ? left : most, span.sequence, ends};
}

/// The most spans that `sequences` of `steps` steps together have.
constexpr std::int64_t most_sequence_spans(std::int64_t steps, std::int64_t sequences) {
  return std::min(steps, (steps + (kSequenceSpanSteps - 1) * sequences) / kSequenceSpanSteps);
}

/// Where the table is.
struct SequenceTable {
  SequenceSpan* spans;   ///< [span], the most that there can be
  std::int32_t* begins;  ///< (M + 1,): the first span of each sequence, and how many there are in all
};

/// Runs of sequences, of which a thread has one.
inline constexpr int kSequenceRuns = 256;

/// Fills the table in. `most`: most_sequence_spans(). `runs`: [kSequenceRuns].
template <class Team>
SSMBENCH_TEAM void make_sequence_table(const std::int32_t* cu_seqlens, std::int64_t sequences,
                                       std::int64_t most, const SequenceTable& to, std::int32_t* runs,
                                       const Team& team) {
  const std::int64_t each = (sequences + kSequenceRuns - 1) / kSequenceRuns;
  const auto spans_of = [&](std::int64_t i) { return sequence_spans(cu_seqlens[i + 1] - cu_seqlens[i]); };
  const auto end_of = [&](int run) { return (run + 1) * each < sequences ? (run + 1) * each : sequences; };
  team.for_all(kSequenceRuns, [&](int run) {
    std::int32_t sum = 0;
    for (std::int64_t i = run * each; i < end_of(run); ++i) sum += spans_of(i);
    runs[run] = sum;
  });
  team.for_all(kSequenceRuns, [&](int run) {
    std::int32_t before = 0;
    for (int earlier = 0; earlier < run && earlier * each < sequences; ++earlier) before += runs[earlier];
    for (std::int64_t i = run * each; i < end_of(run); ++i) {
      to.begins[i] = before;
      before += spans_of(i);
    }
    if (run == kSequenceRuns - 1) to.begins[sequences] = before;
  });
  const std::int32_t* const begins = to.begins;
  team.for_all(static_cast<int>(most), [&](int span) {
    if (span >= begins[sequences]) {
      to.spans[span] = {cu_seqlens[sequences], 0, static_cast<std::int32_t>(sequences) - 1, 0};
      return;
    }
    // The last one that begins no later: those before it with this begin are empty.
    std::int64_t sequence = 0;
    for (std::int64_t end = sequences; end - sequence > 1;) {
      const std::int64_t middle = (sequence + end) / 2;
      (begins[middle] <= span ? sequence : end) = middle;
    }
    const int of_sequence = span - begins[sequence];
    const int start = cu_seqlens[sequence] + of_sequence * kSequenceSpanSteps;
    const int left = cu_seqlens[sequence + 1] - start;
    to.spans[span] = {start, left < kSequenceSpanSteps ? left : kSequenceSpanSteps,
                      static_cast<std::int32_t>(sequence),
                      (of_sequence == 0 ? SequenceSpan::kOpens : 0) |
                          (left <= kSequenceSpanSteps ? SequenceSpan::kCloses : 0)};
  });
}

}  // namespace ssmbench::mamba3_bwd
