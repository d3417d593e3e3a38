// Ranks that exchange data through shared memory, each a process; and what the others hear when one of them
// ends, leaves, is silent, or does something else.

#include "team/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "catch.h"
#include "support/ranks.h"

using namespace ssmbench;
using namespace ssmbench::test;
using namespace std::chrono_literals;

namespace {

/// Throws in a rank, where the test's own macros do not count.
void must(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void check_all_fine(const std::vector<std::string>& endings) {
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(endings[rank] == "");
  }
}

/// What rank `sender` has for `receiver` at place i.
std::int32_t value_of(int sender, int receiver, std::size_t i) {
  return 1000000 * sender + 10000 * receiver + static_cast<std::int32_t>(i);
}

/// Terms whose sum in f32 depends on the order.
float term_of(int rank, std::size_t i) {
  const float large = (i % 2 == 0 ? 1e8F : -1e8F);
  return rank == 0 ? large : rank == 1 ? 3.0F + static_cast<float>(i) : rank == 2 ? -large : 1.5F;
}

void gather(Communicator& team, std::size_t count) {
  std::vector<std::int32_t> own(count);
  for (std::size_t i = 0; i < count; ++i) own[i] = value_of(team.rank(), 0, i);
  std::vector<std::int32_t> all(count * static_cast<std::size_t>(team.size()), -1);
  team.all_gather(own.data(), all.data(), count * sizeof(std::int32_t), nullptr);
  for (int r = 0; r < team.size(); ++r)
    for (std::size_t i = 0; i < count; ++i)
      must(all[static_cast<std::size_t>(r) * count + i] == value_of(r, 0, i), "all_gather");
}

void exchange_all(Communicator& team, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(team.size());
  std::vector<std::int32_t> from(count * ranks);
  for (std::size_t at = 0; at < from.size(); ++at)
    from[at] = value_of(team.rank(), static_cast<int>(at / count), at % count);
  std::vector<std::int32_t> to(from.size(), -1);
  team.all_to_all(from.data(), to.data(), count * sizeof(std::int32_t), nullptr);
  for (std::size_t at = 0; at < to.size(); ++at)
    must(to[at] == value_of(static_cast<int>(at / count), team.rank(), at % count), "all_to_all");
}

void reduce(Communicator& team, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = term_of(team.rank(), i);
  team.all_reduce(values.data(), count, nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = term_of(0, i);
    for (int r = 1; r < team.size(); ++r) sum += term_of(r, i);
    must(values[i] == sum, "all_reduce");
  }
}

/// From the first rank to the last, each adding 1.
void pass_on(Communicator& team, std::size_t count) {
  std::vector<std::int32_t> values(count, 0);
  if (team.rank() > 0) team.receive(values.data(), count * sizeof(std::int32_t), team.rank() - 1, nullptr);
  for (const auto value : values) must(value == team.rank(), "send, receive");
  for (auto& value : values) ++value;
  if (team.rank() + 1 < team.size())
    team.send(values.data(), count * sizeof(std::int32_t), team.rank() + 1, nullptr);
}

}  // namespace

TEST_CASE("ranks exchange data through shared memory, in one piece and in many") {
  for (const int ranks : {1, 2, 3, 5})
    for (const std::size_t mailbox_bytes : {std::size_t{1}, std::size_t{100}, TeamMemory::kMailboxBytes}) {
      INFO(ranks << " ranks, mailboxes of " << mailbox_bytes);
      check_all_fine(run_ranks(ranks,
                               [](Communicator& team) {
                                 for (const std::size_t count : {1, 17, 1000}) {
                                   gather(team, count);
                                   exchange_all(team, count);
                                   reduce(team, count);
                                   team.barrier();
                                 }
                                 pass_on(team, 1);
                                 pass_on(team, 50000);
                                 must(team.agree(team.rank() == 1 ? 7.5 : -1.0 * team.rank()) ==
                                          (team.size() > 1 ? 7.5 : 0),
                                      "agree");
                               },
                               {.mailbox_bytes = mailbox_bytes}));
    }
}

TEST_CASE("a rank that is late holds the others up and nothing else") {
  check_all_fine(run_ranks(3, [](Communicator& team) {
    for (int turn = 0; turn < 3; ++turn) {
      if (team.rank() == turn) std::this_thread::sleep_for(20ms);
      gather(team, 10);
      team.barrier();
    }
  }));
}

TEST_CASE("a rank that is killed is named by all others at once") {
  const auto start = std::chrono::steady_clock::now();
  const auto endings = run_ranks(3, [](Communicator& team) {
    gather(team, 10);
    if (team.rank() == 1) std::raise(SIGKILL);
    reduce(team, 10);
  });
  CHECK(endings[0] == "rank 1 ended and has not come to all_reduce of 40 bytes");
  CHECK(endings[1] == "signal 9");
  CHECK(endings[2] == endings[0]);
  CHECK(std::chrono::steady_clock::now() - start < 10s);  // of a patience of 20 s
}

TEST_CASE("a rank that fails is named by all others at once") {
  const auto endings = run_ranks(3, [](Communicator& team) {
    team.barrier();
    if (team.rank() == 2) throw std::runtime_error("out of luck");
    exchange_all(team, 5);
  });
  CHECK(endings[0] == "rank 2 left the team and has not come to all_to_all of 20 bytes");
  CHECK(endings[1] == endings[0]);
  CHECK(endings[2] == "out of luck");
}

TEST_CASE("a receiver hears that the sender has gone, and a sender that nobody receives") {
  const auto endings = run_ranks(2, [](Communicator& team) {
    if (team.rank() == 0) throw std::runtime_error("nothing to send");
    std::int32_t value = 0;
    team.receive(&value, sizeof value, 0, nullptr);
  });
  CHECK(endings[1] == "rank 0 left the team and has not sent");
  const auto unheard = run_ranks(2, [](Communicator& team) {
    if (team.rank() == 1) std::raise(SIGKILL);
    pass_on(team, 50000);  // more than a piece
  });
  CHECK(unheard[0] == "rank 1 ended and has not taken what was sent");
}

TEST_CASE("a rank that is silent is given up") {
  const auto endings = run_ranks(2,
                                 [](Communicator& team) {
                                   if (team.rank() == 1) std::this_thread::sleep_for(500ms);
                                   team.barrier();
                                 },
                                 {.patience = 100ms});
  CHECK(endings[0] == "rank 1 has not come to barrier of 0 bytes for 0.1 s");
}

TEST_CASE("ranks that do different things say which") {
  const auto endings = run_ranks(2, [](Communicator& team) {
    if (team.rank() == 0) gather(team, 2);
    if (team.rank() == 1) gather(team, 3);
  });
  CHECK(endings[0] == "rank 1 is at all_gather of 12 bytes, rank 0 at all_gather of 8 bytes");
}

TEST_CASE("a team has each of its ranks once, and waits for all") {
  const TeamMemory team(2);
  const auto error_of = [&](const std::string& name, int rank) -> std::string {
    try {
      join_team(name, rank, 50ms);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(error_of(team.name(), 2) == "rank 2 cannot join: the team has ranks 0 to 1");
  CHECK(error_of(team.name(), 0) == "rank 1 has not joined for 0.05 s");
  CHECK(error_of(team.name(), 0) == "rank 0 has joined the team before");
  CHECK(error_of("/ssmbench-none", 0) == "shared memory /ssmbench-none: No such file or directory");
}

TEST_CASE("a team's memory is gone with it") {
  std::string name;
  {
    const TeamMemory team(1);
    name = team.name();
    CHECK(shm_open(name.c_str(), O_RDWR, 0) >= 0);
  }
  CHECK(shm_open(name.c_str(), O_RDWR, 0) < 0);
}
