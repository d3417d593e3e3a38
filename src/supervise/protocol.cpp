#include "supervise/protocol.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "base/errors.h"
#include "base/fnv1a.h"
#include "bench/ceilings_cache.h"

namespace ssmbench {
namespace {

using Json = nlohmann::json;
using Kind = Message::Kind;

// In the order of the enumerators.
constexpr std::array<std::string_view, 6> kKinds{"starting", "resuming", "finished",
                                                 "leaving",  "failed",   "done"};
constexpr std::array<std::string_view, 3> kStages{"inputs", "reference", "run"};

template <class Enum, std::size_t count>
Enum named(const std::array<std::string_view, count>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw ProtocolError(fmt::format("unknown word '{:.40}'", name));
  return static_cast<Enum>(found - names.begin());
}

template <std::size_t count>
std::string_view name_in(const std::array<std::string_view, count>& names, auto enumerator) {
  return names[static_cast<std::size_t>(enumerator)];
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> block{};
  while (true) {
    const ssize_t count = read(descriptor, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(block.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string to_bytes(const WorkerOrders& orders) {
  // Not as text, which is UTF-8: names of folders may hold any bytes.
  std::string bytes;
  Json::to_msgpack(Json{{"supervisor", orders.supervisor},
                        {"plan", orders.plan},
                        {"jobs", orders.jobs},
                        {"dump_folder", orders.dump_folder},
                        {"ceilings", json_of(orders.ceilings)}},
                   bytes);
  return bytes;
}

WorkerOrders read_orders(int descriptor) {
  try {
    const Json json = Json::from_msgpack(read_all(descriptor));
    return {.supervisor = json.at("supervisor").get<int>(),
            .plan = json.at("plan").get<std::string>(),
            .jobs = json.at("jobs").get<JobSet>(),
            .dump_folder = json.at("dump_folder").get<std::string>(),
            .ceilings = ceilings_in(json.at("ceilings"))};
  } catch (const Json::exception&) {
    throw UsageError("--worker is internal to ssmbench");
  }
}

std::string plan_fingerprint(const Plan& plan) {
  std::string text;
  for (const auto& planned : plan.cases)
    for (const auto& job : planned.jobs)
      text += fmt::format("{} {} {} {}\n", planned.the_case.id(), job.implementation->name,
                          device_id(plan.devices[job.device]), job.skip ? job.skip->reason : "");
  return fmt::format("{:016x}", fnv1a(text));
}

std::string dump_part(const std::string& folder, std::size_t job) {
  return fmt::format("{}/{}.h5", folder, job);
}

std::string to_line(const Message& message) {
  const auto kind = name_in(kKinds, message.kind);
  switch (message.kind) {
    case Kind::starting:
      return fmt::format("{} {} {}", kind, message.job, name_in(kStages, message.stage));
    case Kind::resuming:
      return fmt::format("{} {}", kind, message.job);
    case Kind::finished:
      return fmt::format("{} {} {}", kind, message.job, message.text);
    case Kind::failed: {
      std::string one_line = message.text;
      std::ranges::replace(one_line, '\n', ' ');
      return fmt::format("{} {}", kind, one_line);
    }
    default:
      return std::string(kind);
  }
}

void send(const Message& message) {
  const std::string line = to_line(message) + "\n";
  for (std::size_t written = 0; written < line.size();) {
    const ssize_t count = write(kMessagesDescriptor, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(EXIT_FAILURE);
    written += static_cast<std::size_t>(count);
  }
}

Message parse_message(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  Message message{.kind = named<Kind>(kKinds, word)};
  if (message.kind == Kind::starting || message.kind == Kind::resuming || message.kind == Kind::finished)
    if (!(words >> message.job)) throw ProtocolError("a job without a number");
  if (message.kind == Kind::starting) {
    words >> word;
    message.stage = named<Stage>(kStages, word);
  }
  if (message.kind == Kind::finished || message.kind == Kind::failed) {
    words.get();  // the space
    std::getline(words, message.text);
  }
  return message;
}

}  // namespace ssmbench
