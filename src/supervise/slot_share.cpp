#include "supervise/slot_share.h"

#include <algorithm>

#include "device/thread_pinning.h"

namespace ssmbench {
namespace {

/// Calls `at_end` when the last copy goes.
std::shared_ptr<void> when_it_goes(std::function<void()> at_end) {
  return {nullptr, [at_end = std::move(at_end)](void*) { at_end(); }};
}

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
  what.lock(kind);
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
