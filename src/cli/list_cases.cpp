#include "cli/list_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace ssmbench {

std::vector<DeviceInfo> possible_devices() {
  std::vector<DeviceInfo> devices;
  for (const auto& implementation : implementations())
    if (std::ranges::find(devices, implementation.device, &DeviceInfo::kind) == devices.end())
      devices.push_back({.kind = implementation.device, .name = "", .details = {}});
  return devices;
}

void print_cases(const Plan& plan, bool json) {
  auto all = nlohmann::ordered_json::array();
  for (const auto& planned : plan.cases) {
    nlohmann::ordered_json implementations = nlohmann::ordered_json::object();
    for (const auto& job : planned.jobs)
      implementations[job.implementation->name] = job.skip ? job.skip->reason : "supported";
    all.push_back({{"id", planned.the_case.id()},
                   {"file", planned.the_case.source.file},
                   {"pointer", planned.the_case.source.pointer},
                   {"implementations", implementations}});
  }
  if (json) {
    fmt::print("{}\n", json_text(all, 2));
    return;
  }
  for (const auto& entry : all) {
    fmt::print("{}\n", entry["id"].get<std::string>());
    for (const auto& [name, support] : entry["implementations"].items())
      fmt::print("  {:<18} {}\n", name, support.get<std::string>());
  }
}

}  // namespace ssmbench
