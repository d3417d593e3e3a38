#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "device/memory_guard.h"
#include "model/implementation.h"

namespace ssmbench {

/// What an implementation that a team has bound shows beside its launch.
class TeamRun {
 public:
  virtual ~TeamRun() = default;
  TeamRun() = default;
  TeamRun(const TeamRun&) = delete;
  TeamRun& operator=(const TeamRun&) = delete;
  TeamRun(TeamRun&&) = delete;
  TeamRun& operator=(TeamRun&&) = delete;

  /// What launches did to the memory of ranks that they have to leave as it is.
  virtual Damage damage() const = 0;
  /// Sends and receives what the last launch did, and computes nothing.
  virtual Launch exchange() = 0;
  /// What the last launch sent: the bytes of the rank that sent most.
  virtual double wire_bytes() const = 0;
  /// Of its shard, the steps that the rank with most of them computed a second time in the last launch, where
  /// that depends on the data.
  virtual std::optional<std::int64_t> rerun_steps() const = 0;
  /// By rank, its own times of all launches that Device::time_launch timed, but for those that found flushed
  /// caches, ms. Empty where there were none.
  virtual std::vector<std::vector<double>> timed_ms() const = 0;
};

}  // namespace ssmbench
