#include "team/team_device.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/team_run.h"
#include "device/thread_pinning.h"
#include "model/distributed.h"
#include "team/nccl_team.h"
#include "team/rank_run.h"
#include "team/shared_memory.h"

namespace ssmbench {
namespace {

/// Parallel regions of this thread have so many threads while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  Threads(Threads&&) = delete;
  Threads& operator=(Threads&&) = delete;

 private:
  int before_;
};

/// Ranks that have joined a team, until the first of them fails.
class LiveTeam {
 public:
  LiveTeam(Device& device, const TeamPlan& plan, const StartRanks& start, std::chrono::milliseconds patience)
      : threads_(threads_of_rank(0, plan.ranks)) {
    const TeamMemory memory(plan.ranks);
    processes_ = start(memory.name(), plan);
    together([&] {
      communicator_ = join_team(memory.name(), 0, patience);
      links_.emplace(*communicator_, device, plan.path);
    });
  }

  bool is_over() const { return processes_ == nullptr; }
  RankLinks& links() { return *links_; }
  void order(const RankOrder& order) {
    if (!is_over()) processes_->order(order);
  }

  /// Does this rank's part of what was ordered. Whatever goes wrong is the end of the team.
  template <class Work>
  std::invoke_result_t<const Work&> together(const Work& work) {
    if (is_over()) throw DeviceError("the ranks of the team have ended");
    const Threads own(threads_);
    try {
      return work();
    } catch (const TeamError& error) {
      const Explanation why = processes_->why_lost().value_or(Explanation{Cause::device_error, error.what()});
      processes_.reset();
      throw ExplainedError(why);
    } catch (...) {
      processes_.reset();
      throw;
    }
  }

  std::size_t next_number() { return runs_++; }

 private:
  static int threads_of_rank(int rank, int ranks) {
    const auto cpus =
        share_of(allowed_cpus(), static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
    if (cpus.empty()) return std::max(omp_get_max_threads() / ranks, 1);
    return std::min(threads_for(cpus), static_cast<int>(cpus.size()));
  }

  int threads_;  ///< of this rank
  std::unique_ptr<Communicator> communicator_;
  std::optional<RankLinks> links_;
  std::unique_ptr<RankProcesses> processes_;  ///< go before these, so that they need not be told
  std::size_t runs_ = 0;
};

class BoundTeamRun;

/// The latest launch of a device, and what the next one is to find.
struct Latest {
  std::weak_ptr<BoundTeamRun> run = {};
  LaunchTime time = {};
  std::optional<double> idle_ms = {};  ///< where the next launch is timed
  bool flush_cache = false;            ///< before it
};

/// A team takes as long as the rank that takes longest.
LaunchTime longest(const std::vector<RankOutcome>& outcomes) {
  LaunchTime time;
  for (const auto& outcome : outcomes) {
    time.ms = std::max(time.ms, outcome.time.ms);
    time.enqueue_ms = std::max(time.enqueue_ms, outcome.time.enqueue_ms);
    time.queue_ran_dry = time.queue_ran_dry || outcome.time.queue_ran_dry;
  }
  return time;
}

class BoundTeamRun : public TeamRun, public std::enable_shared_from_this<BoundTeamRun> {
 public:
  BoundTeamRun(std::shared_ptr<LiveTeam> team, std::shared_ptr<Latest> latest,
               const DistributedImplementation& implementation, const Problem& problem,
               const TensorSet& tensors, void* workspace)
      : team_(std::move(team)), latest_(std::move(latest)), number_(team_->next_number()) {
    team_->order({.kind = RankOrder::Kind::bind,
                  .run = number_,
                  .implementation = implementation.name,
                  .op = problem.op().name,
                  .axes = problem.axes()});
    team_->together([&] {
      own_ = std::make_unique<RankRun>(team_->links(), implementation, problem, &tensors, workspace);
    });
  }
  ~BoundTeamRun() override { team_->order({.kind = RankOrder::Kind::release, .run = number_}); }
  BoundTeamRun(const BoundTeamRun&) = delete;
  BoundTeamRun& operator=(const BoundTeamRun&) = delete;
  BoundTeamRun(BoundTeamRun&&) = delete;
  BoundTeamRun& operator=(BoundTeamRun&&) = delete;

  void launch() {
    const auto idle_ms = std::exchange(latest_->idle_ms, {});
    const LaunchConditions conditions{
        .garbage = static_cast<unsigned char>(std::uniform_int_distribution<int>(0, 255)(random_)),
        .flush_cache = std::exchange(latest_->flush_cache, false),
        .idle_ms = idle_ms.value_or(0)};
    team_->order({.kind = RankOrder::Kind::launch, .run = number_, .conditions = conditions});
    const auto outcomes = team_->together([&] { return own_->launch(conditions); });
    wire_bytes_ = 0;
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      const RankOutcome& found = outcomes[rank];
      wire_bytes_ = std::max(wire_bytes_, found.wire_bytes);
      if (found.damage.found() && !damage_.found())
        damage_ = {fmt::format("rank {}: {}", rank, found.damage.text), found.damage.out_of_bounds};
    }
    rerun_steps_ = std::ranges::max(outcomes, {}, &RankOutcome::steps_again).steps_again;
    latest_->run = weak_from_this();
    latest_->time = longest(outcomes);
    if (!idle_ms || conditions.flush_cache) return;
    timed_ms_.resize(outcomes.size());
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      timed_ms_[rank].push_back(outcomes[rank].time.ms);
  }

  /// What runs on after the launch shows in the outputs that the whole problem's tensors have then.
  bool settle() {
    if (team_->is_over()) return true;
    team_->order({.kind = RankOrder::Kind::settle, .run = number_});
    return team_->together([&] { return own_->settle(); });
  }

  Damage damage() const override { return damage_; }
  Launch exchange() override {
    return [self = shared_from_this()](void* /*stream*/) {
      self->team_->order({.kind = RankOrder::Kind::exchange, .run = self->number_});
      const auto ms = self->team_->together([&] { return self->own_->exchange(); });
      self->latest_->time = {.ms = *std::ranges::max_element(ms)};
    };
  }
  double wire_bytes() const override { return wire_bytes_; }
  std::optional<std::int64_t> rerun_steps() const override { return rerun_steps_; }
  std::vector<std::vector<double>> timed_ms() const override { return timed_ms_; }

 private:
  std::shared_ptr<LiveTeam> team_;
  std::shared_ptr<Latest> latest_;
  std::size_t number_;
  std::unique_ptr<RankRun> own_;
  Damage damage_;  ///< the first
  double wire_bytes_ = 0;
  std::optional<std::int64_t> rerun_steps_;
  std::vector<std::vector<double>> timed_ms_;
  std::mt19937_64 random_{std::random_device()()};
};

/// GPUs from the team's own on, where there are as many.
TeamPlan plan_of(const DeviceInfo& team) {
  TeamPlan plan{.ranks = team.ranks};
  if (team.kind == DeviceKind::cpu) return plan;
  const int gpus = static_cast<int>(list_devices().size()) - 1;
  const bool has_own = team.index + team.ranks <= gpus;
  for (int rank = 0; rank < team.ranks; ++rank) plan.gpus.push_back(team.index + (has_own ? rank : 0));
  if (has_own && !nccl_version().empty()) plan.path = DataPath::nccl;
  return plan;
}

/// Its memory is that of rank 0's device. The team starts at once: no job has the time that it takes.
class TeamDevice : public Device {
 public:
  TeamDevice(DeviceInfo info, StartRanks start, std::chrono::milliseconds patience)
      : info_(std::move(info)),
        start_(std::move(start)),
        patience_(patience),
        own_(open_device(info_.kind, info_.index)) {
    try {
      start_team();
    } catch (const std::exception&) {  // of the first job
      failure_ = std::current_exception();
    }
  }

  DeviceInfo info() const override {
    DeviceInfo now = info_;
    now.free_bytes = own_->info().free_bytes;
    return now;
  }
  bool shares_host_memory() const override { return own_->shares_host_memory(); }
  Buffer allocate(std::size_t bytes) override { return own_->allocate(bytes); }
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    own_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    own_->copy_out(host, device, bytes);
  }
  void enqueue_copy_in(void* device, const void* host, std::size_t bytes) override {
    own_->enqueue_copy_in(device, host, bytes);
  }
  void enqueue_copy_out(void* host, const void* device, std::size_t bytes) override {
    own_->enqueue_copy_out(host, device, bytes);
  }
  void* pinned_memory(std::size_t bytes) override { return own_->pinned_memory(bytes); }
  void fill(void* device, unsigned char value, std::size_t bytes) override {
    own_->fill(device, value, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override { own_->copy(to, from, bytes); }
  void exchange(const std::vector<SlicePair>& pairs) override { own_->exchange(pairs); }
  std::vector<std::uint64_t> digests(const std::vector<MemorySpan>& spans) override {
    return own_->digests(spans);
  }
  void* stream() override { return own_->stream(); }
  void use_second_stream(bool second) override { own_->use_second_stream(second); }
  void synchronize() override { own_->synchronize(); }
  bool wait_until_idle() override {
    const auto run = latest_->run.lock();
    return run != nullptr ? run->settle() : own_->wait_until_idle();
  }
  /// Before the next launch, and of all ranks: handing out the parts comes in between.
  bool flush_cache() override { return latest_->flush_cache = own_->flush_cache(); }
  std::optional<ClockReading> read_clock() override { return own_->read_clock(); }
  std::shared_ptr<void> pin_threads() override { return own_->pin_threads(); }

  BoundRun bind(const Implementation& implementation, const Problem& problem, const TensorSet& tensors,
                void* workspace) override {
    const auto* distributed = distributed_implementation(problem.op().name, implementation.name);
    if (distributed == nullptr) throw std::logic_error(implementation.name + " is for one device");
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (team_ == nullptr || team_->is_over()) start_team();
    const auto run =
        std::make_shared<BoundTeamRun>(team_, latest_, *distributed, problem, tensors, workspace);
    return {.launch = [run](void* /*stream*/) { run->launch(); }, .team = run};
  }

  /// By the clocks of ranks, which start when all are ready.
  LaunchTime time_launch(const Launch& launch, double idle_ms) override {
    latest_->idle_ms = idle_ms;
    launch(nullptr);
    latest_->idle_ms.reset();  // an exchange leaves it as it is
    return latest_->time;
  }

 private:
  void start_team() { team_ = std::make_shared<LiveTeam>(*own_, plan_of(info_), start_, patience_); }

  DeviceInfo info_;
  StartRanks start_;
  std::chrono::milliseconds patience_;
  std::unique_ptr<Device> own_;  ///< rank 0's
  std::shared_ptr<Latest> latest_ = std::make_shared<Latest>();
  std::shared_ptr<LiveTeam> team_;  ///< null where none has started
  std::exception_ptr failure_;      ///< of the first start
};

}  // namespace

DeviceInfo team_info(const DeviceInfo& device, int ranks) {
  DeviceInfo info = device;
  info.ranks = ranks;
  info.details["ranks"] = std::to_string(ranks);
  if (info.kind == DeviceKind::cpu) return info;
  const TeamPlan plan = plan_of(info);
  const std::set<int> gpus(plan.gpus.begin(), plan.gpus.end());
  const bool by_nccl = plan.path == DataPath::nccl;
  info.has_device_per_rank = std::ssize(gpus) == ranks;
  info.details["gpus"] = std::to_string(gpus.size());
  info.details["exchange"] = by_nccl ? "NCCL " + nccl_version() : "through host memory";
  if (!by_nccl) info.untimed = "ranks on GPUs that exchange data through host memory are not timed";
  return info;
}

LinkCeilings measure_links(const DeviceInfo& team, const StartRanks& start,
                           std::chrono::milliseconds patience) {
  const auto device = open_device(team.kind, team.index);
  LiveTeam live(*device, plan_of(team), start, patience);
  live.order({.kind = RankOrder::Kind::links});
  return live.together([&] { return measure_links(live.links()); });
}

std::unique_ptr<Device> open_team(const DeviceInfo& info, StartRanks start,
                                  std::chrono::milliseconds patience) {
  return std::make_unique<TeamDevice>(info, std::move(start), patience);
}

}  // namespace ssmbench
