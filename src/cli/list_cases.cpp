#include "cli/list_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
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

std::string_view support_of(const Job& job) {
  return job.skip ? std::string_view(job.skip->reason) : "supported";
}

void append(const PlannedCase& planned, std::string& text) {
  constexpr std::size_t kNameWidth = 18;
  (text += planned.the_case.id()) += '\n';
  for (const auto& job : planned.jobs) {
    const std::string& name = job.implementation->name;
    text.append("  ").append(name).append(kNameWidth - std::min(kNameWidth, name.size()), ' ');
    text.append(" ").append(printable(support_of(job))).append("\n");
  }
}

}  // namespace

void print_cases(const Plan& plan) {
  constexpr std::size_t kBlock = 64;   // cases
  constexpr std::size_t kBlocks = 64;  // which are made to text on all cores, and then printed
  std::array<std::string, kBlocks> texts;
  for (std::size_t first = 0; first < plan.cases.size(); first += kBlocks * kBlock) {
#pragma omp parallel for schedule(static) if (plan.cases.size() > 1000)
    for (std::size_t block = 0; block < kBlocks; ++block) {
      texts[block].clear();
      const std::size_t begin = first + block * kBlock;
      for (std::size_t i = begin; i < std::min(begin + kBlock, plan.cases.size()); ++i)
        append(plan.cases[i], texts[block]);
    }
    for (const auto& text : texts) fmt::print("{}", text);
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
