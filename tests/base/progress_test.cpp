#include "base/progress.h"

#include "catch.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::string kRun = std::string(SSMBENCH_EXECUTABLE) +
                         " run configs/small.json --device cpu --impl cpu-s* --no-timing --no-supervision "
                         "--json /dev/null";

/// What a terminal receives.
std::string on_terminal(const std::string& environment, const std::string& options) {
  const TemporaryFolder folder;
  const CommandResult result = run_shell(
      "env -u NO_COLOR " + environment + " script -qec \"" + kRun + options + "\" " + (folder / "log"),
      SSMBENCH_SOURCE_DIR);
  CHECK(result.exit_code == 0);
  return read_file(folder / "log");
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the time left is told no finer than it is known") {
  CHECK(time_left_text(0) == "about 5 s left");
  CHECK(time_left_text(31) == "about 35 s left");
  CHECK(time_left_text(100) == "about 2 min left");
  CHECK(time_left_text(3599) == "about 60 min left");
  CHECK(time_left_text(7890) == "about 2 h 12 min left");
}

TEST_CASE("a bar with case and implementation is on terminals only, and not where they cannot or shall not") {
  if (run_shell("command -v script", ".").exit_code != 0) return;
  const std::string drawn = on_terminal("TERM=xterm", "");
  CHECK(has(drawn, "\x1b[2K[...................."));
  CHECK(has(drawn, "reference of selective_scan_fwd-"));
  CHECK(has(drawn, "cpu-scalar on selective_scan_fwd-"));
  for (const auto* environment : {"TERM=dumb", "TERM=xterm NO_COLOR=1"}) {
    const std::string plain = on_terminal(environment, "");
    CHECK_FALSE(has(plain, "\x1b"));
    CHECK(has(plain, "cpu-scalar"));  // the table
  }
  const CommandResult piped = run_shell("TERM=xterm " + kRun, SSMBENCH_SOURCE_DIR);
  CHECK_FALSE(has(piped.out + piped.err, "\x1b"));
}

TEST_CASE("quiet is quiet, and verbose prints the command of each case before it starts") {
  const CommandResult quiet = run_shell(kRun + " --quiet", SSMBENCH_SOURCE_DIR);
  CHECK(quiet.out + quiet.err == "");
  const CommandResult verbose = run_shell(kRun + " -v 2>&1", SSMBENCH_SOURCE_DIR);
  const std::size_t command =
      verbose.out.find("ssmbench run configs/small.json --device cpu --impl cpu-scalar");
  const std::size_t row = verbose.out.find("\npass");
  REQUIRE(command != std::string::npos);
  REQUIRE(row != std::string::npos);
  CHECK(command < row);
}
