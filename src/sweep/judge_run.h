#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/timer.h"
#include "bench/transfers.h"
#include "record/result.h"
#include "sweep/case_reference.h"
#include "sweep/disturbance.h"
#include "sweep/host_share.h"
#include "sweep/prepared_run.h"

namespace ssmbench {

/// How often an implementation that was right is launched again to see whether it gives the same bits. No
/// further rerun is started once all launches have taken `max_seconds`.
struct RerunPolicy {
  int count = 2;
  double max_seconds = 2;
};

/// A case on one device.
struct CaseOnDevice {
  Device& device;
  const DeviceInputs& inputs;
  const CaseReference* reference;      ///< null: outputs are not verified
  TransferTimer* transfers = nullptr;  ///< null: copies to and from the device are not timed
  /// Inputs of another seed and their reference, for launches that are timed where nothing can be exchanged
  /// (Disturbance); else null.
  const DeviceInputs* other_seed = nullptr;
  const CaseReference* other_reference = nullptr;
  HostShare* host = nullptr;   ///< RunnerOptions
  bool keeps_outputs = false;  ///< for take_outputs, where they are not verified
  /// Called with true before parts of a reference are computed for a comparison, and with false afterwards.
  std::function<void(bool)> computes_reference = [](bool) {};
};

/// Takes one implementation through everything that happens to it on one case, in three steps between which
/// others may run. Fills in `status`, `cause`, `reason`, `outputs`, `determinism`, `timing` and `transfers`
/// of the result, which has the case already. Whatever goes wrong ends it: no step may follow one that did
/// not leave it fine. Where memory was overwritten that is not the implementation's, the status is invalid,
/// whatever else is wrong. Members throw what the device and the implementation throw, and Interrupted on
/// `stop` while timing.
class RunJudge {
 public:
  RunJudge(const CaseOnDevice& on, const Implementation& implementation, const std::atomic<bool>& stop,
           CaseResult& result);

  /// Launches it and verifies its outputs; launches it again from other garbage in outputs and workspace,
  /// every other time on a second stream.
  void verify(const RerunPolicy& policy);
  /// Whether nothing went wrong so far.
  bool is_fine() const;

  /// Gets ready to time its launches, as a graph's replay too where that gives the right outputs.
  void start_timing(const TimingPolicy& policy);
  /// Each burst may end in a failure: outputs of launches that are timed are verified, too (Disturbance).
  LaunchTimer& timer() { return *timer_; }
  /// Between two bursts: times copies, if they are not yet and nobody else uses the host's memory; else says
  /// false. Slots that all copied after their launches, which take equally long, would wait for one another.
  bool time_copies_if_free();
  /// Takes what the timer found, and verifies the outputs of one more launch; then times copies that were not.
  void finish_timing();

  /// Says what else is known about the result.
  void finish();
  /// The outputs of the first launch; none where nobody asks for them.
  std::vector<HostTensor> take_outputs() { return std::move(first_outputs_); }

 private:
  void launch_first();
  void launch_again(const RerunPolicy& policy);
  void launch();
  void look_for_damage();
  /// By whoever has the host's memory: copies of several devices at a time share it.
  void time_copies();
  /// What is known of a team: what it sends, and where it was timed how long that takes alone.
  void take_team_use();
  TimingStats time_exchange();
  /// A replay of the launch that is right; nothing where there is none.
  std::optional<Launch> capture();
  bool replays_well(const Launch& replay);
  /// Some of `outputs`, or one of them.
  std::vector<OutputComparison> compare(const std::vector<const HostTensor*>& judged,
                                        const std::vector<HostTensor>& outputs,
                                        const CaseReference& reference) const;
  OutputComparison compare(const HostTensor& output, const std::vector<HostTensor>& outputs,
                           const CaseReference& reference) const;
  bool copies_outputs() const { return on_.reference != nullptr || on_.keeps_outputs; }
  /// What runs on after a launch had returned, when the outputs had these digests.
  void look_for_late_work(const std::vector<std::uint64_t>& seen);
  /// Judges the latest outputs from the inputs of the first ones. `when` is for messages.
  void compare_again(const std::string& when);
  /// An output that nothing can be said of; the others are judged all the same.
  void leave_unverified(const std::string& output, const OutputComparison& comparison);
  /// Against the reference.
  void judge_again(const HostTensor& output, const std::vector<HostTensor>& outputs,
                   const CaseReference& reference, const std::string& when);
  /// Whether what a timed launch left in an output is right, as far as a sample of it says.
  bool sample_is_right(const HostTensor& output, const std::vector<HostTensor>& outputs,
                       const CaseReference& reference);
  /// Judges what a timed launch left, which may have other bits than the first one: of large outputs a sample.
  void judge_timed(const TimedLaunch& launch);
  void judge_row(const RowOfLaunch& row, const std::string& when);
  /// Something that no kernel may do, whatever its outputs.
  void invalidate(Cause cause, std::string reason);
  /// The first failure is the cause, if there are several.
  void fail(Cause cause, const std::string& reason);

  CaseOnDevice on_;
  const Implementation& implementation_;
  const std::atomic<bool>& stop_;
  CaseResult& result_;
  PreparedRun run_;
  SingleRow single_row_;
  std::vector<HostTensor> first_outputs_, latest_outputs_;
  std::vector<std::uint64_t> first_digests_;  ///< of the first launch's outputs
  std::optional<Disturbance> disturbance_;
  std::optional<LaunchTimer> timer_;
  std::mt19937_64 random_{std::random_device()()};
  bool lacks_copies_ = false;  ///< which can be timed
  unsigned char garbage_ = 0;  ///< in the workspace, of the rerun before
  double seconds_ = 0;         ///< of all launches before timing
  std::int64_t launches_ = 0;
};

}  // namespace ssmbench
