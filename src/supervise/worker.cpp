#include "supervise/worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/errors.h"
#include "device/thread_pinning.h"
#include "record/record_writer.h"
#include "team/rank_run.h"
#include "team/shared_memory.h"

namespace ssmbench {
namespace {

/// A CUDA error such as an illegal address takes the context with it: nothing works on the device any more,
/// in this process.
bool still_works(const RunnerOptions& options, const DeviceInfo& info) {
  try {
    options.open(info)->synchronize();
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

class Sender : public RunListener {
 public:
  /// `share`: of the host; null for the only worker. `ready` is called before what takes long without a device.
  Sender(const Plan& plan, const RunnerOptions& options, SlotShare* share, std::function<void()> ready)
      : plan_(plan), options_(options), share_(share), ready_(std::move(ready)) {}

  void starting(std::size_t job, Stage stage) override {
    if (stage == Stage::reference) ready_();
    if (share_ != nullptr) share_->give_way();
    job_ = job;
    stage_ = stage;
    send({.kind = Message::Kind::starting, .job = job, .stage = stage});
  }
  void resuming(std::size_t job) override {
    if (share_ != nullptr) share_->give_way();  // between two bursts of samples
    job_ = job;
    stage_ = Stage::run;
    send({.kind = Message::Kind::resuming, .job = job});
  }
  void finished(std::size_t job, const CaseResult& result) override {
    stage_.reset();
    send({.kind = Message::Kind::finished, .job = job, .text = case_record(result)});
    const DeviceInfo& device = plan_.devices[plan_.job(job).second->device];
    // After an error the other ranks of a team are not what they were.
    const bool is_lost =
        result.status == Status::error && (device.ranks > 1 || !still_works(options_, device));
    // Late work goes on, in memory that is another one's next.
    if (!is_lost && result.cause != Cause::late_work) return;
    send({.kind = Message::Kind::leaving});
    _exit(EXIT_SUCCESS);  // nothing that is left could be taken down in an orderly way
  }
  /// Others have the host for themselves, or not any more.
  void waits(bool begins) {
    if (begins)
      send({.kind = Message::Kind::waiting});
    else if (stage_ == Stage::run)
      send({.kind = Message::Kind::resuming, .job = job_});
  }
  /// The one that is being run.
  std::size_t job() const { return job_; }

 private:
  const Plan& plan_;
  const RunnerOptions& options_;
  SlotShare* share_;
  std::function<void()> ready_;
  std::size_t job_ = 0;
  std::optional<Stage> stage_;  ///< of that job; none once it is finished
};

}  // namespace

void tie_to(int supervisor) {
  prctl(PR_SET_NAME, "ssmbench-worker");  // it was started as /proc/self/exe, and would be listed as "exe"
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) _exit(EXIT_FAILURE);  // it died before
  // When memory runs out, the kernel should kill this process and not its supervisor.
  std::ofstream("/proc/self/oom_score_adj") << 500;
}

WorkerProcess::WorkerProcess() : orders_(read_orders(kOrdersDescriptor)) {
  tie_to(orders_.supervisor);
  if (orders_.place.lock.empty()) return;
  waits_ = [](bool begins) {
    if (begins) send({.kind = Message::Kind::waiting});
  };
  share_.emplace(orders_.place, [this](bool begins) { waits_(begins); });
  working_ = share_->work();
  if (const auto gpu = orders_.place.gpu; gpu && !is_rank())
    opening_ =
        std::async(std::launch::async, [gpu = *gpu] { open_device(DeviceKind::cuda, gpu)->synchronize(); });
}

void WorkerProcess::wait_for_gpu() {
  if (!opening_.valid()) return;
  try {
    opening_.get();
  } catch (const DeviceError& error) {
    send({.kind = Message::Kind::leaving});
    throw DeviceError(error.what());  // want of memory is no case's either
  }
}

int WorkerProcess::follow() {
  constexpr std::chrono::hours kUntilItDies(24 * 365);  // rank 0 knows how long ranks may take
  const auto& cpus = orders_.place.cpus;
  if (!cpus.empty()) use_cpus(cpus, std::min(threads_for(cpus), static_cast<int>(cpus.size())));
  send({.kind = Message::Kind::done});
  try {
    const auto team = join_team(orders_.team, orders_.rank, kUntilItDies);
    try {
      const auto device = orders_.place.gpu ? open_device(DeviceKind::cuda, *orders_.place.gpu)
                                            : open_device(DeviceKind::cpu);
      RankLinks links(*team, *device, orders_.path);
      ssmbench::follow(links, [] { return next_rank_order(kOrdersDescriptor); });
    } catch (const TeamError&) {
      throw;
    } catch (const std::exception& error) {  // before it leaves, which others notice
      send({.kind = Message::Kind::failed, .text = text_of(explain(error))});
      return EXIT_FAILURE;
    }
  } catch (const TeamError&) {  // the others know why
    send({.kind = Message::Kind::leaving});
  }
  return EXIT_SUCCESS;
}

int WorkerProcess::run(const Plan& plan, RunnerOptions options, const NumberedHook& hook) {
  if (plan_fingerprint(plan) != orders_.plan)
    throw UsageError("the config or the devices changed during the run");
  const std::atomic<bool> never{false};
  Sender sender(plan, options, share_ ? &*share_ : nullptr, [this] { wait_for_gpu(); });
  waits_ = [&sender](bool begins) { sender.waits(begins); };
  if (share_) options.host = &*share_;
  if (const auto gpu = orders_.place.gpu) {
    options.open = [this, gpu = *gpu, open = options.open](const DeviceInfo& info) {
      if (info.kind != DeviceKind::cuda) return open(info);
      wait_for_gpu();
      return open_device(info.kind, gpu);
    };
  }
  Runner runner(plan, options, sender, never);
  if (hook) runner.on_finished([&](const FinishedJob& job) { hook(sender.job(), job); });
  working_.reset();
  while (const auto jobs = next_jobs(kOrdersDescriptor, plan.job_count())) {
    try {
      const auto working = share_ ? share_->work() : nullptr;
      runner.run(*jobs);
    } catch (const OutputError& error) {
      send({.kind = Message::Kind::failed, .text = error.what()});
      return EXIT_FAILURE;
    }
    send({.kind = Message::Kind::done});
  }
  return EXIT_SUCCESS;
}

}  // namespace ssmbench
