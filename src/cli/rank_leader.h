#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_options.h"
#include "cli/run_slots.h"
#include "launch/ranks.h"
#include "launch/remote_worker.h"
#include "supervise/host_lock.h"
#include "sweep/plan.h"

namespace ssmbench {

/// What a rank is and has. All of a run have to agree on some of it.
struct RankReport {
  std::string host = {};
  int process = 0;          ///< its id
  std::string error = {};   ///< why it cannot make its part of the run; empty: it can
  std::string build = {};   ///< of the executable
  std::string files = {};   ///< hash of the contents of configs and plugins
  std::string device = {};  ///< on which the plan's jobs run, with all that its results depend on
  std::string plan = {};    ///< plan_fingerprint
  int place = 0;            ///< among the ranks of its host
  int gpus = -1;            ///< that it sees; -1: the run needs none
  int gpu = -1;             ///< of those, the one for it; -1: none
  std::string gpu_uuid = {};
  std::string lock = {};           ///< path of its HostLockFile
  std::vector<int> cpus = {};      ///< for it
  std::vector<int> all_cpus = {};  ///< for all ranks of its host
  std::size_t free_bytes = 0;      ///< of host memory
};
std::string to_text(const RankReport& report);
/// Of another version's report what it has in common with this one's; its build is another one, or "unknown".
RankReport rank_report_in(const std::string& text);

/// By rank. Throws UsageError or DeviceError where they cannot run one sweep together, and says which cannot.
void check_ranks(const std::vector<RankReport>& reports);

/// Where the workers of these ranks are; those of rank 0, and of the others, are still to be started.
std::vector<SlotPlace> places_of(const std::vector<RankReport>& reports);

/// How many processes share this run, by what a launcher says: 1 for workers and the like.
int processes_of_run(const RunOptions& options);

/// Throws UsageError for options that make no sense where mpirun or srun started several processes.
void refuse_options_of_one_process(const RunOptions& options);

/// A run of several ranks. Rank 0 leads: it plans, hands out jobs and alone writes. When this goes, so do the
/// other ranks; where it goes before they were asked for slots, as an error makes it, they end too.
class RankLeader {
 public:
  /// Throws UsageError where this program is built without MPI.
  RankLeader();
  ~RankLeader();
  RankLeader(const RankLeader&) = delete;
  RankLeader& operator=(const RankLeader&) = delete;
  RankLeader(RankLeader&&) = delete;
  RankLeader& operator=(RankLeader&&) = delete;

  bool is_this() const { return ranks_->rank() == 0; }
  /// What the other ranks do. Returns the exit code.
  int relay(const RunOptions& unfinished);
  /// Of the leader: asks all ranks, and throws what check_ranks throws.
  RunSlots slots(const RunOptions& options, const Plan& plan);

 private:
  RankReport report(const RunOptions& options, const Plan& plan) const;

  std::unique_ptr<Ranks> ranks_;
  HostLockFile lock_;
  RankReport self_;  ///< what is known at once
  bool has_asked_ = false;
  std::unique_ptr<Relays> relays_;
};

}  // namespace ssmbench
