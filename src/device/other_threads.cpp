#include "device/other_threads.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace ssmbench {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenLooks{2};
constexpr double kPatienceSeconds = 0.5;

/// The clock ticks that a thread has computed for, where it runs or waits for a CPU. By its line in /proc: "123
/// (name) R …", where the name may hold anything.
std::optional<unsigned long> ticks_if_running(const fs::path& task) {
  std::ifstream file(task / "stat");
  std::string line;
  std::getline(file, line);
  const auto end = line.rfind(") ");
  if (end == std::string::npos || line[end + 2] != 'R') return {};
  std::istringstream fields(line.substr(end + 3));
  std::string skipped;
  for (int field = 0; field < 10; ++field) fields >> skipped;
  unsigned long user = 0;
  unsigned long system = 0;
  fields >> user >> system;
  return user + system;
}

bool is(const char* variable, std::initializer_list<const char*> values) {
  const char* value = std::getenv(variable);
  return value != nullptr &&
         std::ranges::any_of(values, [&](const char* each) { return strcasecmp(value, each) == 0; });
}

bool threads_spin_for_ever() {
  return is("OMP_WAIT_POLICY", {"active"}) || is("GOMP_SPINCOUNT", {"infinite", "infinity"}) ||
         is("KMP_BLOCKTIME", {"infinite", "infinity"});
}

}  // namespace

// By what each thread computes: on a busy machine it may take long until one that only spins for a moment has had
// its moment.
bool wait_for_other_threads() {
  if (threads_spin_for_ever()) return true;
  const std::string own = std::to_string(gettid());
  const auto patience =
      static_cast<unsigned long>(kPatienceSeconds * static_cast<double>(sysconf(_SC_CLK_TCK)));
  std::map<std::string, unsigned long> first_ticks;
  for (bool any = true; any;) {
    any = false;
    std::error_code error;  // a thread may end while this looks
    for (const auto& task : fs::directory_iterator("/proc/self/task", error)) {
      const std::string name = task.path().filename().string();
      const auto ticks = name == own ? std::nullopt : ticks_if_running(task.path());
      if (!ticks) continue;
      any = true;
      if (*ticks - first_ticks.try_emplace(name, *ticks).first->second >= patience) return false;
    }
    if (any) std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

}  // namespace ssmbench
