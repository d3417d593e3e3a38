#include "supervise/supervisor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "supervise/protocol.h"

namespace ssmbench {
namespace {

using std::chrono::milliseconds;

/// While a worker ends, which nothing announces.
constexpr milliseconds kWhileEnding{2};

/// What a slot has of the host that others want too.
int busy_beside(const Slot& slot, const std::vector<Slot>& slots) {
  return static_cast<int>(std::ranges::count_if(slots, [&](const Slot& other) {
    return &other != &slot && other.unit() != nullptr && other.host() == slot.host();
  }));
}

/// Kills the workers that are left, all at the same time, whatever ends the run.
class Ends {
 public:
  explicit Ends(std::vector<Slot>& slots) : slots_(slots) {}
  ~Ends() {
    for (auto& slot : slots_) slot.kill();
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  Ends(Ends&&) = delete;
  Ends& operator=(Ends&&) = delete;

 private:
  std::vector<Slot>& slots_;
};

}  // namespace

void Supervisor::run(JobSet jobs) {
  fill_queue(jobs);
  JobBooks books(plan_, options_, listener_, how_.collect, std::move(jobs));
  RunClock clock;
  const std::string fingerprint = plan_fingerprint(plan_);
  std::vector<Slot> slots;
  slots.reserve(how_.slots.size());
  for (const auto& place : how_.slots)
    slots.emplace_back(slots.size(), place,
                       to_bytes(WorkerOrders{.supervisor = place.supervisor,
                                             .plan = fingerprint,
                                             .dump_folder = how_.dump_folder,
                                             .ceilings = options_.ceilings,
                                             .place = place.place}),
                       how_.slot, books, clock);
  const Ends ends(slots);
  while (true) {
    if (stop_) throw Interrupted();
    take_back(slots, books);
    hand_out(slots);
    if (std::ranges::none_of(slots, &Slot::has_worker)) return;
    wait(slots);
    for (auto& slot : slots) slot.step(busy_beside(slot, slots));
  }
}

void Supervisor::fill_queue(const JobSet& jobs) {
  queue_.clear();
  if (is_pool()) {
    for (auto& unit : units_of(plan_, jobs, options_.verify, how_.slots.size(), options_.reference_bytes))
      queue_.push_back(std::move(unit));
    return;
  }
  Unit all;
  for (std::size_t job = 0; job < jobs.size(); ++job)
    if (jobs[job]) all.jobs.push_back(job);
  if (!all.jobs.empty()) queue_.push_back(std::move(all));
}

void Supervisor::hand_out(std::vector<Slot>& slots) {
  for (auto& slot : slots) {
    if (!slot.is_free()) continue;
    const auto next =
        std::ranges::find_if(queue_, [&](const Unit& unit) { return fits(unit, slot.host(), slots); });
    if (next != queue_.end()) {
      Unit unit = std::move(*next);
      queue_.erase(next);
      slot.take(std::move(unit));
    } else if (queue_.empty() && slot.has_worker()) {
      slot.dismiss();
    }
  }
}

bool Supervisor::fits(const Unit& unit, const std::string& host, const std::vector<Slot>& slots) const {
  std::size_t taken = 0;
  bool is_alone = true;
  for (const auto& slot : slots) {
    if (slot.unit() == nullptr || slot.host() != host) continue;
    taken += slot.unit()->host_bytes;
    is_alone = false;
  }
  const auto limit = how_.host_bytes.find(host);
  return is_alone || limit == how_.host_bytes.end() || taken + unit.host_bytes <= limit->second;
}

void Supervisor::take_back(std::vector<Slot>& slots, JobBooks& books) {
  for (auto& slot : slots) {
    if (slot.out_of_service().empty() || slot.unit() == nullptr) continue;
    if (is_pool())
      how_.slot.warn(fmt::format("warning: {}: continuing without this slot", slot.out_of_service()));
    queue_.push_front(slot.give_back());
  }
  const auto broken = std::ranges::find_if(slots, [](const Slot& slot) {
                        return slot.out_of_service().empty();
                      }) == slots.end();
  if (!broken || queue_.empty()) return;
  queue_.clear();
  books.fail_all({Cause::worker, slots.back().out_of_service()});
}

void Supervisor::wait(const std::vector<Slot>& slots) const {
  std::vector<pollfd> descriptors;
  for (const auto& slot : slots) slot.watch(descriptors);
  const bool any_ends = std::ranges::any_of(slots, &Slot::is_ending);
  const milliseconds longest = any_ends ? std::min(kWhileEnding, how_.look_every) : how_.look_every;
  poll(descriptors.data(), descriptors.size(), static_cast<int>(longest.count()));
  how_.look();
}

}  // namespace ssmbench
