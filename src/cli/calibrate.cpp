#include "cli/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/errors.h"
#include "supervise/child_ranks.h"
#include "sweep/plan.h"
#include "team/team_device.h"

namespace ssmbench {

void measure_devices(CeilingsByKey& ceilings) {
  for (const auto& device : list_devices()) {
    fmt::print(stderr, "measuring {} ({})\n", device_id(device), device.name);
    ceilings[ceilings_key(device)] = measure_ceilings(device);
  }
}

LinkCeilings measure_links_of(const DeviceInfo& team) {
  constexpr std::chrono::seconds kPatience{60};
  if (!team.untimed.empty()) throw DeviceError(team.untimed);
  return measure_links(team, ranks_as_children({"ssmbench", "run", "links", "--worker"}), kPatience);
}

namespace {

std::string links_key(const DeviceInfo& team) {
  return fmt::format("{}, {} ranks, {}", ceilings_key(team), team.ranks, team.details.at("exchange"));
}

/// Of a team whose ranks share out everything evenly.
Ceilings of_team(const Ceilings& of_one, int ranks, const Ceilings& links) {
  Ceilings all;
  for (const auto& field : kCeilingFields) all.*field.member = ranks * of_one.*field.member;
  all.link_bytes = links.link_bytes;
  all.link_seconds = links.link_seconds;
  return all;
}

}  // namespace

std::map<std::string, Ceilings> known_ceilings(const std::vector<DeviceInfo>& devices, Progress& progress) {
  std::string warning;
  CeilingsByKey measured = read_ceilings(ceilings_file(), warning);
  if (!warning.empty()) progress.say("warning: " + warning);
  std::map<std::string, Ceilings> known;
  bool is_new = false;
  const auto measure = [&](const std::string& key, const std::string& what, const DeviceInfo& device,
                           const auto& measure_it) {
    if (measured.contains(key)) return;
    progress.say(fmt::format("measuring {} once, for about a second", what));
    measured[key] = measure_it();
    leave_device(device);  // what computes from here on are other processes
    is_new = true;
  };
  for (const auto& device : devices) {
    const bool is_team_of_gpus = device.kind == DeviceKind::cuda && device.ranks > 1;
    if (is_team_of_gpus && !device.untimed.empty()) continue;
    const std::string key = ceilings_key(device);  // a team's is that of its first GPU
    const std::string of_one = is_team_of_gpus ? fmt::format("cuda:{}", device.index) : device_id(device);
    measure(key, "the ceilings of " + of_one, device, [&] { return measure_ceilings(device); });
    known[device_id(device)] = measured.at(key);
    if (!is_team_of_gpus) continue;
    measure(links_key(device), "the links of " + device_id(device), device, [&] {
      const LinkCeilings links = measure_links_of(device);
      return Ceilings{.link_bytes = std::max(links.gather_bytes, links.all_to_all_bytes),
                      .link_seconds = links.latency_ms / 1000};
    });
    known[device_id(device)] = of_team(measured.at(key), device.ranks, measured.at(links_key(device)));
  }
  try {
    if (is_new) write_ceilings(ceilings_file(), measured);
  } catch (const OutputError& error) {  // then they are measured again the next time
    progress.say(fmt::format("warning: {}", error.what()));
  }
  return known;
}

decltype(RunnerOptions::measure_again) measure_again() {
  constexpr int kMostTimes = 3;
  return [largest = CeilingsByKey(), times = 0](const DeviceInfo& device, const Ceilings& known) mutable {
    if (device.ranks > 1) return known;  // those of its devices are measured where these run alone
    const std::string key = ceilings_key(device);
    Ceilings& found = largest[key] = larger(known, largest[key]);
    if (++times > kMostTimes) return found;
    found = larger(found, measure_ceilings(device));
    try {
      std::string ignored;
      CeilingsByKey all = read_ceilings(ceilings_file(), ignored);
      all[key] = larger(all[key], found);
      write_ceilings(ceilings_file(), all);
    } catch (const OutputError&) {  // the run has said so when it measured them first
    }
    return found;
  };
}

}  // namespace ssmbench
