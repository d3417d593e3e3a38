#include "team/counted_team.h"

#include <stdexcept>
#include <vector>

#include "catch.h"
#include "device/cpu.h"
#include "support/ranks.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void check(bool is_right, const char* what) {
  if (!is_right) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE("a counted team passes everything on, knows what was sent, and does it again") {
  const auto endings = run_ranks(4, [](Communicator& inner) {
    const auto device = open_cpu();
    CountedTeam team(inner, *device);
    const int own = inner.rank() + 1;
    std::vector<int> all(4);
    std::vector<int> crossed(4);
    team.all_gather(&own, all.data(), sizeof own, nullptr);
    check(all == std::vector{1, 2, 3, 4}, "gathered");
    check(team.wire_bytes() == 3 * 4, "bytes of an all-gather");
    team.all_to_all(all.data(), crossed.data(), sizeof own, nullptr);
    check(crossed == std::vector<int>(4, own), "all to all");
    check(team.wire_bytes() == 2 * 3 * 4, "bytes of an all-to-all");
    std::vector<float> sums(8, static_cast<float>(own));
    team.all_reduce(sums.data(), sums.size(), nullptr);
    check(sums == std::vector<float>(8, 10), "summed");
    check(team.wire_bytes() == 2 * 3 * 4 + 2 * 32 * 3 / 4, "bytes of a sum");
    team.reset();
    if (own == 1) team.send(all.data(), 16, 3, nullptr);
    if (own == 4) team.receive(crossed.data(), 16, 0, nullptr);
    check(team.wire_bytes() == (own == 1 ? 16 : 0), "bytes of a message are the sender's");
    check(own != 4 || crossed == all, "received");
    check(team.agree(own) == 4, "agreed");
    for (int time = 0; time < 2; ++time) team.replay(nullptr);
    check(team.wire_bytes() == (own == 1 ? 16 : 0), "a replay is not counted");
    check(crossed == (own == 4 ? all : std::vector<int>(4, own)), "a replay has memory of its own");
    team.barrier();
  });
  for (const auto& ending : endings) CHECK(ending.empty());
}
