#include "gate/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/random.h"
#include "bench/statistics.h"
#include "catch.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// What processes differ by, what samples of one do, and how many there are of each.
struct Noise {
  std::size_t samples;
  double spread;
  std::size_t processes = 1;
  double process_spread = 0.005;
};

/// What one process measures, after GatePolicy::max_regression's assumptions: an offset of its own,
/// lognormal samples whose neighbours have correlation 0.3, and one in thirty up to twice as long.
std::vector<double> simulate(std::int64_t process, const Noise& noise, double median) {
  std::vector<double> normals(noise.samples + 1);
  std::vector<double> uniforms(2 * noise.samples);
  Stream(process, "noise").normals(0, normals);
  Stream(process, "outliers").uniforms(0, uniforms);
  const double offset = noise.process_spread * normals[noise.samples];
  std::vector<double> samples(noise.samples);
  double state = normals[0];
  for (std::size_t i = 0; i < noise.samples; ++i) {
    if (i > 0) state = 0.3 * state + std::sqrt(1 - 0.3 * 0.3) * normals[i];
    const double outlier = uniforms[2 * i] < 1.0 / 30 ? 1 + uniforms[2 * i + 1] : 1;
    samples[i] = median * std::exp(offset + noise.spread * state) * outlier;
  }
  return samples;
}

/// Verdicts of 100 gates between processes of two programs.
std::map<Verdict, int> hundred_gates(const Noise& noise, double ratio) {
  std::map<Verdict, int> verdicts;
  std::int64_t process = 0;
  for (int gate = 0; gate < 100; ++gate) {
    ProcessSamples before;
    ProcessSamples after;
    for (std::size_t i = 0; i < noise.processes; ++i) {
      before.push_back(simulate(process++, noise, 0.25));
      after.push_back(simulate(process++, noise, 0.25 * ratio));
    }
    ++verdicts[compare_times(before, after, {}).verdict];
  }
  return verdicts;
}

CaseResult result_of(const std::string& impl, Status status = Status::pass) {
  CaseResult result{
      .the_case = make_case(scan_problem()), .impl = impl, .device = "cuda:0", .status = status};
  if (status == Status::pass) {
    result.outputs["out"].tolerance_ratio = 0.2;
    result.timing["hot"] = summarize(simulate(7, {50, 0.003}, 1));
  }
  return result;
}

ResultsFile file_of(std::vector<CaseResult> cases) {
  ResultsFile file;
  file.cases = std::move(cases);
  return file;
}

Comparison compare_one(const CaseResult& before, const CaseResult& after) {
  static std::vector<ResultsFile> a;
  static std::vector<ResultsFile> b;
  a = {file_of({before})};
  b = {file_of({after})};
  return compare_results(a, b, {}).at(0);
}

}  // namespace

TEST_CASE("gate: of 100 gates on the same code one at most is slower, and 5% is caught 95 times") {
  const Noise noise = GENERATE(Noise{20, 0.005}, Noise{20, 0.01}, Noise{200, 0.01});
  INFO(noise.samples << " samples with a spread of " << noise.spread);
  auto same = hundred_gates(noise, 1);
  CHECK(same[Verdict::slower] <= 1);
  CHECK(same[Verdict::faster] <= 1);
  CHECK(same[Verdict::same] >= 90);
  auto slower = hundred_gates(noise, 1.05);
  CHECK(slower[Verdict::slower] >= 95);
}

TEST_CASE("gate: the same where processes differ by much, and there are several of them") {
  const Noise noise =
      GENERATE(Noise{20, 0.005, 3, 0.005}, Noise{20, 0.01, 5, 0.01}, Noise{20, 0.005, 10, 0.02});
  INFO(noise.processes << " processes that differ by " << noise.process_spread);
  auto same = hundred_gates(noise, 1);
  CHECK(same[Verdict::slower] <= 1);
  CHECK(same[Verdict::faster] <= 1);
  auto slower = hundred_gates(noise, 1.05);
  CHECK(slower[Verdict::slower] >= 95);
}

TEST_CASE("gate: too few processes of those that differ by much are inconclusive, not slower") {
  for (const std::size_t processes : {2U, 3U}) {
    INFO(processes);
    auto same = hundred_gates({20, 0.005, processes, 0.02}, 1);
    CHECK(same[Verdict::slower] + same[Verdict::faster] <= 1);
    CHECK(same[Verdict::inconclusive] >= 95);
  }
}

TEST_CASE("gate: several processes on one side tell of both") {
  ProcessSamples five;
  for (const std::int64_t process : {0, 1, 2, 3, 4})
    five.push_back(simulate(process, {50, 0.002, 1, 0.02}, 1));
  std::vector<double> slower = five[2];
  for (double& sample : slower) sample *= 1.05;
  const auto verdict = [](const ProcessSamples& before, const ProcessSamples& after) {
    return compare_times(before, after, {}).verdict;
  };
  CHECK(verdict({five[2]}, {slower}) == Verdict::slower);
  CHECK(verdict(five, {slower}) == Verdict::inconclusive);
  CHECK(verdict({slower}, five) == Verdict::inconclusive);
  const TimeChange change = compare_times(five, {slower}, {});
  CHECK(change.processes_before == 5);
  CHECK(change.processes_after == 1);
}

TEST_CASE("gate: of 100 gates of 100 cases on the same code one at most finds a regression") {
  // Three processes that differ by 5% say little: of 10000 comparisons alone some are far off by chance.
  std::int64_t process = 0;
  int wrong_gates = 0;
  int wrong_alone = 0;
  for (int gate = 0; gate < 100; ++gate) {
    std::vector<TimeChange> changes;
    std::vector<TimeChange*> pointers;
    for (int i = 0; i < 100; ++i) {
      ProcessSamples before;
      ProcessSamples after;
      for (int repeat = 0; repeat < 3; ++repeat) {
        before.push_back(simulate(process++, {8, 0.002, 3, 0.05}, 0.25));
        after.push_back(simulate(process++, {8, 0.002, 3, 0.05}, 0.25));
      }
      changes.push_back(compare_times(before, after, {}));
      wrong_alone += changes.back().verdict == Verdict::slower ? 1 : 0;
    }
    for (auto& change : changes) pointers.push_back(&change);
    correct_for_number(pointers, {});
    wrong_gates += std::ranges::count(changes, Verdict::slower, &TimeChange::verdict) > 0 ? 1 : 0;
  }
  CHECK(wrong_alone > 10);
  CHECK(wrong_gates <= 1);
}

TEST_CASE("gate: in many cases a regression that is plain is still found, one that is not is inconclusive") {
  const auto change = [](double ratio, double spread, std::int64_t seed) {
    return compare_times({simulate(seed, {50, spread}, 1)}, {simulate(seed + 1, {50, spread}, ratio)}, {});
  };
  std::vector<TimeChange> changes(1000, change(1, 0.003, 4));
  changes[17] = change(1.06, 0.003, 100);
  changes[18] = change(1.06, 0.04, 100);
  CHECK(changes[18].verdict == Verdict::slower);  // alone
  std::vector<TimeChange*> pointers;
  for (auto& one : changes) pointers.push_back(&one);
  correct_for_number(pointers, {});
  CHECK(changes[17].verdict == Verdict::slower);
  CHECK(changes[18].verdict == Verdict::inconclusive);
  CHECK(changes[18].corrected_p_value > 100 * changes[18].p_value);
  CHECK(changes[0].verdict == Verdict::same);
}

TEST_CASE("gate: a copy of a file is known by its start and its samples") {
  const ResultsFile file = file_of({result_of("a"), result_of("b")});
  ResultsFile other = file;
  CHECK(is_copy(file, other));
  other.cases.pop_back();  // a part of it
  CHECK(is_copy(file, other));
  other.cases[0].timing["hot"].samples_ms[3] += 1e-6;
  CHECK_FALSE(is_copy(file, other));
  other = file;
  other.run.started = "2026-11-22T10:00:00Z";
  CHECK_FALSE(is_copy(file, other));
  CHECK_FALSE(is_copy(file, file_of({result_of("c")})));
}

TEST_CASE("gate: noise that hides 5% is inconclusive, not slower") {
  auto same = hundred_gates({20, 0.1}, 1);
  CHECK(same[Verdict::slower] <= 1);
  CHECK(same[Verdict::inconclusive] >= 97);
}

TEST_CASE("gate: the limit decides") {
  const ProcessSamples before{simulate(1, {200, 0.002}, 1)};
  ProcessSamples after = before;
  for (double& sample : after.front()) sample *= 1.05;
  const auto verdict = [&](double limit) {
    return compare_times(before, after, {.max_regression = limit}).verdict;
  };
  CHECK(verdict(0.03) == Verdict::slower);
  CHECK(verdict(0.049) == Verdict::slower);
  CHECK(verdict(0.0501) == Verdict::inconclusive);  // just under it, but not surely
  CHECK(verdict(0.06) == Verdict::same);
  const TimeChange change = compare_times(before, after, {});
  CHECK(std::abs(change.ratio.ratio - 1.05) < 1e-12);
  CHECK(change.ratio.low < 1.05);
  CHECK(change.ratio.high > 1.05);
  CHECK(compare_times(after, before, {}).verdict == Verdict::faster);
  CHECK(compare_times(before, before, {}).verdict == Verdict::same);
}

TEST_CASE("gate: what the clock does not resolve is no change") {
  const auto constant = [](double value) { return ProcessSamples{std::vector<double>(20, value)}; };
  CHECK(compare_times(constant(0.001), constant(0.00109), {}).verdict == Verdict::same);
  CHECK(compare_times(constant(0.001), constant(0.00112), {}).verdict == Verdict::slower);
}

TEST_CASE("gate: too few samples, or times that cannot be, are inconclusive with the reason") {
  const TimeChange few = compare_times({simulate(1, {7, 0.001}, 1)}, {simulate(2, {50, 0.001}, 2)}, {});
  CHECK(few.verdict == Verdict::inconclusive);
  CHECK(few.reason == "7 samples; 99% confidence needs 8");
  const TimeChange zero = compare_times({std::vector<double>(20, 0)}, {simulate(2, {50, 0.001}, 2)}, {});
  CHECK(zero.verdict == Verdict::inconclusive);
  CHECK_FALSE(zero.reason.empty());

  CaseResult untimed = result_of("x");
  untimed.timing.clear();
  CHECK(compare_one(result_of("x"), untimed).time->reason == "no hot times in the new results");
  CHECK(compare_one(untimed, result_of("x")).finding() == Finding::inconclusive);
  CHECK_FALSE(compare_one(untimed, untimed).time);
}

TEST_CASE("gate: a case that no longer passes is worse, and a crash is worst") {
  const auto finding = [](Status before, Status after) {
    return compare_one(result_of("x", before), result_of("x", after)).finding();
  };
  CHECK(finding(Status::pass, Status::pass) == Finding::none);
  for (const Status after : {Status::fail, Status::invalid, Status::skip, Status::unverified})
    CHECK(finding(Status::pass, after) == Finding::worse);
  CHECK(finding(Status::pass, Status::error) == Finding::crashed);
  CHECK(finding(Status::unverified, Status::unverified) == Finding::none);
  CHECK(finding(Status::unverified, Status::fail) == Finding::worse);
  for (const Status before : {Status::fail, Status::error, Status::skip, Status::invalid})
    for (const Status after : {Status::pass, Status::fail, Status::error})
      CHECK(finding(before, after) == Finding::none);
  CaseResult crashed = result_of("x", Status::error);
  crashed.reason = "segmentation fault";
  CHECK(compare_one(result_of("x"), crashed).worse ==
        std::vector<std::string>{"was pass, now error: segmentation fault"});
}

TEST_CASE("gate: errors may grow by a quarter") {
  const auto finding = [](double before, double after) {
    CaseResult a = result_of("x");
    CaseResult b = a;
    a.outputs["out"].tolerance_ratio = before;
    b.outputs["out"].tolerance_ratio = after;
    return compare_one(a, b).finding();
  };
  CHECK(finding(0.4, 0.4) == Finding::none);
  CHECK(finding(0.4, 0.5) == Finding::none);
  CHECK(finding(0.4, 0.53) == Finding::worse);
  CHECK(finding(0.4, 0.1) == Finding::none);
  CHECK(finding(0, 0.02) == Finding::none);  // next to nothing
  CHECK(finding(0, 0.03) == Finding::worse);
  CHECK(finding(0.4, std::numeric_limits<double>::infinity()) == Finding::worse);

  CaseResult a = result_of("x");
  CaseResult b = a;
  b.outputs["out"].tolerance_ratio = 0.9;
  b.outputs["out"].user_tolerance = {.abs = 1, .rel = 1};
  const auto worse = compare_one(a, b).worse;  // not the ratio, which is in other units
  REQUIRE(worse.size() == 1);
  CHECK(worse[0].starts_with("out: tolerance was derived, now "));
}

TEST_CASE("gate: cases of only one file") {
  const std::vector<ResultsFile> before{
      file_of({result_of("a"), result_of("b"), result_of("c", Status::skip)})};
  const std::vector<ResultsFile> after{file_of({result_of("d"), result_of("a")})};
  const auto comparisons = compare_results(before, after, {});
  REQUIRE(comparisons.size() == 4);
  CHECK(comparisons[0].either().impl == "a");
  CHECK(comparisons[0].finding() == Finding::none);
  CHECK(comparisons[1].finding() == Finding::worse);
  CHECK(comparisons[2].finding() == Finding::none);  // never ran
  CHECK(comparisons[3].either().impl == "d");
  CHECK(comparisons[3].before == nullptr);
  CHECK(comparisons[3].finding() == Finding::none);
  CHECK(compare_results(before, after, {.allow_missing = true})[1].finding() == Finding::none);
  const std::vector<ResultsFile> unsupported{file_of({result_of("c", Status::skip)})};
  CHECK(compare_results(unsupported, unsupported, {}).empty());
}

TEST_CASE("gate: of several processes the worst counts, and of those that are fine all times do") {
  const auto finding = [](const std::vector<Status>& before, const std::vector<Status>& after) {
    std::vector<ResultsFile> a;
    std::vector<ResultsFile> b;
    for (const Status status : before) a.push_back(file_of({result_of("x", status)}));
    for (const Status status : after) b.push_back(file_of({result_of("x", status)}));
    return compare_results(a, b, {}).at(0).finding();
  };
  CHECK(finding({Status::pass, Status::unverified}, {Status::pass, Status::unverified}) == Finding::none);
  CHECK(finding({Status::unverified, Status::pass}, {Status::unverified}) == Finding::worse);
  CHECK(finding({Status::pass}, {Status::unverified, Status::pass, Status::fail}) == Finding::worse);
  CHECK(finding({Status::pass}, {Status::error, Status::fail}) == Finding::crashed);
  CHECK(finding({Status::pass, Status::fail}, {Status::fail}) == Finding::none);

  CaseResult unverified = result_of("x");
  unverified.status = Status::unverified;
  const std::vector<ResultsFile> three{file_of({result_of("x"), result_of("y")}), file_of({unverified}),
                                       file_of({result_of("x", Status::skip)})};
  const std::vector<ResultsFile> two(three.begin(), three.begin() + 2);
  const auto comparisons = compare_results(two, two, {});
  REQUIRE(comparisons.size() == 2);
  CHECK(comparisons[0].time->processes_before == 2);
  CHECK(comparisons[0].before->status == Status::pass);
  CHECK(comparisons[1].time->processes_after == 1);
  CHECK(compare_results(two, three, {})[0].finding() == Finding::worse);
}

TEST_CASE("gate: other devices and drivers are seen, other libraries are not") {
  ResultsFile before = file_of({result_of("a")});
  before.run.devices = {{"cpu", {{"name", "one"}}},
                        {"cuda:0", {{"name", "H100"}, {"cuda_driver", "13.0"}, {"cuda_runtime", "13.0"}}}};
  ResultsFile after = before;
  after.run.devices["cpu"]["name"] = "two";  // no result is of it
  after.run.devices["cuda:0"]["cuda_runtime"] = "13.1";
  CHECK(device_differences(before, after).empty());
  after.run.devices["cuda:0"]["cuda_driver"] = "13.1";
  after.run.devices["cuda:0"]["name"] = "H200";
  CHECK(
      device_differences(before, after) ==
      std::vector<std::string>{"cuda:0: name was H100, now H200", "cuda:0: cuda_driver was 13.0, now 13.1"});
}

TEST_CASE("gate: a looser claim or tolerance is WORSE, and one that is as strict is a remark") {
  const auto with = [](std::optional<Arithmetic> claims, std::optional<UserTolerance> tolerance = {}) {
    CaseResult result = result_of("cuda-x");
    result.claims = claims;
    result.outputs["out"].user_tolerance = tolerance;
    return result;
  };
  const Arithmetic f32;
  const Arithmetic tf32{.math = Math::tf32};
  const Arithmetic bf16_states{.state_dtype = DType::bf16};
  const auto compare = [](const CaseResult& before, const CaseResult& after) {
    const Comparison comparison = compare_one(before, after);
    return std::pair(comparison.worse, comparison.changes);
  };
  using Texts = std::vector<std::string>;
  CHECK(compare(with(f32), with(f32)) == std::pair(Texts(), Texts()));
  CHECK(compare(with({}), with(tf32)) == std::pair(Texts(), Texts()));  // files of before claims were kept
  CHECK(compare(with(f32), with(tf32)) ==
        std::pair(Texts{"claimed f32 arithmetic and f32 states, now tf32 and f32"}, Texts()));
  CHECK(compare(with(f32), with(bf16_states)) ==
        std::pair(Texts{"claimed f32 arithmetic and f32 states, now f32 and bf16"}, Texts()));
  CHECK(compare(with(tf32), with(f32)) ==
        std::pair(Texts(), Texts{"claimed tf32 arithmetic and f32 states, now f32 and f32"}));

  const UserTolerance small{.abs = 1e-6, .rel = 1e-3};
  const UserTolerance large{.abs = 1e-6, .rel = 1e-2};
  CHECK(compare(with(f32, small), with(f32, small)) == std::pair(Texts(), Texts()));
  CHECK(
      compare(with(f32, small), with(f32, large)) ==
      std::pair(Texts{"out: tolerance was 1e-06 + 0.001·|expected|, now 1e-06 + 0.01·|expected|"}, Texts()));
  CHECK(compare(with(f32), with(f32, small)) ==
        std::pair(Texts{"out: tolerance was derived, now 1e-06 + 0.001·|expected|"}, Texts()));
  CHECK(compare(with(f32, large), with(f32, small)).second.size() == 1);
  CHECK(compare(with(f32, large), with(f32)).second.size() == 1);
}
