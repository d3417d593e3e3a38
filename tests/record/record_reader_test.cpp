#include "record/record_reader.h"

#include <cmath>
#include <limits>

#include "base/errors.h"
#include "catch.h"
#include "model/parts.h"
#include "record/record_writer.h"
#include "report/jsonl.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

CaseResult full_result() {
  CaseResult result{
      .the_case = make_case(scan_problem({{"B", "constant"}, {"seqlen", size(7)}, {"z", true}})),
      .impl = "cpu-x",
      .device = "cuda:1",
      .claims = Arithmetic{.math = Math::tf32, .state_dtype = DType::bf16},
      .status = Status::fail,
      .cause = Cause::nonfinite,
      .reason = "a \"quoted\" reason"};
  result.the_case.budget_ms = 1.5;
  result.outputs["out"] = {.max_abs = 0.1,
                           .rel_l2 = 1.0 / 3,
                           .max_ulp = 17,
                           .tolerance_ratio = kInfinity,
                           .worst_index = {0, 0, 3},
                           .worst_expected = -kInfinity,
                           .worst_got = std::nan(""),
                           .nonfinite = 2,
                           .judged = 7,
                           .rms_ratio = 0.3,
                           .decay_bias = -0.25,
                           .decay_bias_ratio = kInfinity,
                           .rounding_bias = {{.mean = -0.125, .ratio = 1.5, .among = "all"}},
                           .over_time = {{0, 3, 1.0 / 3, 0.5}, {4, 6, kInfinity, kInfinity}}};
  result.outputs["last_state"] = {.worst_index = {1, 2}, .judged = 2};
  result.determinism = {.reruns = 2, .first_difference = "out at (0, 0, 0)"};
  result.timing["hot"] = {.median_ms = 0.1,
                          .mean_ms = 0.2,
                          .stdev_ms = 0.3,
                          .min_ms = 0.05,
                          .max_ms = 0.9,
                          .p5_ms = 0.06,
                          .p95_ms = 0.8,
                          .p99_ms = 0.85,
                          .samples_ms = {0.1, 1.0 / 3, 5e-324},
                          .outliers = 2,
                          .throttled = 3,
                          .queue_ran_dry = 1,
                          .stopped_by = "plateau",
                          .clock_mhz = 1980};
  result.transfers = {.pinned = {.h2d_ms = 1, .d2h_ms = 2, .end_to_end_ms = 3.5},
                      .pageable = {.h2d_ms = 4, .d2h_ms = 5, .end_to_end_ms = 9.5}};
  result.roofline = {.floor_ms = 0.07, .bound = "mufu", .fraction = 0.7};
  result.work = {.bytes = 123, .exponentials = 4, .fmas = 5.5, .tensor_flops = 7};
  result.workspace_bytes = std::size_t{1} << 40;
  result.repro = "ssmbench run x";
  result.key = "0123456789abcdef";
  return result;
}

}  // namespace

TEST_CASE("a record that was read is written as it was, bit for bit") {
  const std::string record = case_record(full_result());
  CHECK(case_record(read_case_record(record)) == record);

  CaseResult skipped = full_result();
  skipped = {.the_case = make_case(ssd_problem({{"dt_limit", "0.01..0.05"}, {"seqlen", size(3)}})),
             .impl = "cpu-y",
             .device = "cpu",
             .status = Status::skip,
             .cause = Cause::unsupported,
             .reason = "no"};
  CHECK(case_record(read_case_record(case_record(skipped))) == case_record(skipped));
}

TEST_CASE("what a record carries is read") {
  const CaseResult result = read_case_record(case_record(full_result()));
  CHECK(result.the_case.id() == full_result().the_case.id());
  CHECK(result.the_case.budget_ms == 1.5);
  CHECK(result.status == Status::fail);
  CHECK(result.cause == Cause::nonfinite);
  CHECK(result.claims == full_result().claims);
  const OutputComparison& out = result.outputs.at("out");
  CHECK(out.tolerance_ratio == kInfinity);  // a maximum that is not finite
  CHECK(std::isnan(out.worst_expected));
  CHECK_FALSE(out.passed());
  REQUIRE(out.over_time.size() == 2);
  CHECK(out.over_time[1].first == 4);
  CHECK(out.over_time[1].last == 6);
  CHECK(out.over_time[1].worst_ratio == kInfinity);
  CHECK(result.timing.at("hot").samples_ms == full_result().timing.at("hot").samples_ms);
  CHECK(result.timing.at("hot").queue_ran_dry == 1);
  CHECK(result.work.fmas == 5.5);
  CHECK(result.workspace_bytes == std::size_t{1} << 40);
}

TEST_CASE("records that are not whole are refused") {
  const std::string record = case_record(full_result());
  for (std::size_t length = 0; length < record.size(); length += 7)
    CHECK_THROWS_AS(read_case_record(record.substr(0, length)), UsageError);
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string changed = record;
    changed.replace(changed.find(what), what.size(), by);
    return changed;
  };
  CHECK_THROWS_AS(read_case_record(replaced("selective_scan_fwd\"", "no_such_op\"")), UsageError);
  CHECK_THROWS_AS(read_case_record(replaced("\"fail\"", "\"failed\"")), UsageError);
  CHECK_THROWS_AS(read_case_record(replaced("\"nonfinite\",", "\"infinite\",")), UsageError);
  CHECK_THROWS_AS(read_case_record(replaced("\"tf32\"", "\"tf33\"")), UsageError);
  CHECK_THROWS_AS(read_case_record(replaced("\"seqlen\":7", "\"seqlen\":-7")), UsageError);
  CHECK_THROWS_AS(read_case_record(replaced("\"seqlen\":7", "\"seqlen\":{}")), UsageError);
  CHECK_THROWS_AS(read_case_record("[]"), UsageError);
}

TEST_CASE("records of before there were causes are read as without one") {
  std::string record = case_record(full_result());
  const std::string cause = R"("cause":"nonfinite",)";
  record.erase(record.find(cause), cause.size());
  const CaseResult result = read_case_record(record);
  CHECK_FALSE(result.cause);
  CHECK(result.reason == full_result().reason);
}

TEST_CASE("of a case that was run again the last record counts, and a line that was cut off is none") {
  const TemporaryFolder folder;
  CaseResult first = full_result();
  first.status = Status::error;
  const std::string run =
      R"({"record":"run","schema":"ssmbench-results/1","argv":["a"],"started":"","build":{},"devices":{}})";
  const std::string whole = run + "\n" + case_record(first) + "\n{\"record\":\"summary\"}\n" + run + "\n" +
                            case_record(full_result()) + "\n";
  const ResultsFile file = read_results(folder.write("x", whole + R"({"record":"ca)"));
  REQUIRE(file.cases.size() == 1);
  CHECK(file.cases[0].status == Status::fail);
  CHECK(file.whole_bytes == whole.size());
  CHECK(file.run.argv == std::vector<std::string>{"a"});

  CHECK(read_results(folder.write("empty", "")).cases.empty());
  CHECK_THROWS_AS(read_results(folder.write("y", run + "\n{\"record\":\"ca\n")), UsageError);
  CHECK_THROWS_AS(read_results(folder.write("z", case_record(first) + "\n")), UsageError);
  CHECK_THROWS_AS(read_results(folder / "nothing"), UsageError);
}

TEST_CASE("studies of convergence that were read are written as they were") {
  const TemporaryFolder folder;
  const MethodConvergence study{.method = &methods().front(),
                                .A = {-0.5, 3},
                                .horizon = 8,
                                .order = 1,
                                .measured_order = 0.99,
                                .stability_limit = kInfinity,
                                .measured_stability_limit = 2.5,
                                .errors = {{16, 0.5, 1.0 / 3, 1e-7}, {32, 0.25, kInfinity, kInfinity}}};
  const auto write = [&](const std::string& name, const MethodConvergence& what) {
    const std::string text = run_record({}) + "\n" + study_record(what) + "\n";
    folder.write(name, text);
    return text;
  };
  const std::string written = write("a", study);
  const ResultsFile file = read_results(folder / "a");
  REQUIRE(file.convergence.size() == 1);
  CHECK(write("b", file.convergence.front()) == written);
  CHECK(file.convergence.front().errors[1].discretization == kInfinity);

  std::string unknown = written;
  unknown.replace(unknown.find("\"method\":\"") + 10, 1, "x");
  CHECK_THROWS_AS(read_results(folder.write("c", unknown)), UsageError);
}

TEST_CASE("studies of consistency are read beside the cases, and name both sides") {
  const TemporaryFolder folder;
  const ConsistencyResult study{
      .check = "steps", .parts_op = "selective_state_update", .parts = "cpu-y", .at_once = full_result()};
  const ResultsFile file =
      read_results(folder.write("a", run_record({}) + "\n" + study_record(study) + "\n"));
  CHECK(file.cases.empty());
  REQUIRE(file.consistency.size() == 1);
  CHECK(file.consistency.front().impl == "cpu-x against cpu-y in parts");
  CHECK(file.consistency.front().status == Status::fail);
  CHECK(file.consistency.front().outputs.at("out").max_ulp == 17);
}
