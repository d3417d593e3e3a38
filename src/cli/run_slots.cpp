#include "cli/run_slots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "base/errors.h"
#include "bench/ceilings_cache.h"
#include "cli/calibrate.h"
#include "cli/device_choice.h"
#include "device/ceilings.h"
#include "device/cpu.h"
#include "device/thread_pinning.h"
#include "supervise/child_process.h"
#include "sweep/plan.h"
#include "team/team_device.h"

namespace ssmbench {
namespace {

/// GPUs whose ceilings differ by more are not called alike.
constexpr double kUnlike = 0.02;

/// Nothing for "all".
std::optional<std::size_t> gpu_count(const std::string& text) {
  if (text == "all") return {};
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count == 0)
    throw UsageError(fmt::format("--gpus {}: expected a number of GPUs, or all", text));
  return count;
}

std::string list_of(const std::vector<DeviceInfo>& devices) {
  std::vector<std::string> ids;
  for (const auto& device : devices) ids.push_back(device_id(device));
  return fmt::format("{}", fmt::join(ids, ", "));
}

std::vector<DeviceInfo> named_gpus(const std::string& choice, const std::vector<DeviceInfo>& gpus) {
  if (choice == "auto" || choice == "cuda" || choice == "all") return gpus;
  std::vector<DeviceInfo> named;
  std::istringstream names(choice);
  for (std::string name; std::getline(names, name, ',');) {
    const auto found = std::ranges::find(gpus, name, device_id);
    if (found == gpus.end())
      throw DeviceError(fmt::format("--device {}: no {} here; there are {}", choice, name, list_of(gpus)));
    if (std::ranges::find(named, found->index, &DeviceInfo::index) != named.end())
      throw UsageError(fmt::format("--device {}: {} is given twice", choice, name));
    named.push_back(*found);
  }
  return named;
}

bool are_alike(const DeviceInfo& a, const DeviceInfo& b) {
  return a.name == b.name && a.total_bytes == b.total_bytes && a.details == b.details;
}

}  // namespace

SlotPlace local_place(const std::vector<std::string>& argv) {
  return {.supervisor = getpid(), .place = {}, .start = [argv = with_option(argv, "--worker")] {
            return std::make_unique<ChildProcess>(argv);
          }};
}

std::vector<std::string> with_option(std::vector<std::string> argv, const char* option) {
  argv.insert(argv.begin() + 2, option);  // after "run", because what comes last may come after a "--"
  return argv;
}

std::vector<DeviceInfo> choose_gpus(const std::string& count, const std::string& device,
                                    const std::vector<DeviceInfo>& devices, const std::string& reason) {
  const auto wanted = gpu_count(count);
  if (device == "cpu") throw UsageError("--gpus is for runs on GPUs, and --device cpu has none");
  std::vector<DeviceInfo> gpus = devices;
  std::erase_if(gpus, [](const DeviceInfo& each) { return each.kind != DeviceKind::cuda; });
  if (gpus.empty()) throw DeviceError(fmt::format("--gpus {}: no CUDA device: {}", count, reason));
  gpus = named_gpus(device, gpus);
  if (wanted && *wanted > gpus.size())
    throw DeviceError(
        fmt::format("--gpus {}: there are {} CUDA device(s) to choose from", count, gpus.size()));
  if (wanted) gpus.resize(*wanted);
  const bool unlike =
      std::ranges::any_of(gpus, [&](const DeviceInfo& each) { return !are_alike(each, gpus.front()); });
  if (!unlike) return gpus;
  std::string list;
  for (const auto& each : gpus)
    list += fmt::format("{}{} {} ({:.1f} GiB)", list.empty() ? "" : ", ", device_id(each), each.name,
                        static_cast<double>(each.total_bytes) / (1 << 30));
  throw UsageError(fmt::format(
      "--gpus {}: these GPUs are not alike: {}; name some that are, such as --device cuda:0,cuda:1", count,
      list));
}

namespace {

SlotDevices devices_of_slots(const RunOptions& options, std::string& note) {
  if (options.cpus) {
    if (options.device != "auto" && options.device != "cpu")
      throw UsageError(fmt::format("--cpus is for runs on the CPU, not on --device {}", options.device));
    return {choose_devices("cpu", note), {}};
  }
  if (options.gpus.empty()) return {choose_devices(options.device, note), {}};
  const auto devices = list_devices();
  SlotDevices chosen{.of_plan = {},
                     .gpus = choose_gpus(options.gpus, options.device, devices,
                                         devices.size() == 1 ? no_cuda_reason() : "")};
  if (options.device == "all") chosen.of_plan.push_back(devices.front());
  chosen.of_plan.push_back(chosen.gpus.front());
  // What fits one fits them all.
  for (const auto& gpu : chosen.gpus)
    chosen.of_plan.back().free_bytes = std::min(chosen.of_plan.back().free_bytes, gpu.free_bytes);
  return chosen;
}

/// What a plan has for teams of these sizes, with 1 for the devices by themselves.
std::vector<DeviceInfo> with_teams(const std::vector<DeviceInfo>& devices, const std::vector<int>& sizes) {
  std::vector<DeviceInfo> all;
  for (const int size : sizes)
    for (const auto& device : devices) all.push_back(size == 1 ? device : team_info(device, size));
  return all;
}

}  // namespace

SlotDevices choose_slot_devices(const RunOptions& options, std::string& note) {
  SlotDevices chosen = devices_of_slots(options, note);
  chosen.of_plan = with_teams(chosen.of_plan, options.team_sizes);
  return chosen;
}

void warn_of_unlike_ceilings(const std::vector<DeviceInfo>& gpus, Progress& progress) {
  if (gpus.size() < 2) return;
  const auto known = known_ceilings(gpus, progress);
  const Ceilings& first = known.at(device_id(gpus.front()));
  for (const auto& gpu : gpus)
    for (const auto& field : kCeilingFields) {
      const double here = known.at(device_id(gpu)).*field.member;
      const double there = first.*field.member;
      if (here < (1 - kUnlike) * there || there < (1 - kUnlike) * here)
        progress.say(fmt::format("warning: {} is not as fast as {}: {} {:.4g} and {:.4g}", device_id(gpu),
                                 device_id(gpus.front()), field.name, here, there));
    }
}

RunSlots local_slots(const RunOptions& options, const std::vector<DeviceInfo>& gpus) {
  if (!options.has_slots()) return {.places = {local_place(options.argv)}};
  const auto cpus = allowed_cpus();
  const std::size_t count = options.cpus ? static_cast<std::size_t>(*options.cpus) : gpus.size();
  if (!cpus.empty() && !gpus.empty() && count > cpus.size())
    throw UsageError(fmt::format("--gpus {}: {} slots need a core each, and this process may use {}",
                                 options.gpus, count, cpus.size()));
  RunSlots slots{.places = {}, .host_bytes = {{"", cpu_info().free_bytes}}};
  slots.lock = std::make_shared<HostLockFile>();
  for (std::size_t i = 0; i < count; ++i) {
    SlotPlace place = local_place(options.argv);
    place.name = gpus.empty() ? fmt::format("cpu:{}", i) : device_id(gpus[i]);
    place.place = {.lock = slots.lock->path(), .cpus = share_of(cpus, i, count), .all_cpus = cpus};
    if (!gpus.empty()) place.place.gpu = gpus[i].index;
    slots.places.push_back(std::move(place));
  }
  return slots;
}

}  // namespace ssmbench
