#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

namespace ssmbench {
namespace {

std::atomic<bool> signalled{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

extern "C" void on_signal(int /*signal*/) {
  constexpr std::string_view kFirst = "\ninterrupted: stopping; again to stop at once\n";
  if (signalled.exchange(true)) _exit(130);
  // Nothing can be done about a failing stderr here.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kFirst.data(), kFirst.size());
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signalled = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>& InterruptGuard::flag() const {
  return signalled;
}

}  // namespace ssmbench
