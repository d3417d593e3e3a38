#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/memory_guard.h"
#include "model/distributed.h"
#include "team/counted_team.h"
#include "team/rank_links.h"
#include "team/rank_order.h"

namespace ssmbench {

/// What one rank found in a launch of all.
struct RankOutcome {
  LaunchTime time = {};  ///< from when all ranks were ready until it was done
  double wire_bytes = 0;
  std::optional<std::int64_t> steps_again = {};
  Damage damage = {};
};

/// A distributed implementation with a rank's parts of the tensors of one problem, in memory of the rank's
/// device. Rank 0 has the tensors of the whole problem beside them: what inputs and outputs hold there before
/// a launch is handed out first, and outputs are collected there afterwards, outside of its time. So parts
/// are as the whole is, however often that changes.
///
/// Members are collective. They throw TeamError where another rank fails, and what the device and the
/// implementation throw.
class RankRun {
 public:
  /// `whole`: its tensors on rank 0, in memory of its device; null elsewhere. `workspace` is of
  /// DistributedImplementation's size; null: of its own, with guard bands. The links have to live as long.
  RankRun(RankLinks& links, const DistributedImplementation& implementation, const Problem& problem,
          const TensorSet* whole, void* workspace);

  /// By rank. Garbage goes into a workspace of its own alone.
  std::vector<RankOutcome> launch(const LaunchConditions& conditions);
  /// Collects outputs once more, after whatever goes on on a rank has had time to end. Whether it did.
  bool settle();
  /// What the last launch sent and received, alone; what it took, by rank, ms.
  std::vector<double> exchange();

 private:
  struct Part {
    TensorSpec of_whole, spec;
    Device::Buffer buffer;
    std::byte* in_whole;  ///< the whole tensor, on rank 0
    bool is_cut;
  };
  void hand_out();
  void collect();
  DistributedRun bind(const Box& box, const TensorSet* whole, void* workspace);
  std::vector<RankOutcome> outcomes_of_all(const RankOutcome& own);
  /// Copies between a whole tensor and the part that `rank` has of it, `packed`.
  void copy(const Part& part, int rank, void* packed, bool out_of_whole) const;
  /// Memory of the device for another rank's part.
  void* packed(std::size_t bytes);
  TensorSpec part_at(const Part& part, int rank) const;

  RankLinks& links_;
  Device& device_;
  const DistributedImplementation& implementation_;
  Problem problem_;
  Communicator& team_;       ///< exchanges memory of the host
  Communicator& of_device_;  ///< and of the device
  CountedTeam counted_;
  std::vector<Part> parts_;
  std::size_t workspace_bytes_;
  Device::Buffer workspace_;  ///< its own; else null
  Device::Buffer packed_;
  std::size_t packed_bytes_ = 0;
  MemoryGuard guard_;
  DistributedRun run_;
};

/// What every rank but 0 does: obeys rank 0 until there are no more orders. Throws what RankRun throws.
void follow(RankLinks& links, const std::function<std::optional<RankOrder>()>& next_order);

}  // namespace ssmbench
