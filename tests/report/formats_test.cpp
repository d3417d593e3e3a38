// JUnit, CSV and what GitHub reads, with texts that try to break out of each.

#include <cstdlib>
#include <limits>

#include "base/errors.h"
#include "catch.h"
#include "report/csv.h"
#include "report/github.h"
#include "report/junit.h"
#include "report/text.h"
#include "support/run_command.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::string kNasty = "a<b>&\"'|,\n\x01\x1b[31m\xff\xef\xbf\xbf ü]]> -- ::error::%0A";

std::optional<Cause> cause_of(Status status) {
  switch (status) {
    case Status::fail:
      return Cause::nonfinite;
    case Status::skip:
      return Cause::unsupported;
    case Status::error:
      return Cause::timeout;
    case Status::invalid:
      return Cause::guard_band;
    default:
      return {};
  }
}

CaseResult result_of(const std::string& impl, Status status, const std::string& reason = "") {
  CaseResult result{.the_case = make_case(scan_problem({{"seqlen", size(7)}})),
                    .impl = impl,
                    .device = "cpu",
                    .status = status,
                    .cause = cause_of(status),
                    .reason = reason,
                    .repro = "ssmbench run 'x y'"};
  if (status == Status::pass) {
    result.timing["hot"].median_ms = 0.25;
    result.timing["hot"].samples_ms = {0.25, 0.5};
    result.outputs["out"].tolerance_ratio = std::numeric_limits<double>::infinity();
    result.work.bytes = 1e6;
  }
  return result;
}

/// What one of every status gives in a format.
template <class ReporterOf>
std::string written(const std::string& name, bool interrupted = false) {
  const TemporaryFolder folder;
  ReporterOf reporter(folder / name);
  reporter.begin({});
  for (const Status status :
       {Status::pass, Status::fail, Status::skip, Status::error, Status::invalid, Status::unverified})
    reporter.case_done(result_of("cpu-x", status, status == Status::pass ? "" : kNasty));
  Summary summary;
  summary.interrupted = interrupted;
  reporter.finish(summary);
  return read_file(folder / name);
}

/// Runs a Python script on a text; what it prints.
std::string python(const std::string& script, const std::string& text) {
  const TemporaryFolder folder;
  const auto result = run_shell("python3 '" + folder.write("script.py", script).string() + "' '" +
                                    folder.write("text", text).string() + "'",
                                folder.path().string());
  INFO(result.err);
  CHECK(result.exit_code == 0);
  return result.out;
}

}  // namespace

TEST_CASE("JUnit is XML that says what passed, failed, crashed and was skipped") {
  const std::string xml = written<JunitReporter>("x.xml");
  CHECK(python(R"(
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
print(root.tag, root.get("tests"), root.get("failures"), root.get("errors"))
for suite in root:
    print(suite.tag, suite.get("name"), *(suite.get(k) for k in ("tests", "failures", "errors", "skipped")))
    for case in suite:
        print(case.get("classname"), "|", case.get("time"), "|", [child.tag for child in case], case[0].get("type"))
print(ascii(root[0][1][0].get("message")), root[0][1][0].get("message") == root[0][1][0].text)
)",
               xml) ==
        "testsuites 6 2 1\n"
        "testsuite selective_scan_fwd 6 2 1 2\n"
        "selective_scan_fwd.cpu-x on cpu | 0.000250000 | ['system-out'] None\n"
        "selective_scan_fwd.cpu-x on cpu | 0.000000000 | ['failure', 'system-out'] nonfinite\n"
        "selective_scan_fwd.cpu-x on cpu | 0.000000000 | ['skipped', 'system-out'] unsupported\n"
        "selective_scan_fwd.cpu-x on cpu | 0.000000000 | ['error', 'system-out'] timeout\n"
        "selective_scan_fwd.cpu-x on cpu | 0.000000000 | ['failure', 'system-out'] guard_band\n"
        "selective_scan_fwd.cpu-x on cpu | 0.000000000 | ['skipped', 'system-out'] unverified\n"
        R"('a<b>&"\'|,\n\ufffd\ufffd[31m\ufffd\ufffd \xfc]]> -- ::error::%0A' True)"
        "\n");
}

TEST_CASE("JUnit of a run that was interrupted is whole and has an error that says so") {
  CHECK(python("import sys, xml.etree.ElementTree as tree\n"
               "print([case.get('name') for case in tree.parse(sys.argv[1]).getroot().iter('testcase')\n"
               "       if case.find('error') is not None][1:])",
               written<JunitReporter>("x.xml", true)) == "['every case ran']\n");
}

TEST_CASE("CSV has the same columns in each line, whatever is in them") {
  CHECK(python(R"(
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1], encoding="utf-8", newline=""), strict=True))
print(len(rows), {None in row or None in row.values() for row in rows})
print(rows[0]["impl"], rows[0]["seqlen"], rows[0]["nheads"] if "nheads" in rows[0] else "", rows[0]["hot_median_ms"],
      rows[0]["hot_n"], rows[0]["cold_n"] == "", rows[0]["tolerance_ratio"], rows[0]["gb_per_s"])
print([row["status"] for row in rows], [row["cause"] for row in rows], ascii(rows[1]["reason"]))
)",
               written<CsvReporter>("x.csv")) ==
        "6 {False}\n"
        "cpu-x 7  0.25 2 True inf 4\n"
        "['pass', 'fail', 'skip', 'error', 'invalid', 'unverified'] "
        "['', 'nonfinite', 'unsupported', 'timeout', 'guard_band', ''] "
        R"('a<b>&"\'|,\n\x01\x1b[31m\ufffd\uffff \xfc]]> -- ::error::%0A')"
        "\n");
}

TEST_CASE("texts in Markdown stay in their cell, and annotations in their command") {
  CHECK(markdown_cell("a|b\nc<d>") == "a\\|b c&lt;d>");
  CHECK(error_annotation("x: 50%, y", "line\r\n::error::100%") ==
        "::error title=x%3A 50%25%2C y::line%0D%0A::error::100%25");
}

TEST_CASE("files that exist are not written over") {
  const TemporaryFolder folder;
  const std::string file = folder.write("there", "kept").string();
  CHECK_THROWS_AS(JunitReporter(file), UsageError);
  CHECK_THROWS_AS(CsvReporter(file), UsageError);
  CHECK(read_file(file) == "kept");
}

TEST_CASE("a GitHub workflow gets annotations on stderr and the table in the step's summary") {
  const TemporaryFolder folder;
  const auto summary = folder.write("summary.md", "what an earlier command wrote\n").string();
  const std::string command = "GITHUB_STEP_SUMMARY=" + summary +
                              " '" SSMBENCH_EXECUTABLE
                              "' run configs/small.json --device cpu --dtype f32 "
                              "--impl cpu-simd --set seqlen=8 --runs 1 --json - ";
  const auto silent = run_shell(command, SSMBENCH_SOURCE_DIR);
  CHECK(silent.exit_code == 0);
  CHECK(read_file(summary) == "what an earlier command wrote\n");

  const auto config = folder.write("wrong.json", R"({"format": "ssmbench-config/1", "sweeps": [
      {"op": "selective_scan_fwd", "axes": {"batch": 1, "dim": 4, "seqlen": 40, "dstate": 4, "dtype": "bf16"},
       "tolerance": {"out": {"abs": 1e-9}}}]})");
  const auto failing =
      run_shell("GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=" + summary + " '" SSMBENCH_EXECUTABLE "' run " +
                    config.string() + " --device cpu --impl cpu-scalar --no-timing --quiet --json -",
                SSMBENCH_SOURCE_DIR);
  CHECK(failing.exit_code == 1);
  CHECK(failing.out.starts_with("{"));
  CHECK(failing.err.find("::error title=cpu-scalar%3A fail (tolerance)::selective_scan_fwd-") !=
        std::string::npos);
  const std::string table = read_file(summary);
  CHECK(table.starts_with("what an earlier command wrote\n"));
  CHECK(table.find("| fail | cpu-scalar | bf16 |") != std::string::npos);
  CHECK(table.find("1 fail") != std::string::npos);
}
