// A case of which nothing can be said is neither a pass nor a failure, wherever it is shown.

#include <string>
#include <utility>

#include "catch.h"
#include "support/records_of.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a case that cannot be judged has a status and a cause of its own in every output format") {
  const TemporaryFolder folder;
  // An unstable method: states overflow, and so may those of any implementation.
  const std::string config = folder.write("c.json", R"({"format": "ssmbench-config/1", "sweeps": [
      {"op": "selective_scan_fwd", "axes": {"method": "bilinear_flipped", "dtype": "f32", "batch": 1,
       "dim": 1, "seqlen": 4000, "dstate": 1, "inputs": "large_A"}}]})");
  const std::string results = folder / "r.jsonl";
  const std::string reason = "last_state: every element may overflow, so none was compared";
  const CommandResult run = run_ssmbench(
      "run " + config + " --device cpu --impl cpu-scalar --runs 12 --json " + results + " --junit " +
      (folder / "r.xml") + " --csv " + (folder / "r.csv") + " --markdown " + (folder / "r.md"));
  CHECK(run.exit_code == 0);
  CHECK(has(run.out, "\nunverified       cpu-scalar "));
  CHECK(has(run.out, "-- " + reason + "\n"));
  CHECK(has(run.out, "\n1 unverified in "));

  const auto json = records_of(read_file(results)).at(1);
  CHECK(json.at("status") == "unverified");
  CHECK(json.at("cause") == "not_judged");
  CHECK(json.at("reason") == reason);
  CHECK(json.at("verify").at("outputs").at("last_state").at("judged") == 0);
  CHECK(json.at("verify").at("outputs").at("out").at("judged") > 0);
  CHECK(json.at("timing").contains("hot"));

  const std::string junit = read_file(folder / "r.xml");
  CHECK(has(junit, R"(failures="0" errors="0" skipped="1")"));
  CHECK(has(junit, R"(<skipped type="not_judged" message=")" + reason));
  CHECK(has(read_file(folder / "r.csv"), ",unverified,not_judged,\"" + reason + "\","));
  CHECK(has(read_file(folder / "r.md"), "\n| unverified | cpu-scalar |"));
  CHECK(has(read_file(folder / "r.md"), "\n1 unverified in "));

  const CommandResult gate = run_ssmbench("gate " + results + " " + results + " --json -");
  CHECK(gate.exit_code == 0);
  CHECK(has(gate.out, "not_judged"));
  // What was right before is worse now.
  std::string passed = read_file(results);
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{R"("unverified")", R"("pass")"}, {R"("not_judged")", "null"}})
    passed.replace(passed.find(from), from.size(), to);
  const CommandResult worse =
      run_ssmbench("gate " + folder.write("p.jsonl", passed).string() + " " + results);
  CHECK(worse.exit_code == 1);
  CHECK(has(worse.out, "WORSE"));

  const CommandResult report = run_ssmbench("report " + results + " -o -");
  CHECK(report.exit_code == 0);
  CHECK(has(report.out, R"("cause":"not_judged")"));
  CHECK(has(report.out, R"("status":"unverified")"));
}
