#include "device/floating_point.h"

#include <atomic>

namespace ssmbench {
namespace {

std::atomic<bool> foreign_code_was_called{false};

}  // namespace

KeptFloatingPoint::KeptFloatingPoint() {
  std::fegetenv(&kept_);
  foreign_code_was_called = true;
}

void reset_floating_point() {
  if (!foreign_code_was_called.exchange(false)) return;
#pragma omp parallel
  std::fesetenv(FE_DFL_ENV);
}

}  // namespace ssmbench
