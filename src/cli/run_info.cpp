#include "cli/run_info.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>

#include "model/build_info.h"
#include "model/errors.h"
#include "sweep/plan.h"

namespace ssmbench {
namespace {

namespace fs = std::filesystem;

std::string utc_now(const char* format) {
  return fmt::format(fmt::runtime(fmt::format("{{:{}}}", format)), fmt::gmtime(std::time(nullptr)));
}

}  // namespace

std::string iso_now() {
  return utc_now("%FT%TZ");
}

RunInfo run_info(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  const BuildInfo& build = build_info();
  RunInfo info{.argv = options.argv,
               .build = {{"version", std::string(build.version)},
                         {"git_revision", std::string(build.git_revision)},
                         {"compiler", std::string(build.compiler)},
                         {"build_type", std::string(build.build_type)},
                         {"cuda", std::string(build.cuda)},
                         {"cuda_architectures", std::string(build.cuda_architectures)}},
               .devices = {},
               .started = iso_now()};
  auto with_cpu = devices;
  if (devices.front().kind != DeviceKind::cpu) with_cpu.insert(with_cpu.begin(), list_devices().front());
  for (const auto& device : with_cpu) {
    auto& fields = info.devices[device_id(device)] = device.details;
    fields["name"] = device.name;
    fields["memory_bytes"] = std::to_string(device.total_bytes);
  }
  return info;
}

std::string default_results_file(const RunOptions& options, const std::vector<DeviceInfo>& devices) {
  std::error_code error;
  if (fs::exists(options.out_directory, error) && !fs::is_directory(options.out_directory, error))
    throw UsageError(fmt::format("--out {}: is not a directory", options.out_directory));
  fs::create_directories(options.out_directory, error);
  if (error)
    throw UsageError(fmt::format("--out {}: cannot be made: {}", options.out_directory, error.message()));
  std::string device = device_id(devices.back());
  std::erase(device, ':');
  return (fs::path(options.out_directory) / fmt::format("{}-{}-{}.jsonl",
                                                        options.configs.front().stem().string(), device,
                                                        utc_now("%Y%m%dT%H%M%SZ")))
      .string();
}

}  // namespace ssmbench
