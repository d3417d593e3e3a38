#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

namespace ssmbench {

/// One line on stderr that says how far the work is, what is being worked on, and how long it will take. On a
/// terminal it has a bar and is rewritten in place; elsewhere a line is printed at most every ten seconds, so
/// that logs show life and stay short. Silent when quiet.
class Progress {
 public:
  Progress(bool quiet, bool verbose);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  void total(std::size_t jobs) { total_ = jobs; }
  /// `done` jobs are finished; `what` is happening now.
  void update(std::size_t done, const std::string& what, std::optional<double> seconds_left = {});
  /// Takes the line off the terminal so that other output can be printed.
  void clear();
  /// A message that stays, like a warning or with -v the command that is about to run.
  void say(const std::string& message);
  bool verbose() const { return verbose_; }

 private:
  bool quiet_;
  bool verbose_;
  bool terminal_;
  bool shown_ = false;
  std::size_t total_ = 0;  ///< 0: not known
  std::chrono::steady_clock::time_point last_;
};

/// "about 40 s left", "about 3 min left", "about 2 h 10 min left"; never finer than it can be known.
std::string time_left_text(double seconds);

/// Whether a stream is a terminal that may be drawn on: not with NO_COLOR or TERM=dumb.
bool is_drawable(std::FILE* stream);

}  // namespace ssmbench
