// Every command that writes, on a full disk: one line, and exit code 4.

#include <algorithm>

#include "catch.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;

TEST_CASE("a full disk is one line and exit code 4, whatever is written") {
  const TemporaryFolder folder;
  const std::string golden = SSMBENCH_SOURCE_DIR "/tests/golden/step_m1_f32.h5";
  const std::string run = "run configs/small.json --device cpu --impl cpu-simd --quick --no-timing --quiet ";
  const std::string results = folder / "results.jsonl";
  REQUIRE(run_ssmbench(run + "--json " + results).exit_code == 0);
  const std::string gate = "gate --quiet " + results + " " + results;
  for (const std::string& command :
       {"check --json /dev/full " + golden, gate + " --json /dev/full", gate + " --markdown /dev/full",
        gate + " --junit /dev/full", "report " + results + " -o /dev/full",
        run + "--csv /dev/full --json " + (folder / "1"), run + "--junit /dev/full --json " + (folder / "2"),
        run + "--markdown /dev/full --json " + (folder / "3"), std::string("list ops >/dev/full"),
        "check " + golden + " >/dev/full", std::string("schema >/dev/full"),
        "compare " + golden + " " + golden + " >/dev/full"}) {
    const CommandResult result = run_ssmbench(command);
    INFO(command << ": " << result.err);
    CHECK(result.exit_code == 4);
    CHECK(std::ranges::count(result.err, '\n') == 1);
    CHECK(result.err.starts_with("ssmbench: "));
    CHECK(result.err.find("No space left on device") != std::string::npos);
  }
  // Records come first, so that what the other formats cannot take is not lost.
  for (const char* file : {"1", "2", "3"}) CHECK(read_file(folder / file).ends_with("\n"));
}
