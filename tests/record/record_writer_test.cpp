#include "record/record_writer.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("a failed case carries what was wrong, with non-finite numbers as null") {
  CaseResult result{
      .the_case = make_case(scan_problem()), .impl = "cpu-x", .device = "cpu", .status = Status::fail};
  result.cause = Cause::nonfinite;
  result.reason = "out at (0, 0, 0): bytes \xff that are not UTF-8";
  result.outputs["out"] = {.max_abs = 0.5,
                           .worst_index = {0, 0, 0},
                           .worst_got = std::numeric_limits<double>::quiet_NaN(),
                           .nonfinite = 1};
  const auto record = nlohmann::json::parse(case_record(result));
  CHECK(record.at("status") == "fail");
  CHECK(record.at("cause") == "nonfinite");
  CHECK(record.at("id") == result.the_case.id());
  CHECK(record.at("verify").at("outputs").at("out").at("max_abs") == 0.5);
  CHECK(record.at("verify").at("outputs").at("out").at("worst_got").is_null());
  CHECK(record.at("verify").at("outputs").at("out").at("nonfinite") == 1);
  CHECK_FALSE(record.contains("timing"));
  CHECK_FALSE(record.contains("throughput"));
  CHECK_FALSE(record.contains("determinism"));
}

TEST_CASE("determinism is true, false with where, or unknown") {
  const auto recorded = [](const Determinism& determinism) {
    CaseResult result{
        .the_case = make_case(scan_problem()), .impl = "cpu-x", .device = "cpu", .status = Status::pass};
    result.determinism = determinism;
    return nlohmann::json::parse(case_record(result)).at("determinism");
  };
  CHECK(recorded({.reruns = 2}) == nlohmann::json{{"reruns", 2}, {"bitwise_equal", true}});
  CHECK(recorded({.reruns = 0}) == nlohmann::json{{"reruns", 0}, {"bitwise_equal", nullptr}});
  CHECK(recorded({.reruns = 2, .first_difference = "out"}) ==
        nlohmann::json{{"reruns", 2}, {"bitwise_equal", false}, {"first_difference", "out"}});
}
