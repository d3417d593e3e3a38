#include "cli/execute_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/errors.h"
#include "cli/exit_code.h"
#include "supervise/child_process.h"
#include "supervise/run_clock.h"
#include "supervise/supervisor.h"
#include "sweep/runner.h"

namespace ssmbench {
namespace {

namespace fs = std::filesystem;

/// A hidden folder beside a file, for the parts that it is made of; removed in the end.
class PartsFolder {
 public:
  explicit PartsFolder(const fs::path& file) {
    path_ = (file.parent_path() / fmt::format(".{}.parts-XXXXXX", file.filename().string())).string();
    if (mkdtemp(path_.data()) == nullptr)
      throw OutputError(fmt::format("{}: cannot be created: {}", path_, std::strerror(errno)));
  }
  ~PartsFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PartsFolder(const PartsFolder&) = delete;
  PartsFolder& operator=(const PartsFolder&) = delete;
  PartsFolder(PartsFolder&&) = delete;
  PartsFolder& operator=(PartsFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void execute_plan(const RunOptions& options, const Plan& plan, const RunSlots& slots, const JobSet& jobs,
                  RunListener& listener, TensorDump* dump, Progress& progress,
                  const std::atomic<bool>& stop) {
  if (options.no_supervision) {
    Runner runner(plan, options.runner, listener, stop);
    if (dump != nullptr) runner.on_finished([dump](const FinishedJob& job) { dump->add(job); });
    runner.run(jobs);
    return;
  }
  SupervisorOptions how{.slots = slots.places, .host_bytes = slots.host_bytes, .dump_folder = {}};
  how.look_every = slots.look_every;
  how.look = slots.look;
  how.slot = {.timeout_seconds = *options.timeout,
              .warn = [&progress](const std::string& message) { progress.say(message); }};
  std::optional<PartsFolder> parts;
  if (dump != nullptr) {
    parts.emplace(options.dump_file);
    how.dump_folder = parts->path();
    how.collect = [&](std::size_t job) { dump->take(dump_part(parts->path(), job)); };
  }
  Supervisor(plan, options.runner, std::move(how), listener, stop).run(jobs);
}

void rehearse_plugins(const std::vector<std::string>& argv, const std::vector<std::string>& plugins,
                      double timeout_seconds) {
  ChildProcess child(with_option(argv, "--rehearse"));
  child.order(to_bytes(WorkerOrders{.supervisor = getpid(), .plan = "", .dump_folder = ""}));
  child.no_more_orders();
  RunClock clock;
  const std::chrono::duration<double> allowed(std::min(timeout_seconds, kForeverSeconds));
  const auto deadline = clock.now() + std::chrono::duration_cast<RunClock::Clock::duration>(allowed);
  std::string line;
  auto event = child.next_line(line);
  while (event == WorkerHandle::Event::nothing && clock.now() < deadline) {
    std::vector<pollfd> descriptors;
    child.watch(descriptors);
    poll(descriptors.data(), descriptors.size(), 100);
    event = child.next_line(line);
  }
  if (event == WorkerHandle::Event::line) return;
  std::string how = fmt::format("timed out after {:g} s", allowed.count());
  if (event == WorkerHandle::Event::closed) {
    child.end(std::chrono::seconds(10));
    auto ending = child.ended();
    for (; !ending; ending = child.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    how = ending->how.reason;
  }
  std::string names;
  for (const auto& plugin : plugins) names += " --plugin " + plugin;
  throw DeviceError(fmt::format("{}: {} while its implementations were queried", names.substr(1), how));
}

int finish_rehearsal(const std::function<void()>& work) {
  tie_to(read_orders(kOrdersDescriptor).supervisor);
  try {
    work();
  } catch (const std::exception&) {  // the process that asked meets it too, and says it
  }
  send({.kind = Message::Kind::done});
  return kOk;
}

int run_as_worker(const RunOptions& options, const Plan& plan, WorkerProcess& worker) {
  const WorkerOrders& orders = worker.orders();
  NumberedHook hook;
  if (!orders.dump_folder.empty())
    hook = [&](std::size_t number, const FinishedJob& job) {
      if (options.dump_what == "failed" && job.result.status != Status::fail) return;
      TensorDump part(dump_part(orders.dump_folder, number), false, plan, options.argv, "");
      part.add(job);
      part.finish();
    };
  RunnerOptions runner = options.runner;
  runner.ceilings = orders.ceilings;  // not to be measured in every worker
  return worker.run(plan, runner, hook);
}

}  // namespace ssmbench
