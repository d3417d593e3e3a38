#pragma once

#include "team/rank_links.h"

namespace ssmbench {

/// What the links between the ranks of a team give at most, as nccl-tests counts: by the rank that takes
/// longest, medians.
struct LinkCeilings {
  double latency_ms = 0;        ///< an all-gather of 8 bytes of each rank
  double gather_bytes = 0;      ///< a second, that a rank receives in an all-gather of 256 MiB of each
  double all_to_all_bytes = 0;  ///< the same, of 256 MiB that a rank has for all
};

/// Measures them, in about a second where memory is that of GPUs. Collective; all ranks have the same numbers.
/// Throws TeamError and DeviceError.
LinkCeilings measure_links(RankLinks& links);

}  // namespace ssmbench
