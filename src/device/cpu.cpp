#include "device/cpu.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "device/other_threads.h"
#include "device/simd_target.h"
#include "device/thread_pinning.h"

namespace ssmbench {
namespace {

/// Value of the first line `key : value` of a /proc file; empty when there is none.
std::string proc_value(const char* file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::size_t available_memory() {
  // "MemAvailable: 123 kB": what can be taken without swapping, page cache counted as free.
  const std::string available = proc_value("/proc/meminfo", "MemAvailable");
  if (!available.empty()) return std::stoull(available) * 1024;
  return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

/// First line of a file; empty when there is none.
std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

class CpuDevice : public Device {
 public:
  DeviceInfo info() const override { return cpu_info(); }
  bool shares_host_memory() const override { return true; }

  Buffer allocate(std::size_t bytes) override {
    auto buffer = std::make_shared<HostBuffer>(bytes);
    return {buffer, buffer->data()};
  }
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void fill(void* device, unsigned char value, std::size_t bytes) override {
    std::memset(device, value, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void exchange(const std::vector<SlicePair>& pairs) override { exchange_slices(pairs); }
  std::vector<std::uint64_t> digests(const std::vector<MemorySpan>& spans) override {
    std::vector<std::uint64_t> all;
    for (const auto& span : spans) all.push_back(digest(span));
    return all;
  }

  void* stream() override { return nullptr; }
  void use_second_stream(bool /*second*/) override {}
  void synchronize() override {}
  bool wait_until_idle() override { return wait_for_other_threads(); }

  LaunchTime time_launch(const Launch& launch, double /*idle_ms*/) override {
    const auto start = std::chrono::steady_clock::now();
    launch(nullptr);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    return {.ms = elapsed.count()};
  }
  bool flush_cache() override { return false; }
  std::shared_ptr<void> pin_threads() override { return ssmbench::pin_threads(); }
};

}  // namespace

DeviceInfo cpu_info() {
  DeviceInfo info;
  info.name = proc_value("/proc/cpuinfo", "model name");
  if (info.name.empty()) info.name = "CPU";
  info.total_bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  info.free_bytes = available_memory();
  info.details["threads"] = std::to_string(omp_get_max_threads());
  info.details["timed_on_cpus"] = pinned_cpus();
  info.details["instruction_set"] = simd_target();
  info.details["cores"] = std::to_string(std::thread::hardware_concurrency());
  return info;
}

std::size_t cpu_cache_bytes() {
  namespace fs = std::filesystem;
  // A cache is listed under each CPU that shares it: "32K", "1024K", or "32M".
  std::set<std::string> seen;
  std::size_t bytes = 0;
  std::error_code error;
  for (const auto& cpu : fs::directory_iterator("/sys/devices/system/cpu", error))
    for (const auto& cache : fs::directory_iterator(cpu.path() / "cache", error)) {
      const std::string size = first_line(cache.path() / "size");
      if (size.empty() || first_line(cache.path() / "type") == "Instruction") continue;
      if (!seen.insert(first_line(cache.path() / "level") + ":" +
                       first_line(cache.path() / "shared_cpu_list"))
               .second)
        continue;
      const std::size_t unit = size.back() == 'M' ? std::size_t{1} << 20 : 1024;
      bytes += std::strtoull(size.c_str(), nullptr, 10) * unit;
    }
  const long third = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes != 0 ? bytes : static_cast<std::size_t>(std::max(third, 0L));
}

std::unique_ptr<Device> open_cpu() {
  return std::make_unique<CpuDevice>();
}

}  // namespace ssmbench
