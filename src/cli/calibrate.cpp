#include "cli/calibrate.h"

#include <fmt/format.h>

#include "sweep/plan.h"

namespace ssmbench {

void measure_devices(CeilingsByKey& ceilings) {
  for (const auto& device : list_devices()) {
    fmt::print(stderr, "measuring {} ({})\n", device_id(device), device.name);
    ceilings[ceilings_key(device)] = measure_ceilings(device);
  }
}

std::map<std::string, Ceilings> known_ceilings(const std::vector<DeviceInfo>& devices, Progress& progress) {
  std::string warning;
  const CeilingsByKey measured = read_ceilings(ceilings_file(), warning);
  if (!warning.empty()) progress.say("warning: " + warning);
  std::map<std::string, Ceilings> known;
  std::string missing;
  for (const auto& device : devices) {
    if (const auto found = measured.find(ceilings_key(device)); found != measured.end())
      known[device_id(device)] = found->second;
    else
      missing += (missing.empty() ? "" : ", ") + device_id(device);
  }
  if (!missing.empty())
    progress.say(fmt::format(
        "no roofline for {}: run `ssmbench list devices --calibrate` once to measure its ceilings", missing));
  return known;
}

}  // namespace ssmbench
