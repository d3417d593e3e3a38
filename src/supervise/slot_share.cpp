#include "supervise/slot_share.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "device/thread_pinning.h"

namespace ssmbench {
namespace {

/// Calls `at_end` when the last copy goes. Not null.
std::shared_ptr<void> when_it_goes(std::function<void()> at_end) {
  auto owned = std::make_shared<std::function<void()>>(std::move(at_end));
  auto* const that = owned.get();
  return {that, [owned = std::move(owned)](void*) { (*owned)(); }};
}

/// Calls `beat` every kWaitingEvery as long as it lives, from a thread of its own. It stops with its process.
class Heartbeat {
 public:
  explicit Heartbeat(std::function<void()> beat)
      : thread_([this, beat = std::move(beat)](const std::stop_token& ends) {
          std::unique_lock lock(mutex_);
          while (!never_.wait_for(lock, ends, kWaitingEvery, [&ends] { return ends.stop_requested(); }))
            beat();
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any never_;  ///< notified
  std::jthread thread_;
};

}  // namespace

SlotShare::SlotShare(const WorkerPlace& place, std::function<void(bool)> waits)
    : place_(place),
      waits_(std::move(waits)),
      all_threads_(threads_for(place.all_cpus)),
      host_(place.lock, HostLock::Of::host),
      memory_(place.lock, HostLock::Of::memory) {
  if (!place_.cpus.empty())
    use_cpus(place_.cpus, std::min(all_threads_, static_cast<int>(place_.cpus.size())));
}

void SlotShare::lock(HostLock& what, HostLock::Kind kind) {
  if (what.try_lock(kind)) return;
  waits_(true);
  {
    const Heartbeat heartbeat([this] { waits_(true); });
    what.lock(kind);
  }
  waits_(false);
}

void SlotShare::enter() {
  lock(host_, HostLock::Kind::shared);
  if (!is_off_memory_) lock(memory_, HostLock::Kind::shared);
}

void SlotShare::leave() {
  memory_.unlock();
  host_.unlock();
}

std::shared_ptr<void> SlotShare::work() {
  enter();
  return when_it_goes([this] { leave(); });
}

void SlotShare::give_way() {
  if (is_alone_ || has_memory_alone_) return;
  if (host_.is_wanted()) {
    leave();
    enter();
  } else if (!is_off_memory_ && memory_.is_wanted()) {
    memory_.unlock();
    lock(memory_, HostLock::Kind::shared);
  }
}

std::shared_ptr<void> SlotShare::alone() {
  leave();  // two that kept their shares would wait for each other
  lock(host_, HostLock::Kind::alone);
  is_alone_ = true;
  return when_it_goes([this] {
    is_alone_ = false;
    host_.unlock();
    enter();
  });
}

std::shared_ptr<void> SlotShare::memory_alone() {
  memory_.unlock();
  lock(memory_, HostLock::Kind::alone);
  return with_memory_alone();
}

std::shared_ptr<void> SlotShare::try_memory_alone() {
  return memory_.try_lock(HostLock::Kind::alone) ? with_memory_alone() : nullptr;
}

std::shared_ptr<void> SlotShare::with_memory_alone() {
  has_memory_alone_ = true;
  return when_it_goes([this] {
    has_memory_alone_ = false;
    memory_.unlock();
    if (!is_off_memory_) lock(memory_, HostLock::Kind::shared);
  });
}

std::shared_ptr<void> SlotShare::off_memory() {
  memory_.unlock();
  is_off_memory_ = true;
  return when_it_goes([this] {
    is_off_memory_ = false;
    lock(memory_, HostLock::Kind::shared);
  });
}

std::shared_ptr<void> SlotShare::all_cores() {
  if (place_.cpus.empty()) return nullptr;
  use_cpus(place_.all_cpus, all_threads_);
  return when_it_goes(
      [this] { use_cpus(place_.cpus, std::min(all_threads_, static_cast<int>(place_.cpus.size()))); });
}

}  // namespace ssmbench
