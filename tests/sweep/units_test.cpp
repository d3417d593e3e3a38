#include "sweep/units.h"

#include "catch.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Cases of one length in each dtype, which share a reference.
std::vector<Case> cases_of(std::int64_t seqlen) {
  std::vector<Case> cases;
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    Case one = make_case(scan_problem({{"seqlen", seqlen}, {"dtype", dtype}}));
    one.inputs.values = "shared";
    cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<std::size_t> jobs_of_units(const std::vector<Case>& cases, std::size_t slots,
                                       bool verify = true) {
  const Plan plan = make_plan(cases, {list_devices().front()}, {});
  std::size_t jobs = 0;
  for (const auto& one : plan.cases) jobs += one.jobs.size();
  std::vector<std::size_t> counts;
  std::size_t all = 0;
  for (const auto& unit : units_of(plan, JobSet(jobs, true), verify, slots)) {
    counts.push_back(unit.jobs.size());
    all += unit.jobs.size();
  }
  CHECK(all == jobs);
  return counts;
}

}  // namespace

TEST_CASE("cases that share a reference are one unit, unless slots would wait for it") {
  auto cases = cases_of(256);
  CHECK(jobs_of_units(cases, 1).size() == 1);
  CHECK(jobs_of_units(cases, 2).size() == 3);
  for (int i = 0; i < 24; ++i) {
    auto more = cases_of(32 + i);
    cases.insert(cases.end(), more.begin(), more.end());
  }
  CHECK(jobs_of_units(cases, 1).size() == 25);
  CHECK(jobs_of_units(cases, 2).size() == 25);
  CHECK(jobs_of_units(cases, 4).size() == 27);         // the long ones each
  CHECK(jobs_of_units(cases, 2, false).size() == 75);  // where there is no reference
}
