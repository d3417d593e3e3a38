#include "device/simd_target.h"

#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "support/run_command.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

CommandResult list_devices_with(const std::string& simd) {
  return run_shell("SSMBENCH_SIMD=" + simd + " '" SSMBENCH_EXECUTABLE "' list devices --json",
                   SSMBENCH_SOURCE_DIR);
}

}  // namespace

TEST_CASE("SSMBENCH_SIMD limits the instruction set, and what is recorded of the device says so") {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    const auto result = list_devices_with(hwy::TargetName(target));
    CHECK(result.exit_code == 0);
    const auto devices = nlohmann::json::parse(result.out);
    CHECK(devices.at(0).at("details").at("instruction_set") == hwy::TargetName(target));
  }
}

TEST_CASE("SSMBENCH_SIMD changes what runs") {
  // Without fused multiply-adds other bits come out.
  const auto targets = hwy::SupportedAndGeneratedTargets();
  if (std::ranges::min(targets) > HWY_AVX2) return;
  const auto error_with = [](std::int64_t target) {
    const auto result = run_shell(
        std::string("SSMBENCH_SIMD=") + hwy::TargetName(target) +
            " '" SSMBENCH_EXECUTABLE
            "' run configs/small.json --device cpu --impl cpu-simd --op selective_scan_fwd --dtype f32 "
            "--quick --no-timing --json -",
        SSMBENCH_SOURCE_DIR);
    const auto at = result.out.find("\"rel_l2\":");
    REQUIRE(at != std::string::npos);
    return result.out.substr(at, 30);
  };
  CHECK(error_with(HWY_AVX2) == error_with(HWY_AVX2));
  CHECK(error_with(HWY_AVX2) != error_with(std::ranges::max(targets)));
}

TEST_CASE("SSMBENCH_SIMD takes no instruction set that this processor does not have") {
  const auto result = list_devices_with("MMX");
  CHECK(result.exit_code == 2);
  CHECK(result.err.starts_with("ssmbench: SSMBENCH_SIMD is MMX; expected one of "));
  CHECK(result.err.find(simd_target()) != std::string::npos);
  CHECK(result.out == "");
}
