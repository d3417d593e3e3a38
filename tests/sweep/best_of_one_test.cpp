#include "sweep/best_of_one.h"

#include "catch.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

CaseResult result(const std::string& impl, const std::string& device, double ms, Status status = Status::pass,
                  std::int64_t seqlen = 64) {
  CaseResult made{.the_case = {.problem = scan_problem({{"seqlen", size(seqlen)}}),
                               .inputs = {},
                               .budget_ms = {},
                               .source = {}},
                  .impl = impl,
                  .device = device};
  made.status = status;
  if (ms > 0) made.timing["hot"].median_ms = ms;
  return made;
}

CaseResult of_team(const std::string& device, std::size_t ranks, double ms, Status status = Status::pass) {
  CaseResult made = result("a-team", device, ms, status);
  made.team = TeamUse{.rank_ms = std::vector<double>(ranks, ms)};
  return made;
}

}  // namespace

TEST_CASE("a team is held against the fastest that passed on one device of its kind") {
  BestOfOne best;
  CHECK_FALSE(best.scaling_of(of_team("cpu*2", 2, 1)));
  best.add(result("slow", "cpu", 6));
  best.add(result("fast", "cpu", 3));
  best.add(result("slower", "cpu", 9));
  best.add(result("wrong", "cpu", 1, Status::fail));
  best.add(result("untimed", "cpu", 0));
  best.add(result("other-case", "cpu", 1, Status::pass, 128));
  best.add(result("other-kind", "cuda:0", 1));
  best.add(of_team("cpu*4", 4, 1));  // no device by itself
  const auto found = best.scaling_of(of_team("cpu*2", 2, 2));
  REQUIRE(found);
  CHECK(found->impl == "fast");
  CHECK(found->ms_one == 3);
  CHECK(found->speedup == Approx(1.5));
  CHECK(found->efficiency == Approx(0.75));
  CHECK(best.scaling_of(of_team("cuda*2", 2, 2))->impl == "other-kind");
  CHECK_FALSE(best.scaling_of(of_team("cpu*2", 2, 2, Status::fail)));
  CHECK_FALSE(best.scaling_of(of_team("cpu*2", 2, 0)));
  CHECK_FALSE(best.scaling_of(result("fast", "cpu", 3)));
}
