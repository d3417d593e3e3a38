#include "cli/list_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "base/printable.h"

namespace ssmbench {

std::vector<DeviceInfo> possible_devices() {
  std::vector<DeviceInfo> devices;
  for (const auto& implementation : implementations())
    if (std::ranges::find(devices, implementation.device, &DeviceInfo::kind) == devices.end())
      devices.push_back({.kind = implementation.device, .name = "", .details = {}});
  return devices;
}

namespace {

std::string support_of(const Job& job) {
  return job.skip ? job.skip->reason : "supported";
}

std::string text_of(const PlannedCase& planned) {
  constexpr std::size_t kNameWidth = 18;
  std::string text = planned.the_case.id() + '\n';
  for (const auto& job : planned.jobs) {
    const std::string& name = job.implementation->name;
    text.append("  ").append(name).append(kNameWidth - std::min(kNameWidth, name.size()), ' ');
    text.append(" ").append(printable(support_of(job))).append("\n");
  }
  return text;
}

}  // namespace

void print_cases(const Plan& plan) {
  constexpr std::size_t kBlock = 4096;  // cases, which are made to text on all cores
  std::vector<std::string> texts(kBlock);
  for (std::size_t first = 0; first < plan.cases.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, plan.cases.size() - first);
#pragma omp parallel for schedule(static) if (count > 1000)
    for (std::size_t i = 0; i < count; ++i) texts[i] = text_of(plan.cases[first + i]);
    for (std::size_t i = 0; i < count; ++i) fmt::print("{}", texts[i]);
  }
}

void print_cases_as_json(const std::function<void(const std::function<void(const Plan&)>&)>& for_each) {
  fmt::print("[");
  const char* before = "\n";
  for_each([&](const Plan& plan) {
    for (const auto& planned : plan.cases) {
      nlohmann::ordered_json implementations = nlohmann::ordered_json::object();
      for (const auto& job : planned.jobs) implementations[job.implementation->name] = support_of(job);
      fmt::print("{}{}", before,
                 json_text(nlohmann::ordered_json{{"id", planned.the_case.id()},
                                                  {"file", planned.the_case.source.file},
                                                  {"pointer", planned.the_case.source.pointer},
                                                  {"implementations", implementations}}));
      before = ",\n";
    }
  });
  fmt::print("\n]\n");
}

}  // namespace ssmbench
