#include "supervise/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "supervise/protocol.h"

namespace ssmbench {
namespace {

using std::chrono::milliseconds;

/// How often to look whether a process still lives whose pipe is silent: something that it started may hold
/// the pipe open.
constexpr milliseconds kTick{200};

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

/// A file without a name that holds the text, to be read from its start.
int file_of(const std::string& text) {
  const int file = memfd_create("ssmbench-orders", MFD_CLOEXEC);
  if (file < 0) fail("memfd_create", errno);
  if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file, 0, SEEK_SET) != 0)
    fail("orders", errno);
  return file;
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
  const int error = posix_spawn(&process, "/proc/self/exe", &files, &attributes, argv.data(), environ);
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

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& orders)
    : oom_kills_before_(oom_kills()) {
  const Descriptor orders_file(file_of(orders));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe", errno);
  Descriptor from(ends[0]);
  const Descriptor to(ends[1]);
  fcntl(from, F_SETFL, O_NONBLOCK);
  process_ = spawn(arguments, orders_file, to);
  pipe_ = from.release();
}

ChildProcess::~ChildProcess() {
  end(Clock::duration::zero());
  close(pipe_);
}

ChildProcess::Clock::time_point ChildProcess::now() {
  const auto now = Clock::now();
  if (now - last_now_ > kLongestPause) paused_ += now - last_now_;
  last_now_ = now;
  return now - paused_;
}

ChildProcess::Event ChildProcess::next_line(std::string& line, Clock::time_point deadline,
                                            const std::atomic<bool>& stop) {
  while (true) {
    if (take_line(line)) return Event::line;
    if (stop) return Event::interrupted;
    const auto left = std::chrono::ceil<milliseconds>(deadline - now());
    pollfd what{.fd = pipe_, .events = POLLIN, .revents = 0};
    const auto wait = std::clamp(left, milliseconds::zero(), kTick);
    const int ready = poll(&what, 1, static_cast<int>(wait.count()));
    if (ready > 0) {
      if (!read_more()) return Event::closed;
    } else if (ready == 0) {
      if (left <= milliseconds::zero()) return Event::timed_out;
      if (has_ended() && poll(&what, 1, 0) == 0) return Event::closed;
    }
  }
}

bool ChildProcess::take_line(std::string& line) {
  const auto newline = buffer_.find('\n');
  if (newline == std::string::npos) return false;
  line = buffer_.substr(0, newline);
  buffer_.erase(0, newline + 1);
  return true;
}

bool ChildProcess::read_more() {
  std::array<char, 1 << 16> block;  // NOLINT(cppcoreguidelines-pro-type-member-init): read fills it
  const ssize_t count = read(pipe_, block.data(), block.size());
  if (count > 0) buffer_.append(block.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

bool ChildProcess::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process_;
}

Explanation ChildProcess::end(Clock::duration grace) {
  if (process_ < 0) return {Cause::crash, ""};
  // It is waited for last: until then nothing else can have its number.
  const auto wait = [this](Clock::duration limit) {
    const auto deadline = Clock::now() + limit;
    while (!has_ended() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(2));
    return has_ended();
  };
  const bool by_itself = wait(grace);
  kill(-process_, SIGKILL);
  constexpr std::chrono::seconds kLongestTeardown{60};  // a device may have to stop what runs there
  if (!by_itself && !wait(kLongestTeardown)) {
    process_ = -1;
    return {Cause::timeout, "hung, and cannot be killed"};
  }
  int status = 0;
  waitpid(std::exchange(process_, -1), &status, 0);
  return by_itself ? describe_end(status, oom_kills_before_) : Explanation{Cause::timeout, "hung"};
}

}  // namespace ssmbench
