#include "device/other_threads.h"

#include <strings.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace ssmbench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{2};
constexpr std::chrono::milliseconds kPatience{500};

/// By its line in /proc: "123 (name) R …", where the name may hold anything.
bool is_running(const fs::path& task) {
  std::ifstream file(task / "stat");
  std::string line;
  std::getline(file, line);
  const auto end = line.rfind(") ");
  return end != std::string::npos && line[end + 2] == 'R';
}

/// A thread that waits for a CPU runs, too. One may end while this looks.
bool another_runs() {
  const std::string own = std::to_string(gettid());
  std::error_code error;
  for (const auto& task : fs::directory_iterator("/proc/self/task", error))
    if (task.path().filename() != own && is_running(task.path())) return true;
  return false;
}

bool threads_spin_for_ever() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  return policy != nullptr && strcasecmp(policy, "active") == 0;
}

}  // namespace

bool wait_for_other_threads() {
  if (threads_spin_for_ever()) return true;
  const auto start = Clock::now();
  while (another_runs()) {
    if (Clock::now() - start > kPatience) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

}  // namespace ssmbench
