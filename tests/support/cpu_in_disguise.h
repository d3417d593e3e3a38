#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"

namespace ssmbench::test {

/// The CPU as a device with memory of its own, whose launches take as long as tests say.
class CpuInDisguise : public Device {
 public:
  DeviceInfo info() const override { return cpu_->info(); }
  bool shares_host_memory() const override { return false; }
  Buffer allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    cpu_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    cpu_->copy_out(host, device, bytes);
  }
  void fill(void* device, unsigned char value, std::size_t bytes) override {
    cpu_->fill(device, value, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override { cpu_->copy(to, from, bytes); }
  std::vector<std::uint64_t> digests(const std::vector<MemorySpan>& spans) override {
    return cpu_->digests(spans);
  }
  void exchange(const std::vector<SlicePair>& pairs) override { cpu_->exchange(pairs); }
  void* stream() override { return nullptr; }
  void use_second_stream(bool /*second*/) override {}
  void synchronize() override {}
  bool wait_until_idle() override { return cpu_->wait_until_idle(); }
  LaunchTime time_launch(const Launch& launch, double /*idle_ms*/) override {
    launch(stream());
    return {.ms = 1};
  }
  bool flush_cache() override { return false; }

 private:
  std::unique_ptr<Device> cpu_ = open_device(DeviceKind::cpu);
};

}  // namespace ssmbench::test
