#include "cli/run_info.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/errors.h"
#include "base/fnv1a.h"
#include "bench/ceilings_cache.h"
#include "model/build_info.h"
#include "plugin/plugin.h"
#include "sweep/plan.h"

namespace ssmbench {
namespace {

namespace fs = std::filesystem;

/// For names: in milliseconds, because a loop around a short run starts several in a second.
std::string basic_iso_now() {
  using Clock = std::chrono::system_clock;
  const auto now = std::chrono::floor<std::chrono::milliseconds>(Clock::now());
  return fmt::format("{:%Y%m%dT%H%M%S}.{:03}Z", fmt::gmtime(Clock::to_time_t(now)),
                     now.time_since_epoch().count() % 1000);
}

constexpr std::string_view kResultsSuffix = ".jsonl";

/// What the names of results files start with, before the time: "mamba-370m-cuda0-".
std::string results_prefix(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  std::string device = device_id(devices.back());
  std::erase(device, ':');
  std::ranges::replace(device, '*', 'x');  // no wildcard of a shell
  return fmt::format("{}-{}-", options.configs.front().stem().string(), device);
}

}  // namespace

std::string iso_now() {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

RunInfo run_info(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  const BuildInfo& build = build_info();
  RunInfo info{.argv = options.argv,
               .build = {{"version", std::string(build.version)},
                         {"git_revision", std::string(build.git_revision)},
                         {"compiler", std::string(build.compiler)},
                         {"build_type", std::string(build.build_type)},
                         {"cuda", std::string(build.cuda)},
                         {"cuda_architectures", std::string(build.cuda_architectures)},
                         {"build_id", executable_build_id()}},
               .devices = {},
               .started = iso_now()};
  for (const auto& plugin : options.plugins)
    info.build["plugin " + plugin] = fmt::format("{:016x}", fnv1a(content_of(parse_plugin(plugin).file)));
  auto with_cpu = devices;
  if (devices.front().kind != DeviceKind::cpu) with_cpu.insert(with_cpu.begin(), list_devices().front());
  for (const auto& device : with_cpu) {
    auto& fields = info.devices[device_id(device)] = device.details;
    fields["name"] = device.name;
    fields["memory_bytes"] = std::to_string(device.total_bytes);
    if (const auto known = options.runner.ceilings.find(device_id(device));
        known != options.runner.ceilings.end())
      for (const auto& field : kCeilingFields)
        fields[fmt::format("ceiling_{}", field.name)] = fmt::format("{:.4g}", known->second.*field.member);
  }
  return info;
}

std::string default_results_file(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  std::error_code error;
  if (fs::exists(options.out_directory, error) && !fs::is_directory(options.out_directory, error))
    throw UsageError(fmt::format("--out {}: is not a directory", options.out_directory));
  fs::create_directories(options.out_directory, error);
  if (error)
    throw UsageError(fmt::format("--out {}: cannot be created: {}", options.out_directory, error.message()));
  return (fs::path(options.out_directory) /
          (results_prefix(options, devices) + basic_iso_now().append(kResultsSuffix)))
      .string();
}

std::optional<std::string> newest_results_file(const RunOptions& options,
                                               const std::vector<DeviceInfo>& devices) {
  const std::string prefix = results_prefix(options, devices);
  constexpr std::size_t kTimeLength = 20;  // 20261120T101500.123Z
  std::string newest;
  std::error_code error;  // no such directory: no such file
  for (const auto& entry : fs::directory_iterator(options.out_directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(kResultsSuffix) &&
        name.size() == prefix.size() + kTimeLength + kResultsSuffix.size())
      newest = std::max(newest, name);
  }
  if (newest.empty()) return {};
  return (fs::path(options.out_directory) / newest).string();
}

}  // namespace ssmbench
