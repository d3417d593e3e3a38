#include "supervise/child_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "device/thread_pinning.h"
#include "supervise/child_process.h"
#include "supervise/protocol.h"

namespace ssmbench {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// For a rank to get to where it joins.
constexpr std::chrono::seconds kLongestStart{60};
/// For one that has failed to say so or to end, when others have met it.
constexpr std::chrono::seconds kLongestWord{2};
constexpr milliseconds kLookEvery{1};

class ChildRanks : public RankProcesses {
 public:
  ChildRanks(const std::vector<std::string>& argv, const std::string& team, const TeamPlan& plan) {
    const auto cpus = allowed_cpus();
    for (int rank = 1; rank < plan.ranks; ++rank) {
      const auto number = static_cast<std::size_t>(rank);
      auto& child = *children_.emplace_back(std::make_unique<ChildProcess>(argv));
      const auto own = share_of(cpus, number, static_cast<std::size_t>(plan.ranks));
      const auto gpu = plan.gpus.empty() ? std::nullopt : std::optional(plan.gpus[number]);
      child.order(to_bytes(WorkerOrders{.supervisor = getpid(),
                                        .plan = "",
                                        .dump_folder = "",
                                        .place = {.gpu = gpu, .cpus = own, .all_cpus = cpus},
                                        .team = team,
                                        .rank = rank,
                                        .path = plan.path}));
    }
    const auto deadline = Clock::now() + kLongestStart;
    for (std::size_t i = 0; i < children_.size(); ++i) wait_until_ready(i, deadline);
  }

  void order(const RankOrder& order) override {
    for (const auto& child : children_) child->order(to_bytes(order));
  }

  std::optional<Explanation> why_lost() override {
    std::vector<bool> is_told(children_.size(), false);  // by others, as this one was
    const auto deadline = Clock::now() + kLongestWord;
    do {
      for (std::size_t i = 0; i < children_.size(); ++i)
        if (!is_told[i])
          if (const auto why = end_of(i, is_told)) return of_rank(i, *why);
      std::this_thread::sleep_for(kLookEvery);
    } while (Clock::now() < deadline);
    return {};
  }

 private:
  static Explanation of_rank(std::size_t child, const Explanation& why) {
    return {why.cause, fmt::format("rank {}: {}", child + 1, why.reason)};
  }

  void wait_until_ready(std::size_t child, Clock::time_point deadline) {
    std::string line;
    std::vector<bool> nobody_told(children_.size(), false);
    while (true) {
      const auto event = children_[child]->next_line(line);
      if (event == WorkerHandle::Event::line) return;
      if (event == WorkerHandle::Event::closed)
        if (const auto why = end_of(child, nobody_told)) throw ExplainedError(of_rank(child, *why));
      if (Clock::now() > deadline)
        throw ExplainedError(of_rank(child, {Cause::timeout, "does not join the team"}));
      std::this_thread::sleep_for(kLookEvery);
    }
  }

  /// What a rank has said of its failure, or how it ended.
  std::optional<Explanation> end_of(std::size_t child, std::vector<bool>& is_told) {
    std::string line;
    auto event = children_[child]->next_line(line);
    for (; event == WorkerHandle::Event::line; event = children_[child]->next_line(line)) {
      const Message message = parse_message(line);
      if (message.kind == Message::Kind::leaving) is_told[child] = true;
      if (message.kind == Message::Kind::failed) return explanation_in(message.text);
    }
    if (is_told[child] || event != WorkerHandle::Event::closed) return {};
    children_[child]->end(kLongestWord);
    const auto ending = children_[child]->ended();
    return ending ? std::optional(ending->how) : std::nullopt;
  }

  std::vector<std::unique_ptr<ChildProcess>> children_;  ///< ranks 1, 2, …
};

}  // namespace

StartRanks ranks_as_children(std::vector<std::string> worker_argv) {
  return [argv = std::move(worker_argv)](const std::string& team, const TeamPlan& plan) {
    return std::make_unique<ChildRanks>(argv, team, plan);
  };
}

}  // namespace ssmbench
