#include "bench/timer.h"

#include <limits>

#include "catch.h"
#include "model/errors.h"

using namespace ssmbench;

namespace {

/// A device whose every launch takes as long as the test says, without waiting.
class FakeDevice : public Device {
 public:
  explicit FakeDevice(bool has_cache) : has_cache_(has_cache) {}
  DeviceInfo info() const override { return {}; }
  bool shares_host_memory() const override { return true; }
  Buffer allocate(std::size_t) override { return nullptr; }
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void*, const void*, std::size_t) override {}
  void fill(void*, unsigned char, std::size_t) override {}
  void copy(void*, const void*, std::size_t) override {}
  std::vector<std::uint64_t> digests(const std::vector<MemorySpan>&) override { return {}; }
  void* stream() override { return nullptr; }
  void use_second_stream(bool) override {}
  void synchronize() override {}
  double time_ms(const Launch& launch) override {
    launch(nullptr);
    return 2.5;
  }
  bool flush_cache() override {
    flushes += has_cache_ ? 1 : 0;
    return has_cache_;
  }

  int flushes = 0;

 private:
  bool has_cache_;
};

const std::atomic<bool> kNever{false};
constexpr double kLong = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("warm-up launches are not samples, and the first run counts as one") {
  FakeDevice device(false);
  int launches = 0;
  const TimingPolicy policy{.warmup = 4, .warmup_seconds = kLong, .min_runs = 6, .max_runs = 6};
  const auto timing = time_launch(
      device, [&](void*) { ++launches; }, policy, 0, kNever);
  CHECK(launches == 3 + 6);
  CHECK(timing.at("hot").samples_ms == std::vector<double>(6, 2.5));
  CHECK_FALSE(timing.contains("cold"));
}

TEST_CASE("a first run that took long is warm-up enough") {
  FakeDevice device(false);
  int launches = 0;
  const TimingPolicy policy{.warmup = 4, .warmup_seconds = 0.2, .min_runs = 1, .max_runs = 1};
  time_launch(
      device, [&](void*) { ++launches; }, policy, 0.3, kNever);
  CHECK(launches == 1);
}

TEST_CASE("with a cache to flush, cold runs each follow a flush") {
  FakeDevice device(true);
  const TimingPolicy policy{.warmup = 1, .min_runs = 3, .max_runs = 3};
  const auto timing = time_launch(
      device, [](void*) {}, policy, 0, kNever);
  CHECK(timing.at("cold").samples_ms.size() == 3);
  CHECK(device.flushes >= 3);
}

TEST_CASE("timing stops when asked to") {
  FakeDevice device(false);
  const std::atomic<bool> stop{true};
  CHECK_THROWS_AS(time_launch(
                      device, [](void*) {}, {}, 0, stop),
                  Interrupted);
}
