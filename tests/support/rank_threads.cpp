#include "support/rank_threads.h"

#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "team/shared_memory.h"

namespace ssmbench::test {

std::string run_rank_threads(int ranks, const std::function<void(Communicator&)>& body) {
  constexpr std::chrono::milliseconds kPatience{60000};
  const TeamMemory memory(ranks);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto team = join_team(memory.name(), rank, kPatience);
        body(*team);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  std::string all;
  for (int rank = 0; rank < ranks; ++rank)
    if (const auto& error = errors[static_cast<std::size_t>(rank)]; !error.empty())
      all += "rank " + std::to_string(rank) + ": " + error + "\n";
  return all;
}

}  // namespace ssmbench::test
