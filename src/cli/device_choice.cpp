#include "cli/device_choice.h"

#include <fmt/format.h>

#include <charconv>

#include "base/errors.h"

namespace ssmbench {
namespace {

int cuda_index(const std::string& choice) {
  if (choice == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  int index = -1;
  if (choice.starts_with(kPrefix)) {
    const char* end = choice.data() + choice.size();
    const auto [stop, error] = std::from_chars(choice.data() + kPrefix.size(), end, index);
    if (error != std::errc() || stop != end) index = -1;
  }
  if (index < 0)
    throw UsageError(
        fmt::format("--device {}: expected auto, cpu, cpu*RANKS, cuda, cuda*RANKS, cuda:N or all", choice));
  return index;
}

}  // namespace

std::vector<DeviceInfo> choose_devices(const std::string& choice, std::string& note) {
  auto devices = list_devices();  // the CPU comes first
  if (choice == "all") return devices;
  if (choice == "cpu") return {devices.front()};
  if (choice == "auto") {
    if (devices.size() > 1) {
      note = fmt::format("device: {} (the first CUDA device)", devices[1].name);
      return {devices[1]};
    }
    note = fmt::format("device: CPU, {} threads ({})", devices[0].details.at("threads"), no_cuda_reason());
    return {devices[0]};
  }
  const auto index = static_cast<std::size_t>(cuda_index(choice));
  if (devices.size() == 1)
    throw DeviceError(fmt::format("--device {}: no CUDA device: {}", choice, no_cuda_reason()));
  if (index + 1 >= devices.size())
    throw DeviceError(
        fmt::format("--device {}: this machine has {} CUDA device(s)", choice, devices.size() - 1));
  return {devices[index + 1]};
}

}  // namespace ssmbench
