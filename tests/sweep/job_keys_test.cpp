#include "sweep/job_keys.h"

#include "catch.h"
#include "device/device.h"
#include "support/find_implementation.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("keys of results change with the device and its driver, not with what its ceilings come out as") {
  Plan plan{.devices = {list_devices().front()}, .cases = {}};
  plan.cases.push_back(
      {make_case(scan_problem({})), {{&find_implementation("selective_scan_fwd", "cpu-scalar"), 0, {}}}});
  const auto key_with = [&](const std::map<std::string, std::string>& fields) {
    return job_keys(plan, {}, RunInfo{.argv = {}, .build = {}, .devices = {{"cpu", fields}}, .started = ""})
        .at(0);
  };
  const std::string key = key_with({{"name", "CPU"}, {"ceiling_fmas_per_s", "1e9"}});
  CHECK(key_with({{"name", "CPU"}, {"ceiling_fmas_per_s", "2e9"}}) == key);
  CHECK(key_with({{"name", "CPU"}}) == key);
  CHECK(key_with({{"name", "CPU"}, {"cuda_driver", "1"}}) != key);
  CHECK(key_with({{"name", "other"}, {"ceiling_fmas_per_s", "1e9"}}) != key);
}
