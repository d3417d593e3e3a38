#include "study/load_studies.h"

#include <fstream>
#include <set>

#include "base/errors.h"
#include "catch.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::string kGood =
    R"("kind": "convergence", "A": [-1, [-2, 3]], "method": ["zoh", "rk4"], "horizon": 2.5, "steps": {"from": 4, "to": 64, "times": 4})";

std::string config_of(const std::string& study) {
  return R"({"format": "ssmbench-config/1", "studies": [{)" + study + "}]}";
}

Studies load(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "x.json") << text;
  return load_studies({folder / "x.json"});
}

/// What follows the name of the file.
std::string complaint(const std::string& text) {
  try {
    load(text);
  } catch (const UsageError& error) {
    const std::string message = error.what();
    return message.substr(message.find("x.json: ") + 8);
  }
  return "(nothing was thrown)";
}

std::string complaint_with(const std::string& from, const std::string& to) {
  std::string study = kGood;
  return complaint(config_of(study.replace(study.find(from), from.size(), to)));
}

}  // namespace

TEST_CASE("a study is read as it is written") {
  const auto studies = load(config_of(kGood)).convergence;
  REQUIRE(studies.size() == 1);
  CHECK(studies[0].A == std::vector<std::complex<double>>{{-1, 0}, {-2, 3}});
  REQUIRE(studies[0].methods.size() == 2);
  CHECK(studies[0].methods[0]->id == MethodId::zoh);
  CHECK(studies[0].methods[1]->id == MethodId::rk4);
  CHECK(studies[0].horizon == 2.5);
  CHECK(studies[0].steps == std::vector<std::int64_t>{4, 16, 64});
}

TEST_CASE("a config of sweeps has no studies") {
  CHECK(load_studies({SSMBENCH_SOURCE_DIR "/configs/small.json"}).empty());
}

TEST_CASE("the shipped study has every method, real and complex A") {
  const auto studies = load_studies({SSMBENCH_SOURCE_DIR "/configs/convergence.json"}).convergence;
  REQUIRE(studies.size() == 1);
  CHECK(studies[0].methods.size() == methods().size());
  CHECK(studies[0].A.size() == 3);
  CHECK(studies[0].steps.size() == 9);
}

TEST_CASE("what is wrong with a study is said in one line") {
  CHECK(complaint_with("\"zoh\"", "\"euler\"")
            .starts_with("/studies/0/method/0: got \"euler\"; expected one of zoh, "));
  CHECK(complaint_with("\"horizon\": 2.5, ", "")
            .starts_with("/studies/0: \"horizon\" is missing; expected a study: "));
  CHECK(complaint_with("2.5", "0") == "/studies/0/horizon: got 0; expected a time, above 0");
  const std::string decay =
      "; expected a number below 0, or a pair [real, imaginary] with a real part below 0";
  CHECK(complaint_with("-1", "1") == "/studies/0/A/0: got 1" + decay);
  CHECK(complaint_with("-2", "0") == "/studies/0/A/1: got [0,3]" + decay);
  CHECK(complaint_with("-1", "\"x\"") == "/studies/0/A/0: got \"x\"" + decay);
  const std::string steps =
      R"(; expected how many steps the horizon is divided into, {"from": 64, "to": 16384, "times": 2}, with two values or more and at most 1e8 steps)";
  CHECK(complaint_with("\"to\": 64", "\"to\": 4") ==
        "/studies/0/steps: measuring an order takes at least two runs" + steps);
  CHECK(complaint_with("\"to\": 64", "\"to\": 2147483648") ==
        "/studies/0/steps: more than 1e+08 steps" + steps);
  CHECK(complaint(R"({"format": "ssmbench-config/1", "studies": [], "sweeps": []})").starts_with("/"));
}

TEST_CASE("a consistency study is read as a sweep with checks") {
  const std::string study =
      R"("kind": "consistency", "check": ["steps", "halves"], "op": "selective_scan_fwd",
      "axes": {"batch": 1, "dim": 4, "seqlen": [3, 5], "dstate": 2, "dtype": ["f32", "bf16"]},
      "zip": [["seqlen", "dtype"]])";
  const auto studies = load(config_of(study)).consistency;
  REQUIRE(studies.size() == 1);
  REQUIRE(studies[0].checks.size() == 2);
  CHECK(studies[0].checks[1]->check == "halves");
  REQUIRE(studies[0].cases.size() == 2);
  CHECK(studies[0].cases[1].problem.size("seqlen") == 5);
  CHECK(studies[0].cases[1].source.pointer == "/studies/0");

  const auto complaint_about = [&](const std::string& from, const std::string& to) {
    std::string changed = study;
    return complaint(config_of(changed.replace(changed.find(from), from.size(), to)));
  };
  CHECK(complaint_about("\"steps\"", "\"mamba1\"") ==
        "/studies/0/check/0: selective_scan_fwd has no check \"mamba1\"; expected one of steps, halves, "
        "prefill, packed");
  CHECK(complaint_about("\"steps\"", "\"twice\"")
            .starts_with("/studies/0/check/0: got \"twice\"; expected one of steps, halves, "));
  CHECK(complaint_about("[\"steps\", \"halves\"]", "[]") ==
        "/studies/0/check: got []; expected a non-empty list of checks");
  CHECK(complaint_about("\"dim\": 4", "\"dim\": 0").starts_with("/studies/0/axes/dim: got 0; expected "));
  CHECK(complaint_about("\"dim\": 4, ", "") ==
        "/studies/0/axes: selective_scan_fwd needs the axis 'dim'; expected axes that are complete and go "
        "together");
  CHECK(complaint_about("\"op\": \"selective_scan_fwd\",", "")
            .starts_with("/studies/0: \"op\" is missing; expected a study: "));
  CHECK(complaint_about("\"consistency\"", "\"harmony\"") ==
        "/studies/0/kind: got \"harmony\"; expected one of convergence, consistency");
}

TEST_CASE("the shipped consistency studies have every check") {
  const auto studies = load_studies({SSMBENCH_SOURCE_DIR "/configs/consistency.json"}).consistency;
  std::set<const PartwiseComputation*> checks;
  for (const auto& study : studies) checks.insert(study.checks.begin(), study.checks.end());
  std::size_t known = 0;
  for (const OpSpec* op : all_ops()) known += op->parts.size();
  CHECK(checks.size() == known);
}

TEST_CASE("studies and sweeps do not mix") {
  CHECK(
      complaint(
          R"({"format": "ssmbench-config/1", "sweeps": [{"op": "selective_scan_fwd", "axes": {}}], "studies": [{)" +
          kGood + "}]}") == "/: sweeps and studies in one file; expected one of them");
  const std::vector<std::filesystem::path> both{SSMBENCH_SOURCE_DIR "/configs/convergence.json",
                                                SSMBENCH_SOURCE_DIR "/configs/small.json"};
  CHECK_THROWS_WITH(load_studies(both), "some configs hold studies and some sweeps; expected one kind");
}
