#include "team/team_device.h"

#include <algorithm>

#include "base/errors.h"
#include "catch.h"
#include "model/distributed.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

TEST_CASE("a team starts when it is opened, and its first job hears what kept it from that") {
  int starts = 0;
  const StartRanks start = [&](const std::string&, const TeamPlan&) -> std::unique_ptr<RankProcesses> {
    throw DeviceError("there are no processes, start " + std::to_string(++starts));
  };
  const auto team = open_team(team_info(list_devices().front(), 2), start, std::chrono::milliseconds(100));
  CHECK(starts == 1);  // no job has begun
  const Problem problem = scan_problem({{"seqlen", size(200)}});
  const auto& all = team_implementations(2);
  const auto found = std::ranges::find_if(all, [&](const Implementation& each) {
    return each.op == problem.op().name && each.name == "cpu-chain";
  });
  REQUIRE(found != all.end());
  const auto message_of_bind = [&]() -> std::string {
    try {
      team->bind(*found, problem, {}, nullptr);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message_of_bind() == "there are no processes, start 1");
  CHECK(starts == 1);
  CHECK(message_of_bind() == "there are no processes, start 2");  // the next job tries again
}
