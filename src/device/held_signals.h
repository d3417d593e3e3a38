#pragma once

#include <csignal>

namespace ssmbench {

/// While it lives no signal is handled by this thread. A handler that an implementation installed could
/// compute there what its launch left undone, on a timer, or when memory that it took the access to is read:
/// a fault then ends the process.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  HeldSignals(HeldSignals&&) = delete;
  HeldSignals& operator=(HeldSignals&&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace ssmbench
