// When to stop, without a clock.

#include "bench/stopping_rule.h"

#include <cmath>
#include <functional>
#include <string>

#include "catch.h"

using namespace ssmbench;

namespace {

struct End {
  int runs = 0;
  std::string why;
};

/// Feeds samples that take `seconds` each until the rule has enough.
End feed(const TimingPolicy& policy, double seconds, const std::function<double(int)>& sample) {
  StoppingRule rule(policy);
  for (int run = 1; run < 100000; ++run) {
    rule.add(sample(run));
    const std::string why(rule.verdict(run * seconds));
    if (!why.empty()) return {run, why};
  }
  return {};
}

double steady(int) {
  return 3;
}

/// Standard deviation 0.05 around 1.05, and a median that jumps.
double alternating(int run) {
  return run % 2 == 0 ? 1.0 : 1.1;
}

double with_hiccups(int run) {
  return run % 3 == 0 ? 3 : 1;
}

double slower_and_slower(int run) {
  return std::pow(1.02, run);
}

const TimingPolicy kAnyTime{.min_seconds = 0, .patient_seconds = 1e9, .max_seconds = 1e9};

}  // namespace

TEST_CASE("timing stops once the mean is precise, but not before the least runs and the least time") {
  const End by_runs = feed({.min_runs = 12, .min_seconds = 0.2}, 0.1, steady);
  CHECK(by_runs.runs == 12);
  CHECK(by_runs.why == "precision");
  const End by_time = feed({.min_runs = 10, .min_seconds = 0.2}, 0.001, steady);
  CHECK(by_time.runs == 200);
  CHECK(by_time.why == "precision");
  // 0.05 / sqrt(n) <= 0.005 * 1.05 from n = 91 on; the sample deviation is a little more.
  const End scattered = feed(kAnyTime, 0.001, alternating);
  CHECK(scattered.why == "precision");
  CHECK(scattered.runs >= 91);
  CHECK(scattered.runs <= 95);
}

TEST_CASE("timing stops on a plateau: runs scatter too much for precision, and the median does not move") {
  const End end = feed(kAnyTime, 0.001, with_hiccups);
  CHECK(end.why == "plateau");
  CHECK(end.runs < 100);
}

TEST_CASE("timing does not stop while times still change, until a limit does it") {
  const End runs = feed({.max_runs = 300, .min_seconds = 0, .patient_seconds = 1e9, .max_seconds = 1e9},
                        0.001, slower_and_slower);
  CHECK(runs.runs == 300);
  CHECK(runs.why == "runs");
  const End time = feed({.min_seconds = 0, .max_seconds = 0.0995}, 0.001, slower_and_slower);
  CHECK(time.runs == 100);
  CHECK(time.why == "time");
  const End patience =
      feed({.min_runs = 10, .min_seconds = 0, .patient_seconds = 0.0495}, 0.001, slower_and_slower);
  CHECK(patience.runs == 50);
  CHECK(patience.why == "time");
  // Patience is for precision: the least runs come first.
  CHECK(feed({.min_runs = 10, .patient_seconds = 0.5, .max_seconds = 2}, 0.15, slower_and_slower).runs == 10);
  // A step up in the middle of what looked steady: the median has not settled.
  StoppingRule rule({.min_runs = 70, .min_seconds = 0, .patient_seconds = 1e9, .max_seconds = 1e9});
  for (int run = 0; run < 70; ++run) rule.add(run < 35 ? 1.0 : 1.2);
  CHECK(rule.verdict(1).empty());
}

TEST_CASE("one launch of a slow kernel is enough when the time is up") {
  const End end = feed({}, 5, steady);
  CHECK(end.runs == 1);
  CHECK(end.why == "time");
}

TEST_CASE("equal limits of runs mean exactly so many") {
  const End end = feed({.min_runs = 7, .max_runs = 7, .max_seconds = 1e9}, 100, alternating);
  CHECK(end.runs == 7);
  CHECK(end.why == "runs");
}
