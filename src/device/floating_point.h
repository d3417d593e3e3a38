#pragma once

#include <cfenv>

namespace ssmbench {

/// Rounding mode, flushing of subnormals and traps of this thread, as they are now; restored in the end.
/// Foreign code changes them: a library that was linked with -ffast-math flushes subnormals of whoever loads
/// it.
class KeptFloatingPoint {
 public:
  KeptFloatingPoint();
  ~KeptFloatingPoint() { std::fesetenv(&kept_); }
  KeptFloatingPoint(const KeptFloatingPoint&) = delete;
  KeptFloatingPoint& operator=(const KeptFloatingPoint&) = delete;
  KeptFloatingPoint(KeptFloatingPoint&&) = delete;
  KeptFloatingPoint& operator=(KeptFloatingPoint&&) = delete;

 private:
  std::fenv_t kept_ = {};
};

/// Gives all threads of OpenMP, which foreign code may share, what a program starts with, if any foreign code
/// was called since the last time.
void reset_floating_point();

}  // namespace ssmbench
