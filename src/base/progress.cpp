#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/printable.h"

namespace ssmbench {
namespace {

std::string bar(std::size_t done, std::size_t total) {
  constexpr std::size_t kWidth = 20;
  const std::size_t full = std::min(done, total) * kWidth / total;
  return fmt::format("[{:#>{}}{:.>{}}]", "", full, "", kWidth - full);
}

/// A line that is longer than the terminal is wide could not be taken off again.
int columns() {
  constexpr int kUsual = 80;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kUsual;
}

}  // namespace

std::string time_left_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (seconds < kMinute) return fmt::format("about {:.0f} s left", std::max(1.0, std::ceil(seconds / 5)) * 5);
  const auto minutes = static_cast<std::int64_t>(std::round(seconds / kMinute));
  if (seconds < kHour) return fmt::format("about {} min left", minutes);
  return fmt::format("about {} h {} min left", minutes / 60, minutes % 60);
}

bool is_drawable(std::FILE* stream) {
  const char* terminal = std::getenv("TERM");
  return std::getenv("NO_COLOR") == nullptr && terminal != nullptr && std::string_view(terminal) != "dumb" &&
         isatty(fileno(stream)) == 1;
}

Progress::Progress(bool quiet, bool verbose)
    : quiet_(quiet),
      verbose_(verbose),
      terminal_(is_drawable(stderr)),
      last_(std::chrono::steady_clock::now()) {}

void Progress::update(std::size_t done, const std::string& what, std::optional<double> seconds_left) {
  if (quiet_) return;
  std::string line = total_ > 0 ? fmt::format("{}/{}", done, total_) : std::to_string(done);
  if (seconds_left) line += ", " + time_left_text(*seconds_left);
  line += ": " + printable(what);
  if (terminal_) {
    if (total_ > 0) line = fmt::format("{} {}", bar(done, total_), line);
    fmt::print(stderr, "\r\x1b[2K{:.{}}", line, columns() - 1);
    std::fflush(stderr);
    shown_ = true;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::seconds(10)) return;
  last_ = now;
  fmt::print(stderr, "{}\n", line);
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[2K");
  std::fflush(stderr);
  shown_ = false;
}

void Progress::say(const std::string& message) {
  if (quiet_) return;
  clear();
  fmt::print(stderr, "{}\n", message);
}

}  // namespace ssmbench
