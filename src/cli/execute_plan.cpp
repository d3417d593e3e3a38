#include "cli/execute_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/errors.h"
#include "cli/exit_code.h"
#include "supervise/supervisor.h"
#include "supervise/worker.h"
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

/// The command for a process of its own. After "run", because what comes last may come after a "--".
std::vector<std::string> with_option(std::vector<std::string> argv, const char* option) {
  argv.insert(argv.begin() + 2, option);
  return argv;
}

}  // namespace

void execute_plan(const RunOptions& options, const Plan& plan, const JobSet& jobs, RunListener& listener,
                  TensorDump* dump, Progress& progress, const std::atomic<bool>& stop) {
  if (options.no_supervision) {
    Runner runner(plan, options.runner, listener, stop);
    if (dump != nullptr) runner.on_finished([dump](const FinishedJob& job) { dump->add(job); });
    runner.run(jobs);
    return;
  }
  SupervisorOptions how{.worker_argv = with_option(options.argv, "--worker"),
                        .timeout_seconds = *options.timeout,
                        .dump_folder = {}};
  how.warn = [&progress](const std::string& message) { progress.say(message); };
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
  ChildProcess child(
      with_option(argv, "--rehearse"),
      to_bytes({.supervisor = getpid(), .plan = "", .jobs = {}, .dump_folder = "", .ceilings = {}}));
  const std::atomic<bool> never{false};
  const std::chrono::duration<double> allowed(std::min(timeout_seconds, kForeverSeconds));
  const auto deadline = child.now() + std::chrono::duration_cast<ChildProcess::Clock::duration>(allowed);
  std::string line;
  const auto event = child.next_line(line, deadline, never);
  if (event == ChildProcess::Event::line) return;
  std::string names;
  for (const auto& plugin : plugins) names += " --plugin " + plugin;
  throw DeviceError(fmt::format("{}: {} while its implementations were queried", names.substr(1),
                                event == ChildProcess::Event::closed
                                    ? child.end(std::chrono::seconds(10)).reason
                                    : fmt::format("timed out after {:g} s", allowed.count())));
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

int run_as_worker(const RunOptions& options, const Plan& plan) {
  const WorkerOrders orders = read_orders(kOrdersDescriptor);
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
  return run_worker(plan, runner, orders, hook);
}

}  // namespace ssmbench
