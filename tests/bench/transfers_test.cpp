#include "bench/transfers.h"

#include <cstring>
#include <limits>

#include "catch.h"
#include "support/cpu_in_disguise.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

class CopyingDevice : public CpuInDisguise {
 public:
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    ++(is_pinned(host) ? pinned_in : pageable_in);
    CpuInDisguise::copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    ++(is_pinned(host) ? pinned_out : pageable_out);
    CpuInDisguise::copy_out(host, device, bytes);
  }
  void* pinned_memory(std::size_t bytes) override {
    if (!has_pinned) return nullptr;
    pinned_.resize(bytes);
    return pinned_.data();
  }

  bool has_pinned = true;
  int pinned_in = 0, pinned_out = 0, pageable_in = 0, pageable_out = 0;

 private:
  bool is_pinned(const void* host) const {
    const auto* const at = static_cast<const std::byte*>(host);
    return !pinned_.empty() && at >= pinned_.data() && at < pinned_.data() + pinned_.size();
  }
  std::vector<std::byte> pinned_;
};

const std::atomic<bool> kNotStopped{false};
constexpr double kForever = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("copies are timed from both kinds of memory once a case, end to end once a launch") {
  CopyingDevice device;
  const std::vector<int> host{1, 2, 3};
  const std::vector<int> more{4, 5, 6, 7};
  std::vector<int> on_device(3), more_on_device(4), output(300);
  TransferTimer timer(device, {{on_device.data(), host.data(), 12}, {more_on_device.data(), more.data(), 16}},
                      kForever, kNotStopped);
  int launches = 0;
  const Launch launch = [&](void*) {
    ++launches;
    CHECK(on_device == host);
    CHECK(more_on_device == more);
    on_device.assign(3, 0);  // comes anew with the next copy
  };
  const std::vector<MemorySpan> outputs{{output.data(), 1200}};
  const auto times = timer.measure(launch, outputs);
  REQUIRE(times);
  CHECK(times->pinned.h2d_ms > 0);
  CHECK(times->pinned.d2h_ms > 0);
  CHECK(times->pinned.end_to_end_ms > 0);
  CHECK(times->pageable.end_to_end_ms > 0);
  CHECK(launches == 10);  // five with each kind of memory
  CHECK(device.pinned_in == 2 * (5 + 5));
  CHECK(device.pageable_in == 2 * (5 + 5));
  CHECK(device.pinned_out == 5 + 5);
  CHECK(device.pageable_out == 5 + 5);

  const auto again = timer.measure(launch, outputs);
  CHECK(again->pinned.h2d_ms == times->pinned.h2d_ms);
  CHECK(again->pageable.d2h_ms == times->pageable.d2h_ms);
  CHECK(launches == 20);
  CHECK(device.pinned_in == 2 * (5 + 5 + 5));
  CHECK(device.pageable_out == 5 + 5 + 5);
}

TEST_CASE("no time is repeated that takes long") {
  CopyingDevice device;
  const int host = 0;
  int on_device = 0;
  TransferTimer timer(device, {{&on_device, &host, 4}}, 0, kNotStopped);
  int launches = 0;
  CHECK(timer.measure([&](void*) { ++launches; }, {}));
  CHECK(launches == 2);
}

TEST_CASE("copies of what is too large, or without pinned memory, are not timed") {
  CopyingDevice device;
  const int host = 0;
  int on_device = 0;
  const Launch never = [](void*) { FAIL("launched"); };
  TransferTimer large(device, {{&on_device, &host, TransferTimer::kMostBytes + 1}}, kForever, kNotStopped);
  CHECK_FALSE(large.measure(never, {}));
  device.has_pinned = false;
  TransferTimer unpinned(device, {{&on_device, &host, 4}}, kForever, kNotStopped);
  CHECK_FALSE(unpinned.measure(never, {}));
}
