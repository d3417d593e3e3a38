#include "team/rank_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "device/floating_point.h"
#include "device/thread_pinning.h"
#include "model/operation.h"
#include "team/link_ceilings.h"

namespace ssmbench {
namespace {

/// Of RankOutcome, as ranks exchange it.
struct Report {
  LaunchTime time;
  double wire_bytes;
  std::int64_t steps_again;  // -1: does not say
  bool out_of_bounds;
  std::array<char, 511> damage;  // with a zero at its end
};

/// Rows of elements that follow one another in a whole tensor and in a part of it; in elements.
struct Rows {
  std::int64_t in_whole, in_part;  ///< offsets of the first
  std::int64_t whole_pitch;
  std::int64_t width;  ///< and pitch in the part
  std::int64_t count;
};

/// Calls copy(Rows) until all of the part has been there.
template <class Copy>
void for_each_rows(const TensorSpec& whole, const TensorSpec& part, const Shape& begin, const Copy& copy) {
  const Shape strides = whole.strides();
  const auto& order = whole.storage_order;  // from the outermost
  std::size_t outer = order.size();         // axes before those that make a run
  std::int64_t run = 1;
  for (bool is_whole = true; outer > 0 && is_whole;) {
    const auto axis = static_cast<std::size_t>(order[--outer]);
    run *= part.shape[axis];
    is_whole = part.shape[axis] == whole.shape[axis];
  }
  std::int64_t base = 0;
  for (std::size_t axis = 0; axis < begin.size(); ++axis) base += begin[axis] * strides[axis];
  Rows rows{.in_whole = base, .in_part = 0, .whole_pitch = run, .width = run, .count = 1};
  if (outer > 0) {
    const auto axis = static_cast<std::size_t>(order[--outer]);
    rows.whole_pitch = strides[axis];
    rows.count = part.shape[axis];
  }
  const std::int64_t of_rows = rows.width * rows.count;
  for (std::int64_t number = 0; number < element_count(part.shape) / of_rows; ++number) {
    std::int64_t rest = number;
    rows.in_whole = base;
    for (std::size_t i = outer; i-- > 0;) {
      const auto axis = static_cast<std::size_t>(order[i]);
      rows.in_whole += rest % part.shape[axis] * strides[axis];
      rest /= part.shape[axis];
    }
    rows.in_part = number * of_rows;
    copy(rows);
  }
}

}  // namespace

RankRun::RankRun(RankLinks& links, const DistributedImplementation& implementation, const Problem& problem,
                 const TensorSet* whole, void* workspace)
    : links_(links),
      device_(links.device()),
      implementation_(implementation),
      problem_(problem),
      team_(links.of_host()),
      of_device_(links.of_device()),
      counted_(of_device_, device_),
      workspace_bytes_(implementation.workspace_bytes(problem, team_.rank(), team_.size())),
      guard_(device_),
      run_(bind(implementation.box(problem, team_.rank(), team_.size()), whole, workspace)) {
  team_.barrier();  // where another rank cannot, this one is not to believe that all could
}

DistributedRun RankRun::bind(const Box& box, const TensorSet* whole, void* workspace) {
  TensorSet tensors;
  for (const auto& spec : problem_.tensors()) {
    const TensorSpec part = part_of(spec, box);
    auto* const in_whole = whole == nullptr ? nullptr : static_cast<std::byte*>(whole->at(spec.name).data);
    parts_.push_back({spec, part, device_.allocate(part.bytes()), in_whole, part.shape != spec.shape});
    void* const data = parts_.back().buffer.get();
    tensors.add(spec.name, TensorView(data, part));
    guard_.add_bands(spec.name, data, part.bytes());
    if (spec.role == Role::input) guard_.add_contents(spec.name, data, part.bytes());
  }
  if (workspace == nullptr) {
    workspace_ = device_.allocate(workspace_bytes_);
    workspace = workspace_.get();
    guard_.add_bands("the workspace", workspace, workspace_bytes_);
  }
  return implementation_.bind(problem_, tensors, workspace, counted_);
}

std::vector<RankOutcome> RankRun::launch(const LaunchConditions& conditions) {
  hand_out();
  if (workspace_ != nullptr) device_.fill(workspace_.get(), conditions.garbage, workspace_bytes_);
  guard_.arm();
  counted_.reset();
  RankOutcome own;
  if (conditions.flush_cache) device_.flush_cache();
  own.time = links_.time_together([this] { run_.launch(device_.stream()); }, conditions.idle_ms);
  reset_floating_point();
  own.wire_bytes = counted_.wire_bytes();
  if (run_.steps_again) own.steps_again = run_.steps_again();
  own.damage = guard_.damage();
  auto all = outcomes_of_all(own);
  collect();
  return all;
}

bool RankRun::settle() {
  const bool is_idle = team_.agree(device_.wait_until_idle() ? 0 : 1) == 0;
  collect();
  return is_idle;
}

std::vector<double> RankRun::exchange() {
  std::vector<double> all(static_cast<std::size_t>(team_.size()));
  const double own = links_.time_together([this] { counted_.replay(device_.stream()); }, kQueuedMs).ms;
  team_.all_gather(&own, all.data(), sizeof own, nullptr);
  return all;
}

std::vector<RankOutcome> RankRun::outcomes_of_all(const RankOutcome& own) {
  Report report{.time = own.time,
                .wire_bytes = own.wire_bytes,
                .steps_again = own.steps_again.value_or(-1),
                .out_of_bounds = own.damage.out_of_bounds,
                .damage = {}};
  own.damage.text.copy(report.damage.data(), report.damage.size() - 1);
  std::vector<Report> reports(static_cast<std::size_t>(team_.size()));
  team_.all_gather(&report, reports.data(), sizeof report, nullptr);
  std::vector<RankOutcome> all;
  for (const auto& each : reports)
    all.push_back({.time = each.time,
                   .wire_bytes = each.wire_bytes,
                   .steps_again = each.steps_again < 0 ? std::nullopt : std::optional(each.steps_again),
                   .damage = {each.damage.data(), each.out_of_bounds}});
  return all;
}

TensorSpec RankRun::part_at(const Part& part, int rank) const {
  return part_of(part.of_whole, implementation_.box(problem_, rank, team_.size()));
}

void RankRun::copy(const Part& part, int rank, void* packed, bool out_of_whole) const {
  const std::size_t size = size_of(part.spec.dtype);
  const Box box = implementation_.box(problem_, rank, team_.size());
  for_each_rows(part.of_whole, part_of(part.of_whole, box), begin_of(part.of_whole, box),
                [&](const Rows& rows) {
                  const auto bytes = [size](std::int64_t elements) {
                    return static_cast<std::size_t>(elements) * size;
                  };
                  std::byte* there = part.in_whole + bytes(rows.in_whole);
                  std::byte* here = static_cast<std::byte*>(packed) + bytes(rows.in_part);
                  const auto count = static_cast<std::size_t>(rows.count);
                  if (out_of_whole)
                    device_.copy_rows(here, bytes(rows.width), there, bytes(rows.whole_pitch),
                                      bytes(rows.width), count);
                  else
                    device_.copy_rows(there, bytes(rows.whole_pitch), here, bytes(rows.width),
                                      bytes(rows.width), count);
                });
}

void* RankRun::packed(std::size_t bytes) {
  if (packed_ == nullptr || bytes > packed_bytes_) {
    device_.synchronize();  // what was there may be on its way
    packed_ = device_.allocate(bytes);
    packed_bytes_ = bytes;
  }
  return packed_.get();
}

void RankRun::hand_out() {
  for (const auto& part : parts_) {
    if (team_.rank() > 0) {
      of_device_.receive(part.buffer.get(), part.spec.bytes(), 0, device_.stream());
      continue;
    }
    copy(part, 0, part.buffer.get(), true);
    for (int rank = 1; rank < team_.size(); ++rank) {
      const std::size_t bytes = part_at(part, rank).bytes();
      copy(part, rank, packed(bytes), true);
      of_device_.send(packed_.get(), bytes, rank, device_.stream());
    }
  }
}

void RankRun::collect() {
  for (const auto& part : parts_) {
    if (part.spec.role == Role::input) continue;
    const int holder = part.is_cut ? -1 : implementation_.holder(part.spec.name, team_.size());
    const auto gives = [&](int rank) { return holder < 0 || rank == holder; };
    if (team_.rank() > 0) {
      if (gives(team_.rank())) of_device_.send(part.buffer.get(), part.spec.bytes(), 0, device_.stream());
      continue;
    }
    if (gives(0)) copy(part, 0, part.buffer.get(), false);
    for (int rank = 1; rank < team_.size(); ++rank) {
      if (!gives(rank)) continue;
      const std::size_t bytes = part_at(part, rank).bytes();
      of_device_.receive(packed(bytes), bytes, rank, device_.stream());
      copy(part, rank, packed_.get(), false);
    }
  }
}

void follow(RankLinks& links, const std::function<std::optional<RankOrder>()>& next_order) {
  std::map<std::size_t, std::unique_ptr<RankRun>> runs;
  std::shared_ptr<void> pinned;
  while (const auto order = next_order()) {
    switch (order->kind) {
      case RankOrder::Kind::bind: {
        const OpSpec* op = find_op(order->op);
        const auto* implementation = distributed_implementation(order->op, order->implementation);
        if (op == nullptr || implementation == nullptr)
          throw std::logic_error("bound to what this program does not have");
        runs[order->run] =
            std::make_unique<RankRun>(links, *implementation, Problem(*op, order->axes), nullptr, nullptr);
        break;
      }
      case RankOrder::Kind::launch:
        runs.at(order->run)->launch(order->conditions);
        // Not before the first launch, when runtimes count the CPUs that they may use.
        if (pinned == nullptr) pinned = pin_threads();
        break;
      case RankOrder::Kind::settle:
        runs.at(order->run)->settle();
        break;
      case RankOrder::Kind::exchange:
        runs.at(order->run)->exchange();
        break;
      case RankOrder::Kind::links:
        measure_links(links);
        break;
      case RankOrder::Kind::release:
        runs.erase(order->run);
    }
  }
}

}  // namespace ssmbench
