#include "sweep/time_left.h"

#include <cmath>

#include "catch.h"
#include "support/find_implementation.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// A plan of one implementation on cases of these lengths.
Plan plan_of(const std::vector<std::int64_t>& lengths) {
  Plan plan{.devices = {list_devices().front()}, .cases = {}};
  const Implementation& implementation = find_implementation("selective_scan_fwd", "cpu-scalar");
  for (const auto length : lengths)
    plan.cases.push_back({make_case(scan_problem({{"seqlen", size(length)}})), {{&implementation, 0, {}}}});
  return plan;
}

double elements(const Plan& plan, std::size_t job) {
  double sum = 0;
  for (const auto& tensor : plan.cases[job].the_case.problem.tensors())
    sum += static_cast<double>(element_count(tensor.shape));
  return sum;
}

bool is_near(const TimeLeft& left, double expected) {
  return left.seconds() && std::abs(*left.seconds() / expected - 1) < 1e-9;
}

/// A job takes this long in each stage.
void run(TimeLeft& left, std::size_t job, double inputs, double reference, double launches) {
  for (const auto& [stage, seconds] :
       {std::pair(Stage::inputs, inputs), {Stage::reference, reference}, {Stage::run, launches}}) {
    left.spent(job, stage, seconds);
    left.ended(job, stage);
  }
}

}  // namespace

TEST_CASE("the time left follows the size of what is to come, in each stage by its own rate") {
  const Plan plan = plan_of({100, 200, 1000});
  TimeLeft left(plan, JobSet(3, true), true);
  const auto cost = [&](std::size_t job, double base, double rate) {
    return base + rate * elements(plan, job);
  };
  CHECK_FALSE(left.seconds());
  run(left, 0, cost(0, 0, 1e-5), cost(0, 0, 1e-2), cost(0, 1, 1e-4));
  run(left, 1, cost(1, 0, 1e-5), cost(1, 0, 1e-2), cost(1, 1, 1e-4));
  REQUIRE(left.seconds());
  CHECK(is_near(left, cost(2, 0, 1e-5) + cost(2, 0, 1e-2) + cost(2, 1, 1e-4)));
  run(left, 2, 1, 1, 1);
  CHECK(*left.seconds() == 0);
}

TEST_CASE("no time left is shown before it means something") {
  const Plan plan = plan_of({100, 200, 100000});
  SECTION("when less than two seconds have passed") {
    TimeLeft left(plan, JobSet(3, true), true);
    run(left, 0, 0.1, 0.2, 0.3);
    CHECK_FALSE(left.seconds());
  }
  SECTION("when nearly all is yet to come") {
    TimeLeft left(plan, JobSet(3, true), true);
    run(left, 0, 1, 1, 1);
    CHECK_FALSE(left.seconds());
  }
  SECTION("when no task of a stage is finished") {
    TimeLeft left(plan, JobSet(3, true), true);
    left.spent(0, Stage::inputs, 10);
    left.ended(0, Stage::inputs);
    CHECK_FALSE(left.seconds());
  }
}

TEST_CASE("jobs that do not run and references that are not computed count for nothing") {
  Plan plan = plan_of({100, 200, 100, 100});
  plan.cases[1].jobs[0].skip = {Cause::unsupported, "no"};
  TimeLeft left(plan, {true, true, true, false}, false);
  left.spent(0, Stage::inputs, 1);
  left.ended(0, Stage::inputs);
  left.spent(0, Stage::run, 3);
  left.ended(0, Stage::run);
  CHECK(is_near(left, 4));  // the third case

  const Plan shared = plan_of({100, 100});  // have one reference
  TimeLeft with_reference(shared, JobSet(2, true), true);
  run(with_reference, 0, 1, 100, 3);
  CHECK(is_near(with_reference, 4));
}

TEST_CASE("what failed says nothing of others") {
  const Plan plan = plan_of({100, 100, 100});
  TimeLeft left(plan, JobSet(3, true), false);
  for (const std::size_t job : {0, 1}) {
    left.spent(job, Stage::inputs, 1);
    left.ended(job, Stage::inputs);
    left.spent(job, Stage::run, job == 0 ? 3 : 600);
    left.ended(job, Stage::run, job == 0);
  }
  CHECK(is_near(left, 4));
}
