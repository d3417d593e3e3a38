#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "record/cause.h"
#include "team/link_ceilings.h"
#include "team/rank_links.h"
#include "team/rank_order.h"

namespace ssmbench {

/// The ranks of a team but for rank 0, each a process that joins the team and follows (rank_run.h). They end
/// with the object.
class RankProcesses {
 public:
  virtual ~RankProcesses() = default;
  RankProcesses() = default;
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  RankProcesses(RankProcesses&&) = delete;
  RankProcesses& operator=(RankProcesses&&) = delete;

  /// Orders all of them to do so.
  virtual void order(const RankOrder& order) = 0;
  /// Which rank failed first and how, once a call of the team has failed. Nothing where none did.
  virtual std::optional<Explanation> why_lost() = 0;
};

/// Where the ranks of a team compute, and how they exchange data.
struct TeamPlan {
  int ranks = 1;
  std::vector<int> gpus = {};  ///< by rank; empty: all on the CPU
  DataPath path = DataPath::host_memory;
};

/// Starts the ranks of a team that has this name (TeamMemory), all but rank 0, which join it at once. Throws
/// DeviceError where one does not get as far as that.
using StartRanks =
    std::function<std::unique_ptr<RankProcesses>(const std::string& team, const TeamPlan& plan)>;

/// A device of the host as a team of so many ranks: the CPU, or GPUs from this one on. Where there are fewer
/// GPUs than ranks, all ranks share this one.
DeviceInfo team_info(const DeviceInfo& device, int ranks);

/// What the links of a team give, whose ranks are started for that. Throws DeviceError.
LinkCeilings measure_links(const DeviceInfo& team, const StartRanks& start,
                           std::chrono::milliseconds patience);

/// A team as a device, on which distributed implementations run. This process is rank 0. It has the tensors of
/// the whole problem and decides alone what comes next; the others obey. So nothing of what verifies and times
/// a launch need know of ranks, and ranks cannot come to disagree.
///
/// A launch takes as long as the rank that takes longest. Ranks are started at once, and with the next bind
/// after one of them failed; whatever was bound before is lost with them: launches throw. Where they cannot
/// be started the first bind throws.
///
/// `patience`: for what a rank computes between two calls of the team.
std::unique_ptr<Device> open_team(const DeviceInfo& info, StartRanks start,
                                  std::chrono::milliseconds patience);

}  // namespace ssmbench
