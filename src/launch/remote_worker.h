#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launch/ranks.h"
#include "supervise/worker_handle.h"

namespace ssmbench {

class RemoteWorker;

/// The leader's side of its relays (relay.h).
class Relays {
 public:
  /// `ranks` has to live as long, and only this uses it meanwhile.
  explicit Relays(Ranks& ranks) : ranks_(ranks) {}
  /// Dismisses them; workers that are left are killed.
  ~Relays();
  Relays(const Relays&) = delete;
  Relays& operator=(const Relays&) = delete;
  Relays(Relays&&) = delete;
  Relays& operator=(Relays&&) = delete;

  /// Starts a worker of a rank, which must have none.
  std::unique_ptr<WorkerHandle> start(int rank);
  /// Takes in what relays have sent.
  void look();

 private:
  friend class RemoteWorker;
  Ranks& ranks_;
  std::map<int, RemoteWorker*> workers_;  ///< by rank
};

/// The worker of a relay.
class RemoteWorker : public WorkerHandle {
 public:
  RemoteWorker(Relays& relays, int rank);
  /// Has it killed, and does not wait until it is gone.
  ~RemoteWorker() override;
  RemoteWorker(const RemoteWorker&) = delete;
  RemoteWorker& operator=(const RemoteWorker&) = delete;
  RemoteWorker(RemoteWorker&&) = delete;
  RemoteWorker& operator=(RemoteWorker&&) = delete;

  void order(const std::string& bytes) override;
  void no_more_orders() override;
  Event next_line(std::string& line) override;
  void watch(std::vector<pollfd>& /*descriptors*/) const override {}  // Relays::look says
  void end(Clock::duration grace) override;
  std::optional<Ending> ended() override { return ending_; }

 private:
  friend class Relays;
  void take(const std::string& message);

  Relays& relays_;
  int rank_;
  std::deque<std::string> lines_;
  bool is_closed_ = false;
  std::optional<Ending> ending_;
};

}  // namespace ssmbench
