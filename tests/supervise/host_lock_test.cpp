#include "supervise/host_lock.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/errors.h"
#include "catch.h"
#include "supervise/slot_share.h"

using namespace ssmbench;

namespace {

/// A process that locks what it is told to: 's' shared, 'a' alone, 't' tries to share, 'u' unlocks, 'w' asks whether
/// others want it; of the host's memory 'M' locks alone, 'n' tries that, 'm' tries to share and 'U' unlocks. It
/// answers each with 'y' when that is done, or 'n'.
class Locker {
 public:
  explicit Locker(const std::string& path) {
    std::array<int, 2> commands{}, answers{};
    if (pipe(commands.data()) != 0 || pipe(answers.data()) != 0) throw std::runtime_error("pipe");
    process_ = fork();
    if (process_ == 0) serve(path, commands[0], answers[1]);
    close(commands[0]);
    close(answers[1]);
    commands_ = commands[1];
    answers_ = answers[0];
  }
  ~Locker() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    close(commands_);
    close(answers_);
  }
  Locker(const Locker&) = delete;
  Locker& operator=(const Locker&) = delete;
  Locker(Locker&&) = delete;
  Locker& operator=(Locker&&) = delete;

  void tell(char command) const { REQUIRE(write(commands_, &command, 1) == 1); }
  bool has_answered(int within_ms) const {
    pollfd what{.fd = answers_, .events = POLLIN, .revents = 0};
    return poll(&what, 1, within_ms) == 1;
  }
  char answer() const {
    char answer = '?';
    if (has_answered(20'000) && read(answers_, &answer, 1) != 1) answer = '!';
    return answer;
  }
  char ask(char command) const {
    tell(command);
    return answer();
  }

 private:
  [[noreturn]] static void serve(const std::string& path, int commands, int answers) {
    HostLock lock(path, HostLock::Of::host);
    HostLock memory(path, HostLock::Of::memory);
    for (char command = 0; read(commands, &command, 1) == 1;) {
      bool done = true;
      if (command == 's') lock.lock(HostLock::Kind::shared);
      if (command == 'a') lock.lock(HostLock::Kind::alone);
      if (command == 't') done = lock.try_lock(HostLock::Kind::shared);
      if (command == 'u') lock.unlock();
      if (command == 'w') done = lock.is_wanted();
      if (command == 'M') memory.lock(HostLock::Kind::alone);
      if (command == 'n') done = memory.try_lock(HostLock::Kind::alone);
      if (command == 'm') done = memory.try_lock(HostLock::Kind::shared);
      if (command == 'U') memory.unlock();
      const char answer = done ? 'y' : 'n';
      if (write(answers, &answer, 1) != 1) break;
    }
    _exit(0);
  }

  pid_t process_ = -1;
  int commands_ = -1, answers_ = -1;
};

}  // namespace

TEST_CASE("a host is shared, or one has it alone, and who waits for that is not passed by newcomers") {
  const HostLockFile file;
  const Locker a(file.path()), b(file.path()), c(file.path()), newcomer(file.path());
  CHECK(a.ask('s') == 'y');
  CHECK(b.ask('s') == 'y');
  CHECK(a.ask('w') == 'n');
  c.tell('a');
  CHECK_FALSE(c.has_answered(50));
  CHECK(a.ask('w') == 'y');         // it may give way
  CHECK(newcomer.ask('t') == 'n');  // though a and b share it
  CHECK(a.ask('u') == 'y');
  CHECK_FALSE(c.has_answered(50));
  CHECK(b.ask('u') == 'y');
  CHECK(c.answer() == 'y');
  CHECK(newcomer.ask('t') == 'n');
  CHECK(c.ask('u') == 'y');
  CHECK(newcomer.ask('t') == 'y');
}

TEST_CASE("the host's memory is locked apart from the host") {
  const HostLockFile file;
  const Locker a(file.path()), b(file.path()), off_memory(file.path());
  CHECK(a.ask('s') == 'y');
  CHECK(a.ask('m') == 'y');
  CHECK(b.ask('s') == 'y');
  CHECK(off_memory.ask('s') == 'y');
  b.tell('M');
  CHECK_FALSE(b.has_answered(50));  // a uses it
  CHECK(a.ask('U') == 'y');
  CHECK(b.answer() == 'y');  // while others share the host
  CHECK(a.ask('m') == 'n');
  CHECK(off_memory.ask('t') == 'y');
  CHECK(b.ask('U') == 'y');
  CHECK(a.ask('m') == 'y');
}

TEST_CASE("who shares a lock may have it alone where nobody else has it, and keeps its share else") {
  const HostLockFile file;
  const Locker a(file.path()), b(file.path()), c(file.path());
  CHECK(a.ask('m') == 'y');
  CHECK(b.ask('m') == 'y');
  CHECK(a.ask('n') == 'n');
  c.tell('M');
  CHECK(b.ask('U') == 'y');
  CHECK_FALSE(c.has_answered(50));  // a shares it still
  CHECK(a.ask('n') == 'n');         // does not pass one that waits
  CHECK(a.ask('U') == 'y');
  CHECK(c.answer() == 'y');
  CHECK(c.ask('U') == 'y');
  CHECK(a.ask('m') == 'y');
  CHECK(a.ask('n') == 'y');
  CHECK(b.ask('m') == 'n');
  CHECK(a.ask('U') == 'y');
  CHECK(b.ask('m') == 'y');
}

TEST_CASE("a worker's share of a host tells whether it got the memory alone") {
  const HostLockFile file;
  SlotShare share({.lock = file.path()}, [](bool) { FAIL("waits"); });
  const auto working = share.work();
  {
    const Locker other(file.path());
    CHECK(other.ask('m') == 'y');
    CHECK(share.try_memory_alone() == nullptr);
    CHECK(other.ask('U') == 'y');
    const auto alone = share.try_memory_alone();
    CHECK(alone != nullptr);
    CHECK(other.ask('m') == 'n');
  }
  const Locker another(file.path());
  CHECK(another.ask('m') == 'y');
}

TEST_CASE("a process that dies leaves its lock to others") {
  const HostLockFile file;
  const Locker other(file.path());
  {
    const Locker dies(file.path());
    CHECK(dies.ask('a') == 'y');
    CHECK(other.ask('t') == 'n');
  }
  CHECK(other.ask('t') == 'y');
}

TEST_CASE("a host lock whose owner has gone is an error") {
  std::string path;
  {
    const HostLockFile file;
    path = file.path();
  }
  CHECK_THROWS_AS(HostLock(path, HostLock::Of::host), DeviceError);
}
