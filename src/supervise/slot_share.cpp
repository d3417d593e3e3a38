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
    : place_(place), waits_(std::move(waits)), all_threads_(threads_for(place.all_cpus)), lock_(place.lock) {
  if (!place_.cpus.empty())
    use_cpus(place_.cpus, std::min(all_threads_, static_cast<int>(place_.cpus.size())));
}

void SlotShare::lock(HostLock::Kind kind) {
  if (lock_.try_lock(kind)) return;
  waits_(true);
  lock_.lock(kind);
  waits_(false);
}

std::shared_ptr<void> SlotShare::work() {
  lock(HostLock::Kind::shared);
  return when_it_goes([this] { lock_.unlock(); });
}

void SlotShare::give_way() {
  if (is_alone_ || !lock_.is_wanted()) return;
  lock_.unlock();
  lock(HostLock::Kind::shared);
}

std::shared_ptr<void> SlotShare::alone() {
  lock_.unlock();  // two that kept their shares would wait for each other
  lock(HostLock::Kind::alone);
  is_alone_ = true;
  return when_it_goes([this] {
    is_alone_ = false;
    lock_.unlock();
    lock(HostLock::Kind::shared);
  });
}

std::shared_ptr<void> SlotShare::all_cores() {
  if (place_.cpus.empty()) return nullptr;
  use_cpus(place_.all_cpus, all_threads_);
  return when_it_goes(
      [this] { use_cpus(place_.cpus, std::min(all_threads_, static_cast<int>(place_.cpus.size()))); });
}

}  // namespace ssmbench
