#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/ssd_chunk_scan/sequences.h"

// States on the way in cuda-chunked. Packed sequences are cut into pieces, at the ends of sequences and
// behind the steps whose states are wanted:
//
//   sequences   ├────────────────┤├──────────┤
//   stops              ↓      ↓             ↓        any order, twice, or at the end of a sequence
//   pieces      ├───────┤├────┤├─┤├──────────┤┤
//
//   order    one block: the ends of pieces in order, as a cu_seqlens, and the stop at each
//   states   the kernel's first pass on pieces: end states that start from nothing, and decays
//   walk     a thread for each element of a head's state: h ← decay·h + end state, from piece to piece
//
// That reads x and B once more, as a first pass does where time is cut, and computes half of what the scan
// does. The order is host and device code, so that the CPU tests cover it.

namespace ssmbench {

/// Ends of pieces, M of sequences and K of stops: the ends of sequences first, then the stops as they come.
struct PieceEnds {
  const std::int32_t* cu_seqlens;  ///< (M + 1,)
  const std::int32_t* states_at;   ///< (K,)
  std::int64_t sequences, stops;

  SSMBENCH_HD std::int64_t count() const { return sequences + stops; }
  SSMBENCH_HD bool is_stop(std::int64_t i) const { return i >= sequences; }
  /// The step behind the piece.
  SSMBENCH_HD std::int32_t end(std::int64_t i) const {
    return is_stop(i) ? states_at[i - sequences] + 1 : cu_seqlens[i + 1];
  }
  /// How many ends come before it. A stop at the last step of a sequence comes before the sequence's end, and
  /// so before those of empty sequences there.
  SSMBENCH_HD std::int64_t rank(std::int64_t i) const {
    const std::int64_t key = std::int64_t{end(i)} * 2 + (is_stop(i) ? 0 : 1);
    std::int64_t before = 0;
    for (std::int64_t j = 0; j < count(); ++j) {
      const std::int64_t other = std::int64_t{end(j)} * 2 + (is_stop(j) ? 0 : 1);
      before += other < key || (other == key && j < i) ? 1 : 0;
    }
    return before;
  }
};

/// Pieces in order, in the workspace.
struct Pieces {
  std::int32_t* ends;  ///< (M + K + 1,), from 0, as a cu_seqlens
  std::int32_t* stop;  ///< (M + K,): of each piece, or −1 at the end of a sequence

  SSMBENCH_HD void put(const PieceEnds& all, std::int64_t i) const {
    const std::int64_t rank = all.rank(i);
    ends[rank + 1] = all.end(i);
    stop[rank] = all.is_stop(i) ? static_cast<std::int32_t>(i - all.sequences) : -1;
    if (i == 0) ends[0] = 0;
  }
};

}  // namespace ssmbench
