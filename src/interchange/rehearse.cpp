#include "interchange/rehearse.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
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

rlim_t seconds_for(const std::string& file) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  return error ? 0 : static_cast<rlim_t>(bytes / kBytesPerSecond);
}

/// What the child does: it never returns to the caller's code, whose files and locks belong to the parent.
[[noreturn]] void rehearse_in_child(rlim_t seconds, const std::function<void()>& read) {
  const rlimit time{seconds, seconds + 1};
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CPU, &time);
  setrlimit(RLIMIT_CORE, &no_core);
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU}) std::signal(fatal, SIG_DFL);
  try {
    read();
  } catch (...) {  // complaints are the parent's to make, when it reads
  }
  _exit(0);
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw std::runtime_error(fmt::format("waitpid: {}", std::strerror(errno)));
  return status;
}

}  // namespace

void rehearse(const std::string& file, const std::string& where, const std::function<void()>& read,
              unsigned seconds_for_any) {
  const rlim_t seconds = seconds_for_any + seconds_for(file);
  const pid_t child = fork();
  if (child < 0) throw OutOfMemory(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) rehearse_in_child(seconds, read);
  const int status = wait_for(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) throw Interrupted();
  if (signal == SIGXCPU || signal == SIGKILL)
    reject_file(file, where,
                fmt::format("damaged: reading takes more than {} s, or more memory than there is", seconds));
  reject_file(file, where,
              fmt::format("damaged: HDF5 crashes while reading it ({})",
                          signal == 0 ? "abnormal exit" : strsignal(signal)));
}

}  // namespace ssmbench
