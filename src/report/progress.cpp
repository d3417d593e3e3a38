#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace ssmbench {

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

void Progress::update(std::size_t done, const std::string& what) {
  if (quiet_) return;
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[2K[{}/{}] {:.100}", done, total_, what);
    std::fflush(stderr);
    shown_ = true;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::seconds(10)) return;
  last_ = now;
  fmt::print(stderr, "[{}/{}] {}\n", done, total_, what);
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
