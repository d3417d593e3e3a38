#include "launch/remote_worker.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "launch/letters.h"

namespace ssmbench {
namespace {

std::string letter(ToRelay kind, const std::string& text = "") {
  return static_cast<char>(kind) + text;
}

}  // namespace

Relays::~Relays() {
  for (int rank = 1; rank < ranks_.size(); ++rank) ranks_.send(rank, letter(ToRelay::dismiss));
}

std::unique_ptr<WorkerHandle> Relays::start(int rank) {
  return std::make_unique<RemoteWorker>(*this, rank);
}

void Relays::look() {
  while (const auto came = ranks_.receive())
    if (const auto worker = workers_.find(came->from); worker != workers_.end())
      worker->second->take(came->message);
}

RemoteWorker::RemoteWorker(Relays& relays, int rank) : relays_(relays), rank_(rank) {
  relays_.workers_[rank] = this;
  relays_.ranks_.send(rank_, letter(ToRelay::start));
}

RemoteWorker::~RemoteWorker() {
  if (!ending_) relays_.ranks_.send(rank_, letter(ToRelay::end, "0"));
  relays_.workers_.erase(rank_);
}

void RemoteWorker::order(const std::string& bytes) {
  relays_.ranks_.send(rank_, letter(ToRelay::order, bytes));
}

void RemoteWorker::no_more_orders() {
  relays_.ranks_.send(rank_, letter(ToRelay::no_more_orders));
}

WorkerHandle::Event RemoteWorker::next_line(std::string& line) {
  if (lines_.empty()) return is_closed_ ? Event::closed : Event::nothing;
  line = std::move(lines_.front());
  lines_.pop_front();
  return Event::line;
}

void RemoteWorker::end(Clock::duration grace) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(grace).count();
  relays_.ranks_.send(rank_, letter(ToRelay::end, std::to_string(ms)));
}

void RemoteWorker::take(const std::string& message) {
  std::istringstream rest(message.substr(1));
  switch (static_cast<ToLeader>(message.front())) {
    case ToLeader::lines:
      for (std::string line; std::getline(rest, line);) lines_.push_back(line);
      return;
    case ToLeader::closed:
      is_closed_ = true;
      return;
    case ToLeader::ended: {
      int is_gone = 0;
      std::string cause, reason;
      rest >> is_gone >> cause;
      rest.get();  // the blank
      std::getline(rest, reason);
      ending_ = Ending{.how = {cause_named(cause).value_or(Cause::crash), reason}, .is_gone = is_gone != 0};
    }
  }
}

}  // namespace ssmbench
