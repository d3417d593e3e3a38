#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/device.h"
#include "record/cause.h"
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

/// Starts the ranks of a team of so many that has this name (TeamMemory), which join it at once. Throws
/// DeviceError where one does not get as far as that.
using StartRanks = std::function<std::unique_ptr<RankProcesses>(const std::string& team, int ranks)>;

/// The host's CPU as a team of so many ranks.
DeviceInfo team_info(int ranks);

/// A team of the host's CPU as a device, on which distributed implementations run. This process is rank 0. It
/// has the tensors of the whole problem and decides alone what comes next; the others obey. So nothing of
/// what verifies and times a launch need know of ranks, and ranks cannot come to disagree.
///
/// A launch takes as long as the rank that takes longest. Ranks are started with the first bind, and with the
/// next after one of them failed; whatever was bound before is lost with them: launches throw.
///
/// `patience`: for what a rank computes between two calls of the team.
std::unique_ptr<Device> open_team(const DeviceInfo& info, StartRanks start,
                                  std::chrono::milliseconds patience);

}  // namespace ssmbench
