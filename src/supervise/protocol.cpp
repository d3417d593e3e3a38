#include "supervise/protocol.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "base/errors.h"
#include "base/fnv1a.h"
#include "bench/ceilings_cache.h"

namespace ssmbench {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Kind = Message::Kind;

// In the order of the enumerators.
constexpr std::array<std::string_view, 7> kKinds{"starting", "resuming", "finished", "waiting",
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

/// An order begins with its length.
using Length = std::uint32_t;

std::string frame(const OrderedJson& order) {
  // Not as text, which is UTF-8: names of folders may hold any bytes.
  std::string bytes(sizeof(Length), '\0');
  OrderedJson::to_msgpack(order, bytes);
  const auto length = static_cast<Length>(bytes.size() - sizeof(Length));
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes;
}

/// False where the stream ends before that.
bool read_exactly(int descriptor, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t count = read(descriptor, to, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    to += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

/// Nothing at the end of the stream.
std::optional<OrderedJson> read_frame(int descriptor) {
  Length length = 0;
  if (!read_exactly(descriptor, reinterpret_cast<char*>(&length), sizeof(length))) return {};
  std::string bytes(length, '\0');
  if (!read_exactly(descriptor, bytes.data(), bytes.size())) return {};
  return OrderedJson::from_msgpack(bytes);
}

}  // namespace

std::string to_bytes(const WorkerOrders& orders) {
  const WorkerPlace& place = orders.place;
  return frame({{"supervisor", orders.supervisor},
                {"plan", orders.plan},
                {"dump_folder", orders.dump_folder},
                {"ceilings", json_of(orders.ceilings)},
                {"lock", place.lock},
                {"gpu", place.gpu.value_or(-1)},
                {"cpus", place.cpus},
                {"all_cpus", place.all_cpus},
                {"team", orders.team},
                {"rank", orders.rank},
                {"path", static_cast<int>(orders.path)}});
}

std::string to_bytes(const JobSet& jobs) {
  // By the first of each run of them and the one after its last.
  std::vector<std::size_t> bounds;
  for (std::size_t job = 0; job <= jobs.size(); ++job) {
    const bool is_in = job < jobs.size() && jobs[job];
    if (is_in != (bounds.size() % 2 == 1)) bounds.push_back(job);
  }
  return frame({{"jobs", bounds}});
}

WorkerOrders read_orders(int descriptor) {
  try {
    const auto json = read_frame(descriptor);
    if (!json) throw UsageError("--worker is internal to ssmbench");
    const int gpu = json->at("gpu").get<int>();
    return {.supervisor = json->at("supervisor").get<int>(),
            .plan = json->at("plan").get<std::string>(),
            .dump_folder = json->at("dump_folder").get<std::string>(),
            .ceilings = ceilings_in(json->at("ceilings")),
            .place = {.lock = json->at("lock").get<std::string>(),
                      .gpu = gpu < 0 ? std::nullopt : std::optional(gpu),
                      .cpus = json->at("cpus").get<std::vector<int>>(),
                      .all_cpus = json->at("all_cpus").get<std::vector<int>>()},
            .team = json->at("team").get<std::string>(),
            .rank = json->at("rank").get<int>(),
            .path = static_cast<DataPath>(json->at("path").get<int>())};
  } catch (const OrderedJson::exception&) {
    throw UsageError("--worker is internal to ssmbench");
  }
}

std::optional<JobSet> next_jobs(int descriptor, std::size_t job_count) {
  const auto json = read_frame(descriptor);
  if (!json) return {};
  JobSet jobs(job_count, false);
  const auto bounds = json->at("jobs").get<std::vector<std::size_t>>();
  for (std::size_t i = 0; i + 1 < bounds.size(); i += 2)
    for (std::size_t job = bounds[i]; job < std::min(bounds[i + 1], job_count); ++job) jobs[job] = true;
  return jobs;
}

std::string to_bytes(const RankOrder& order) {
  OrderedJson axes = OrderedJson::object();
  for (const auto& [name, value] : order.axes)
    std::visit([&, &axis = name](const auto& held) { axes[axis] = held; }, value);
  return frame({{"kind", static_cast<int>(order.kind)},
                {"run", order.run},
                {"implementation", order.implementation},
                {"op", order.op},
                {"axes", axes},
                {"garbage", order.conditions.garbage},
                {"flush_cache", order.conditions.flush_cache},
                {"idle_ms", order.conditions.idle_ms}});
}

std::optional<RankOrder> next_rank_order(int descriptor) {
  const auto json = read_frame(descriptor);
  if (!json) return {};
  RankOrder order{.kind = static_cast<RankOrder::Kind>(json->at("kind").get<int>()),
                  .run = json->at("run").get<std::size_t>(),
                  .implementation = json->at("implementation").get<std::string>(),
                  .op = json->at("op").get<std::string>(),
                  .conditions = {.garbage = json->at("garbage").get<unsigned char>(),
                                 .flush_cache = json->at("flush_cache").get<bool>(),
                                 .idle_ms = json->at("idle_ms").get<double>()}};
  for (const auto& [name, value] : json->at("axes").items()) {
    if (value.is_boolean())
      order.axes[name] = value.get<bool>();
    else if (value.is_string())
      order.axes[name] = value.get<std::string>();
    else
      order.axes[name] = value.get<std::int64_t>();
  }
  return order;
}

std::string text_of(const Explanation& why) {
  return fmt::format("{} {}", name_of(why.cause), why.reason);
}

Explanation explanation_in(const std::string& text) {
  const auto blank = text.find(' ');
  return {cause_named(text.substr(0, blank)).value_or(Cause::exception),
          blank == std::string::npos ? text : text.substr(blank + 1)};
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
