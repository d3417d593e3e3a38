#include "supervise/worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/errors.h"
#include "record/record_writer.h"

namespace ssmbench {
namespace {

/// A CUDA error such as an illegal address takes the context with it: nothing works on the device any more,
/// in this process.
bool still_works(const DeviceInfo& info) {
  try {
    open_device(info.kind, info.index)->synchronize();
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

class Sender : public RunListener {
 public:
  explicit Sender(const Plan& plan) : plan_(plan) {}

  void starting(std::size_t job, Stage stage) override {
    job_ = job;
    send({.kind = Message::Kind::starting, .job = job, .stage = stage});
  }
  void resuming(std::size_t job) override {
    job_ = job;
    send({.kind = Message::Kind::resuming, .job = job});
  }
  void finished(std::size_t job, const CaseResult& result) override {
    send({.kind = Message::Kind::finished, .job = job, .text = case_record(result)});
    const bool is_lost =
        result.status == Status::error && !still_works(plan_.devices[plan_.job(job).second->device]);
    // Late work goes on, in memory that is another one's next.
    if (!is_lost && result.cause != Cause::late_work) return;
    send({.kind = Message::Kind::leaving});
    _exit(EXIT_SUCCESS);  // nothing that is left could be taken down in an orderly way
  }
  /// The one that is being run.
  std::size_t job() const { return job_; }

 private:
  const Plan& plan_;
  std::size_t job_ = 0;
};

}  // namespace

void tie_to(int supervisor) {
  prctl(PR_SET_NAME, "ssmbench-worker");  // it was started as /proc/self/exe, and would be listed as "exe"
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) _exit(EXIT_FAILURE);  // it died before
  // When memory runs out, the kernel should kill this process and not its supervisor.
  std::ofstream("/proc/self/oom_score_adj") << 500;
}

int run_worker(const Plan& plan, const RunnerOptions& options, const WorkerOrders& orders,
               const NumberedHook& hook) {
  tie_to(orders.supervisor);
  if (plan_fingerprint(plan) != orders.plan)
    throw UsageError("the config or the devices changed during the run");
  const std::atomic<bool> never{false};
  Sender sender(plan);
  Runner runner(plan, options, sender, never);
  if (hook) runner.on_finished([&](const FinishedJob& job) { hook(sender.job(), job); });
  try {
    runner.run(orders.jobs);
  } catch (const OutputError& error) {
    send({.kind = Message::Kind::failed, .text = error.what()});
    return EXIT_FAILURE;
  }
  send({.kind = Message::Kind::done});
  return EXIT_SUCCESS;
}

}  // namespace ssmbench
