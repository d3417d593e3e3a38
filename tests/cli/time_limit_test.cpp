#include "cli/time_limit.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/errors.h"
#include "catch.h"
#include "support/host_tensors.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// What never ends by itself.
void wait_for(const std::atomic<bool>& stop) {
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  throw Interrupted();
}

}  // namespace

TEST_CASE("work on a case ends by itself, at its time limit, or when it is interrupted") {
  bool done = false;
  within_time(100, never_stop, "x", [&](const std::atomic<bool>& /*stop*/) { done = true; });
  CHECK(done);
  try {
    within_time(0.1, never_stop, "x.h5: /cases/a", wait_for);
    FAIL("it ended");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()) == "x.h5: /cases/a: takes more than 0.1 s (--timeout)");
  }
  const std::atomic<bool> interrupted = true;
  CHECK_THROWS_AS(within_time(100, interrupted, "x", wait_for), Interrupted);
}

TEST_CASE("check: a case that takes too long to judge is one line, and exit code 2") {
  const TemporaryFolder folder;
  const std::string file = folder / "long.h5";
  REQUIRE(
      run_ssmbench("run configs/small.json --device cpu --impl cpu-simd --op selective_scan_fwd --dtype f32 "
                   "--case '*-bld-*' --set dim=128 --set seqlen=16384 --no-verify --runs 1 --quiet "
                   "--json /dev/null --dump " +
                   file)
          .exit_code == 0);
  const CommandResult result = run_ssmbench("check --timeout 0.01 " + file);
  CHECK(result.exit_code == 2);
  CHECK(std::ranges::count(result.err, '\n') == 2);  // of each of the two cases
  CHECK(result.err.starts_with("ssmbench: " + file + ": /cases/selective_scan_fwd-f32-"));
  CHECK(result.err.ends_with(": takes more than 0.01 s (--timeout)\n"));
  CHECK(run_ssmbench("check --timeout 0 " + file).exit_code == 2);
}
