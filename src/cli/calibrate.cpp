#include "cli/calibrate.h"

#include <fmt/format.h>

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
  fmt::print(stderr, "measuring the links of {}\n", device_id(team));
  return measure_links(team, ranks_as_children({"ssmbench", "run", "links", "--worker"}), kPatience);
}

std::map<std::string, Ceilings> known_ceilings(const std::vector<DeviceInfo>& devices, Progress& progress) {
  std::string warning;
  CeilingsByKey measured = read_ceilings(ceilings_file(), warning);
  if (!warning.empty()) progress.say("warning: " + warning);
  std::map<std::string, Ceilings> known;
  bool is_new = false;
  for (const auto& device : devices) {
    if (device.kind == DeviceKind::cuda && device.ranks > 1) continue;  // those of one GPU say nothing of it
    const std::string key = ceilings_key(device);
    if (!measured.contains(key)) {
      progress.say(fmt::format("measuring the ceilings of {} once, for about a second", device_id(device)));
      measured[key] = measure_ceilings(device);
      leave_device(device);  // what computes from here on are other processes
      is_new = true;
    }
    known[device_id(device)] = measured.at(key);
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
