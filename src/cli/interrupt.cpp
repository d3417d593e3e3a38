#include "cli/interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace ssmbench {
namespace {

/// timeout(1), and others that stop what they started, signal a process and then the group that it is in.
constexpr std::int64_t kTogetherMs = 250;

std::atomic<bool> signalled{false};
std::atomic<std::int64_t> first_ms{0};  ///< when, by the monotonic clock; 0 before
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

extern "C" void on_signal(int /*signal*/) {
  constexpr std::string_view kFirst = "\ninterrupted: finishing; interrupt again to quit at once\n";
  const std::int64_t now = now_ms();
  std::int64_t before = 0;
  if (!first_ms.compare_exchange_strong(before, now)) {
    if (now - before >= kTogetherMs) _exit(130);
    return;
  }
  signalled = true;
  const int error = errno;  // of what was interrupted, which has yet to look at it
  // Nothing can be done about a failing stderr here.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kFirst.data(), kFirst.size());
  errno = error;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signalled = false;
  first_ms = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current {};
    sigaction(signal, nullptr, &current);
    if (current.sa_handler == on_signal) std::signal(signal, SIG_DFL);
  }
}

const std::atomic<bool>& InterruptGuard::flag() const {
  return signalled;
}

}  // namespace ssmbench
