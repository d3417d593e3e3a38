#include "cli/run_slots.h"

#include "base/errors.h"
#include "catch.h"
#include "device/thread_pinning.h"

using namespace ssmbench;

namespace {

DeviceInfo gpu(int index, const std::string& name = "H200", std::size_t bytes = std::size_t{141} << 30) {
  return {.kind = DeviceKind::cuda,
          .index = index,
          .name = name,
          .total_bytes = bytes,
          .free_bytes = bytes,
          .details = {{"cuda_driver", "13.0"}}};
}

std::vector<DeviceInfo> machine(std::vector<DeviceInfo> gpus) {
  gpus.insert(gpus.begin(), DeviceInfo{.name = "CPU", .details = {}});
  return gpus;
}

std::vector<int> indices(const std::vector<DeviceInfo>& gpus) {
  std::vector<int> all;
  for (const auto& each : gpus) all.push_back(each.index);
  return all;
}

std::string complaint(const std::string& count, const std::string& device,
                      const std::vector<DeviceInfo>& gpus) {
  try {
    choose_gpus(count, device, machine(gpus), "no driver");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("run --gpus takes the first ones, or all, or those that --device names") {
  const auto devices = machine({gpu(0), gpu(1), gpu(2), gpu(3)});
  const auto chosen = [&](const std::string& count, const std::string& device) {
    return indices(choose_gpus(count, device, devices, ""));
  };
  CHECK(chosen("2", "auto") == std::vector<int>{0, 1});
  CHECK(chosen("all", "cuda") == std::vector<int>{0, 1, 2, 3});
  CHECK(chosen("all", "cuda:3,cuda:1") == std::vector<int>{3, 1});
  CHECK(chosen("1", "cuda:2") == std::vector<int>{2});
  CHECK(chosen("3", "all") == std::vector<int>{0, 1, 2});
}

TEST_CASE("run --gpus refuses what is not there, with its reason and the kind of error") {
  const std::vector<DeviceInfo> two{gpu(0), gpu(1)};
  CHECK(complaint("3", "auto", two) == "--gpus 3: there are 2 CUDA device(s) to choose from");
  CHECK(complaint("2", "auto", {}) == "--gpus 2: no CUDA device: no driver");
  CHECK(complaint("1", "cuda:7", two) == "--device cuda:7: no cuda:7 here; there are cuda:0, cuda:1");
  CHECK(complaint("2", "cuda:1,cuda:1", two) == "--device cuda:1,cuda:1: cuda:1 is given twice");
  CHECK_THROWS_AS(choose_gpus("3", "auto", machine(two), ""), DeviceError);
  for (const char* count : {"0", "-1", "two", "2x", ""})
    CHECK_THROWS_AS(choose_gpus(count, "auto", machine(two), ""), UsageError);
  CHECK_THROWS_AS(choose_gpus("1", "cpu", machine(two), ""), UsageError);
}

TEST_CASE("run --gpus refuses GPUs that are not alike, with a list, and takes some of them that are") {
  const std::vector<DeviceInfo> mixed{gpu(0), gpu(1, "A100"), gpu(2)};
  const std::string said = complaint("all", "auto", mixed);
  CHECK(said.find("not alike: cuda:0 H200 (141.0 GiB), cuda:1 A100 (141.0 GiB), cuda:2 H200 (141.0 GiB)") !=
        std::string::npos);
  CHECK_THROWS_AS(choose_gpus("all", "auto", machine(mixed), ""), UsageError);
  CHECK(indices(choose_gpus("all", "cuda:0,cuda:2", machine(mixed), "")) == std::vector<int>{0, 2});
  CHECK_THROWS_AS(choose_gpus("2", "auto", machine({gpu(0), gpu(1, "H200", 1)}), ""), UsageError);
  DeviceInfo other_driver = gpu(1);
  other_driver.details["cuda_driver"] = "12.8";
  CHECK_THROWS_AS(choose_gpus("2", "auto", machine({gpu(0), other_driver}), ""), UsageError);
}

TEST_CASE("slots divide the cores of a host: all of them, none twice, and one at least each") {
  const std::vector<int> cpus{0, 1, 2, 3, 8, 9, 10};
  CHECK(share_of(cpus, 0, 1) == cpus);
  CHECK(share_of(cpus, 0, 2) == std::vector<int>{0, 1, 2});
  CHECK(share_of(cpus, 1, 2) == std::vector<int>{3, 8, 9, 10});
  std::vector<int> all;
  for (std::size_t slot = 0; slot < 3; ++slot)
    for (const int cpu : share_of(cpus, slot, 3)) all.push_back(cpu);
  CHECK(all == cpus);
  for (std::size_t slot = 0; slot < 5; ++slot) CHECK(share_of({4, 7}, slot, 5).size() == 1);
  CHECK(share_of({}, 0, 2).empty());
}
