#include "supervise/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "supervise/protocol.h"

namespace ssmbench {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kLongestTeardown{60};  // a device may have to stop what runs there

[[noreturn]] void fail(const char* what, int error) {
  throw DeviceError(fmt::format("cannot start a worker process: {}: {}", what, std::strerror(error)));
}

/// A descriptor that closes itself, away from the numbers that the child finds its own at.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(fcntl(number, F_DUPFD_CLOEXEC, 10)) {
    if (number_ < 0) fail("descriptor", errno);
    close(number);
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;

  operator int() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// This process's environment without what launchers of parallel programs (Open MPI, PMIx, Slurm's PMI) tell
/// the ranks that they start.
std::vector<char*> worker_environment() {
  constexpr std::array<std::string_view, 6> kOfLaunchers{"OMPI_", "PMIX_", "PMI_", "PMI2_", "PRTE_", "ORTE_"};
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::ranges::none_of(kOfLaunchers, [&](std::string_view prefix) {
          return std::string_view(*variable).starts_with(prefix);
        }))
      variables.push_back(*variable);
  variables.push_back(nullptr);
  return variables;
}

pid_t spawn(const std::vector<std::string>& arguments, int orders, int messages) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, orders, kOrdersDescriptor);
  posix_spawn_file_actions_adddup2(&files, messages, kMessagesDescriptor);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = -1;
  const int error =
      posix_spawn(&process, "/proc/self/exe", &files, &attributes, argv.data(), worker_environment().data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) fail("posix_spawn", error);
  return process;
}

/// Processes that the kernel has killed for want of memory since it started; 0 where it does not say.
long oom_kills() {
  std::ifstream lines("/proc/vmstat");
  std::string name;
  for (long count = 0; lines >> name >> count;)
    if (name == "oom_kill") return count;
  return 0;
}

Explanation describe_end(int status, long oom_kills_before) {
  if (WIFEXITED(status)) return {Cause::crash, fmt::format("exited with status {}", WEXITSTATUS(status))};
  const int signal = WTERMSIG(status);
  switch (signal) {
    case SIGSEGV:
      return {Cause::crash, "segmentation fault"};
    case SIGABRT:
      return {Cause::crash, "aborted"};
    case SIGKILL:
      if (oom_kills() > oom_kills_before) return {Cause::out_of_memory, "killed: out of memory"};
      return {Cause::crash, "killed"};
    default:
      return {Cause::crash, fmt::format("killed by signal {} ({})", signal, strsignal(signal))};
  }
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) : oom_kills_before_(oom_kills()) {
  std::array<int, 2> ends{};
  // No pipe: writing to a process that is gone must not end this one by a signal.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail("socketpair", errno);
  Descriptor orders(ends[0]);
  const Descriptor orders_there(ends[1]);
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe", errno);
  Descriptor from(ends[0]);
  const Descriptor to(ends[1]);
  fcntl(from, F_SETFL, O_NONBLOCK);
  process_ = spawn(arguments, orders_there, to);
  orders_ = orders.release();
  pipe_ = from.release();
}

ChildProcess::~ChildProcess() {
  ChildProcess::end(Clock::duration::zero());
  while (!ChildProcess::ended()) std::this_thread::sleep_for(milliseconds(2));
  if (orders_ >= 0) close(orders_);
  close(pipe_);
}

void ChildProcess::order(const std::string& bytes) {
  unsent_ += bytes;
  write_orders();
}

void ChildProcess::no_more_orders() {
  is_last_order_ = true;
  write_orders();
}

void ChildProcess::write_orders() {
  while (!unsent_.empty() && orders_ >= 0) {
    const ssize_t count = ::send(orders_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) unsent_.clear();  // it is gone, which its pipe says too
    if (count > 0) unsent_.erase(0, static_cast<std::size_t>(count));
  }
  if (is_last_order_ && orders_ >= 0) close(std::exchange(orders_, -1));
}

WorkerHandle::Event ChildProcess::next_line(std::string& line) {
  write_orders();
  while (!take_line(line)) {
    Read read = read_more();
    // Something that it started may hold the pipe open.
    if (read == Read::none_yet && has_ended()) read = read_more() == Read::some ? Read::some : Read::end;
    if (read == Read::end) return Event::closed;
    if (read == Read::none_yet) return Event::nothing;
  }
  return Event::line;
}

void ChildProcess::watch(std::vector<pollfd>& descriptors) const {
  descriptors.push_back({.fd = pipe_, .events = POLLIN, .revents = 0});
  if (!unsent_.empty()) descriptors.push_back({.fd = orders_, .events = POLLOUT, .revents = 0});
}

bool ChildProcess::take_line(std::string& line) {
  const auto newline = buffer_.find('\n');
  if (newline == std::string::npos) return false;
  line = buffer_.substr(0, newline);
  buffer_.erase(0, newline + 1);
  return true;
}

ChildProcess::Read ChildProcess::read_more() {
  std::array<char, 1 << 16> block;  // NOLINT(cppcoreguidelines-pro-type-member-init): read fills it
  const ssize_t count = read(pipe_, block.data(), block.size());
  if (count > 0) buffer_.append(block.data(), static_cast<std::size_t>(count));
  if (count > 0) return Read::some;
  return count < 0 && (errno == EAGAIN || errno == EINTR) ? Read::none_yet : Read::end;
}

bool ChildProcess::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process_;
}

void ChildProcess::end(Clock::duration grace) {
  kill_at_ = std::min(kill_at_.value_or(Clock::time_point::max()), Clock::now() + grace);
}

std::optional<WorkerHandle::Ending> ChildProcess::ended() {
  if (ending_ || !kill_at_) return ending_;
  const auto now = Clock::now();
  // It is waited for last: until then nothing else can have its number.
  if (!killed_ && (has_ended() || now >= *kill_at_)) {
    ended_by_itself_ = has_ended();
    kill(-process_, SIGKILL);
    killed_ = now;
  }
  if (!killed_) return {};
  if (has_ended()) {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    ending_ = {.how = ended_by_itself_ ? describe_end(status, oom_kills_before_)
                                       : Explanation{Cause::timeout, "hung"}};
  } else if (now >= *killed_ + kLongestTeardown) {
    process_ = -1;
    ending_ = {.how = {Cause::timeout, "hung, and cannot be killed"}, .is_gone = false};
  }
  return ending_;
}

}  // namespace ssmbench
