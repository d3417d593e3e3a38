#include "interchange/rehearse.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "base/errors.h"
#include "interchange/format.h"

namespace ssmbench {
namespace {

// A byte of a file may stand for a thousand, inflated at some hundred million a second.
constexpr std::uintmax_t kBytesPerSecond = 250'000;

RehearsalLimits limits_for(const std::string& file, RehearsalLimits limits) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  const auto more = error ? 0U : static_cast<unsigned>(bytes / kBytesPerSecond);
  return {limits.cpu_seconds + more, limits.wall_seconds + 4 * more};
}

/// What the child does: it never returns to the caller's code, whose files and locks belong to the parent.
[[noreturn]] void rehearse_in_child(pid_t parent, unsigned seconds, const std::function<void()>& read) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before
  const rlimit time{seconds, seconds + 1};
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CPU, &time);
  setrlimit(RLIMIT_CORE, &no_core);
  if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0)
    dup2(nowhere, STDERR_FILENO);  // a C library says why it aborts
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU}) std::signal(fatal, SIG_DFL);
  try {
    read();
  } catch (...) {  // complaints are the parent's to make, when it reads
  }
  _exit(0);
}

/// A process that is killed, if it still runs, and waited for.
class Child {
 public:
  Child(unsigned seconds, const std::function<void()>& read) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail();
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) rehearse_in_child(parent, seconds, read);
    const int error = errno;
    close(ends[1]);  // now only the child has it: the other end shows when it ends
    its_end_ = ends[0];
    if (process_ < 0) close(its_end_);
    errno = error;
    if (process_ < 0) fail();
  }
  ~Child() {
    close(its_end_);
    if (process_ < 0) return;
    kill(process_, SIGKILL);
    status();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&&) = delete;
  Child& operator=(Child&&) = delete;

  /// False when it still runs after that time.
  bool ends_within(std::chrono::milliseconds time) const {
    pollfd what{.fd = its_end_, .events = POLLIN, .revents = 0};
    return poll(&what, 1, static_cast<int>(time.count())) > 0;
  }
  /// Waits for it.
  int status() {
    int status = 0;
    while (waitpid(process_, &status, 0) < 0)
      if (errno != EINTR) break;
    process_ = -1;
    return status;
  }

 private:
  [[noreturn]] static void fail() {
    throw OutOfMemory(fmt::format("cannot start a process: {}", std::strerror(errno)));
  }

  pid_t process_ = -1;
  int its_end_ = -1;
};

/// False when it takes longer than that. In slices: one that takes longer was one in which this process did
/// not run.
bool ends_in_time(const Child& child, std::chrono::seconds limit, const std::atomic<bool>& stop) {
  constexpr std::chrono::milliseconds kSlice{100};
  for (std::chrono::milliseconds waited{0}; waited < limit; waited += kSlice) {
    if (child.ends_within(kSlice)) return true;
    if (stop) throw Interrupted();
  }
  return false;
}

}  // namespace

void rehearse(const std::string& file, const std::string& where, const std::function<void()>& read,
              const std::atomic<bool>& stop, RehearsalLimits for_any_file) {
  const auto [cpu_seconds, wall_seconds] = limits_for(file, for_any_file);
  Child child(cpu_seconds, read);
  if (!ends_in_time(child, std::chrono::seconds(wall_seconds), stop))
    reject_file(file, where, fmt::format("damaged: reading takes more than {} s", wall_seconds));
  const int status = child.status();
  if (stop) throw Interrupted();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) throw Interrupted();
  if (signal == SIGXCPU || signal == SIGKILL)
    reject_file(
        file, where,
        fmt::format("damaged: reading takes more than {} s, or more memory than is available", cpu_seconds));
  reject_file(file, where,
              fmt::format("damaged: HDF5 crashes while reading it ({})",
                          signal == 0 ? "abnormal exit" : strsignal(signal)));
}

}  // namespace ssmbench
