#include "launch/relay.h"

#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <memory>

#include "base/errors.h"
#include "launch/letters.h"
#include "supervise/child_process.h"

namespace ssmbench {
namespace {

using std::chrono::milliseconds;

/// Between two looks for letters, of which nothing can be waited for without keeping a core busy.
constexpr milliseconds kPollEvery{2};

class Relay {
 public:
  Relay(Ranks& ranks, const std::vector<std::string>& worker_argv) : ranks_(ranks), argv_(worker_argv) {}

  void run() {
    while (true) {
      while (const auto came = ranks_.receive())
        if (!obey(static_cast<ToRelay>(came->message.front()), came->message.substr(1))) return;
      if (worker_ != nullptr) pass_lines();
      if (worker_ != nullptr) pass_ending();
      std::vector<pollfd> descriptors;
      if (worker_ != nullptr && !is_closed_) worker_->watch(descriptors);
      poll(descriptors.data(), descriptors.size(), static_cast<int>(kPollEvery.count()));
    }
  }

 private:
  void say(ToLeader kind, const std::string& text = "") { ranks_.send(0, static_cast<char>(kind) + text); }

  /// False once it is dismissed.
  bool obey(ToRelay command, const std::string& rest) {
    if (command == ToRelay::dismiss) return false;
    if (command == ToRelay::start) start();
    if (worker_ == nullptr) return true;  // it could not be started, which was said
    if (command == ToRelay::order) worker_->order(rest);
    if (command == ToRelay::no_more_orders) worker_->no_more_orders();
    if (command == ToRelay::end) worker_->end(milliseconds(std::stoll(rest)));
    return true;
  }

  void start() {
    is_closed_ = false;
    try {
      worker_ = std::make_unique<ChildProcess>(argv_);
    } catch (const DeviceError& error) {
      say(ToLeader::closed);
      say_ending({.how = {Cause::worker, error.what()}});
    }
  }

  /// All that are there in one letter: there may be many in a second.
  void pass_lines() {
    if (is_closed_) return;
    std::string lines;
    std::string line;
    auto event = worker_->next_line(line);
    for (; event == WorkerHandle::Event::line; event = worker_->next_line(line)) lines += line + "\n";
    if (!lines.empty()) say(ToLeader::lines, lines);
    is_closed_ = event == WorkerHandle::Event::closed;
    if (is_closed_) say(ToLeader::closed);
  }

  void pass_ending() {
    const auto ending = worker_->ended();
    if (!ending) return;
    worker_.reset();
    say_ending(*ending);
  }

  void say_ending(const WorkerHandle::Ending& ending) {
    say(ToLeader::ended,
        fmt::format("{:d} {} {}", ending.is_gone, name_of(ending.how.cause), ending.how.reason));
  }

  Ranks& ranks_;
  const std::vector<std::string>& argv_;
  std::unique_ptr<ChildProcess> worker_;
  bool is_closed_ = false;
};

}  // namespace

void relay(Ranks& ranks, const std::vector<std::string>& worker_argv) {
  Relay(ranks, worker_argv).run();
}

}  // namespace ssmbench
