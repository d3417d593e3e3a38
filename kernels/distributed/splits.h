#pragma once

#include <optional>
#include <string>

#include "kernels/distributed/rank_kind.h"
#include "model/box.h"
#include "model/problem.h"

// Splits of a problem along axes that states do not pass: channels and batches. What is computed of a part
// needs no other part; gradients that are sums over what is split are added over the ranks.

namespace ssmbench {

/// A way to share out a problem among ranks.
struct Split {
  const char* name;  ///< of the implementation, after the kind of device
  const char* summary;
  std::optional<std::string> (*unsupported)(const Problem& whole, int ranks);
  Box (*box)(const Problem& whole, int rank, int ranks);
  /// The problem that a rank's part is by itself.
  Problem (*part)(const Problem& whole, int rank, int ranks);
};

/// Channels or heads, as many for each rank, with their groups; a group may be shared by ranks.
const Split& channel_split();
/// Batches.
const Split& batch_split();

/// Whether the box leaves a tensor whole, so that every rank has something of all of it.
bool is_whole(const TensorSpec& spec, const Box& box);

/// Registers cpu-channels, cpu-batch and cpu-alltoall (all_to_all.h) of an operation, or nccl-…, whose
/// computations are those of one device. `ranks` has to live as long as the program.
struct SplitRegistration {
  SplitRegistration(const RankKind& ranks, const char* op);
};

}  // namespace ssmbench
