#include "cli/rank_leader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "base/fnv1a.h"
#include "cli/device_choice.h"
#include "cli/execute_plan.h"
#include "cli/exit_code.h"
#include "cli/run_info.h"
#include "config/config.h"
#include "device/cpu.h"
#include "device/thread_pinning.h"
#include "launch/launcher.h"
#include "launch/relay.h"
#include "model/build_info.h"
#include "plugin/plugin.h"

namespace ssmbench {
namespace {

constexpr const char* kGo = "go";
/// Messages of MPI cannot be waited for without keeping a core busy.
constexpr std::chrono::milliseconds kLookEvery{2};

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string hash_of_files(const RunOptions& options) {
  std::string all;
  for (const auto& config : options.configs) all += content_of(config) + '\0';
  for (const auto& plugin : options.plugins) all += content_of(parse_plugin(plugin).file) + '\0';
  return fmt::format("{:016x}", fnv1a(all));
}

/// All that results depend on.
std::string describe(const DeviceInfo& device) {
  if (device.kind == DeviceKind::cpu) return device.name;
  return fmt::format("{}, {:.1f} GiB, {}", device.name, static_cast<double>(device.total_bytes) / (1 << 30),
                     fmt::join(device.details, ", "));
}

/// The GPU of a rank: the only one that it sees, or that at its place among the ranks of its host.
void choose_gpu(RankReport& report) {
  auto gpus = list_devices();
  gpus.erase(gpus.begin());  // the CPU
  report.gpus = static_cast<int>(gpus.size());
  const int at = gpus.size() == 1 ? 0 : report.place;
  if (at >= report.gpus) return;
  const DeviceInfo& gpu = gpus[static_cast<std::size_t>(at)];
  report.gpu = gpu.index;
  report.gpu_uuid = gpu.uuid;
  report.device = describe(gpu);
}

/// A signal for all ranks ends the leader, which dismisses the others.
void leave_signals_to_leader() {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // not to be ignored: workers would inherit that
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

}  // namespace

std::string to_text(const RankReport& r) {
  return nlohmann::ordered_json{{"host", r.host},   {"process", r.process},   {"error", r.error},
                                {"build", r.build}, {"files", r.files},       {"device", r.device},
                                {"plan", r.plan},   {"place", r.place},       {"gpus", r.gpus},
                                {"gpu", r.gpu},     {"uuid", r.gpu_uuid},     {"lock", r.lock},
                                {"cpus", r.cpus},   {"all_cpus", r.all_cpus}, {"free", r.free_bytes}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

RankReport rank_report_in(const std::string& text) {
  RankReport report;
  try {
    const nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
    const auto read = [&json](const char* name, auto& to) { json.at(name).get_to(to); };
    read("host", report.host);
    read("build", report.build);
    read("process", report.process);
    read("error", report.error);
    read("files", report.files);
    read("device", report.device);
    read("plan", report.plan);
    read("place", report.place);
    read("gpus", report.gpus);
    read("gpu", report.gpu);
    read("uuid", report.gpu_uuid);
    read("lock", report.lock);
    read("cpus", report.cpus);
    read("all_cpus", report.all_cpus);
    read("free", report.free_bytes);
  } catch (const nlohmann::ordered_json::exception&) {  // of another version: its build differs, too
    if (report.build.empty()) report.build = "unknown";
  }
  return report;
}

void check_ranks(const std::vector<RankReport>& reports) {
  const RankReport& first = reports.front();
  const auto each = [&](const auto& look) {
    for (std::size_t rank = 0; rank < reports.size(); ++rank)
      look(reports[rank], fmt::format("rank {} on {}", rank, reports[rank].host));
  };
  each([&](const RankReport& r, const std::string& who) {
    if (r.build != first.build)
      throw UsageError(
          fmt::format("{} runs another ssmbench (build {}; rank 0: {})", who, r.build, first.build));
  });
  each([&](const RankReport& r, const std::string& who) {
    if (!r.error.empty()) throw UsageError(fmt::format("{}: {}", who, r.error));
    if (r.files != first.files)
      throw UsageError(
          fmt::format("{} reads other configs or plugins than rank 0, under the same names", who));
  });
  each([&](const RankReport& r, const std::string& /*who*/) {
    if (r.gpus < 0 || r.gpu >= 0) return;
    const auto ranks = std::ranges::count(reports, r.host, &RankReport::host);
    throw DeviceError(fmt::format("{} rank(s) on {}, which has {} GPU(s)", ranks, r.host, r.gpus));
  });
  std::set<std::string> taken;
  each([&](const RankReport& r, const std::string& who) {
    if (r.gpu >= 0 && !r.gpu_uuid.empty() && !taken.insert(r.host + r.gpu_uuid).second)
      throw DeviceError(fmt::format("{} has the GPU of another rank", who));
    if (r.device != first.device)
      throw UsageError(fmt::format("{} has another device ({}; rank 0: {})", who, r.device, first.device));
    if (r.plan != first.plan) throw UsageError(fmt::format("{} makes another plan than rank 0", who));
  });
}

std::vector<SlotPlace> places_of(const std::vector<RankReport>& reports) {
  const bool one_host =
      std::ranges::all_of(reports, [&](const RankReport& r) { return r.host == reports.front().host; });
  std::vector<SlotPlace> places;
  for (const auto& r : reports) {
    const auto on_host = [&](const RankReport& other) { return other.host == r.host; };
    SlotPlace& place = places.emplace_back();
    place.name = (r.gpu >= 0 ? fmt::format("cuda:{}", r.gpu) : fmt::format("cpu:{}", r.place)) +
                 (one_host ? "" : "@" + r.host);
    place.host = r.host;
    place.supervisor = r.process;
    // Whoever comes first on the host has the lock that counts.
    place.place = {
        .lock = std::ranges::find_if(reports, on_host)->lock, .cpus = r.cpus, .all_cpus = r.all_cpus};
    if (r.gpu >= 0) place.place.gpu = r.gpu;
  }
  return places;
}

int processes_of_run(const RunOptions& options) {
  if (options.worker || options.rehearse) return 1;
  return launched_processes([](const char* name) -> const char* { return std::getenv(name); });
}

void refuse_options_of_one_process(const RunOptions& options) {
  for (const auto& [is_given, name] :
       {std::pair(options.has_slots(), "--cpus and --gpus"),
        std::pair(options.no_supervision, "--no-supervision"), std::pair(options.profile, "--profile"),
        std::pair(options.device.starts_with("cuda:"), "--device cuda:N")})
    if (is_given)
      throw UsageError(
          fmt::format("{}: not where mpirun or srun starts several processes, of which each is a "
                      "slot with what it finds at its place",
                      name));
}

RankLeader::RankLeader() : ranks_(join_ranks()) {
  self_.host = host_name();
  self_.process = getpid();
  self_.build = executable_build_id();
  self_.lock = lock_.path();
  self_.free_bytes = cpu_info().free_bytes;
  const auto own = allowed_cpus();
  const auto of_host = ranks_->share_on_host(nlohmann::ordered_json(own).dump(), self_.place);
  std::set<int> all;
  bool are_bound = false;  // each to cores of its own, by the launcher
  for (const auto& text : of_host) {
    const auto cpus = nlohmann::ordered_json::parse(text).get<std::vector<int>>();
    all.insert(cpus.begin(), cpus.end());
    are_bound = are_bound || cpus != own;
  }
  self_.all_cpus.assign(all.begin(), all.end());
  self_.cpus = are_bound ? own : share_of(own, static_cast<std::size_t>(self_.place), of_host.size());
  // What is measured and recorded of the CPU is of the whole host.
  if (are_bound) use_cpus(self_.all_cpus, threads_for(self_.all_cpus));
}

RankLeader::~RankLeader() {
  if (!is_this() || has_asked_) return;
  ranks_->gather("");
  ranks_->broadcast("");
}

RankReport RankLeader::report(const RunOptions& options, const Plan& plan) const {
  RankReport report = self_;
  report.plan = plan_fingerprint(plan);
  report.files = hash_of_files(options);
  for (const auto& device : plan.devices) {
    report.device = describe(device);
    if (device.kind == DeviceKind::cuda) choose_gpu(report);
  }
  return report;
}

int RankLeader::relay(const RunOptions& unfinished) {
  leave_signals_to_leader();
  RankReport own = self_;
  try {
    const RunOptions options = finish_options(unfinished);
    if (!options.plugins.empty()) rehearse_plugins(options.argv, options.plugins, *options.timeout);
    register_plugins(options.plugins);
    std::string note;
    own = report(options, make_plan(load_configs(options.configs, options.overrides, options.quick),
                                    choose_slot_devices(options, note).of_plan, options.selection));
  } catch (const std::exception& error) {
    own.error = error.what();
  }
  ranks_->gather(to_text(own));
  if (ranks_->broadcast("") != kGo) return kOk;  // the leader has said why
  ssmbench::relay(*ranks_, with_option(unfinished.argv, "--worker"));
  return kOk;
}

RunSlots RankLeader::slots(const RunOptions& options, const Plan& plan) {
  const RankReport own = report(options, plan);
  has_asked_ = true;
  std::vector<RankReport> reports;
  for (const auto& text : ranks_->gather(to_text(own))) reports.push_back(rank_report_in(text));
  RunSlots slots;
  try {
    check_ranks(reports);
    for (const auto& report : reports) {
      slots.host_bytes.try_emplace(report.host, report.free_bytes);
      if (!options.dump_file.empty() && report.host != own.host)
        throw UsageError("--dump: all ranks have to be on one host");
    }
    slots.places = places_of(reports);
  } catch (...) {
    ranks_->broadcast("");
    throw;
  }
  ranks_->broadcast(kGo);
  relays_ = std::make_unique<Relays>(*ranks_);
  slots.places.front().start = local_place(options.argv).start;
  for (std::size_t rank = 1; rank < slots.places.size(); ++rank)
    slots.places[rank].start = [this, rank] { return relays_->start(static_cast<int>(rank)); };
  slots.look_every = kLookEvery;
  slots.look = [this] { relays_->look(); };
  return slots;
}

}  // namespace ssmbench
