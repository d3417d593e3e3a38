#include "support/ranks.h"

#include <omp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <stdexcept>

namespace ssmbench::test {
namespace {

constexpr std::size_t kMessage = 512;

/// Of a child of fork: leaves without destructors and without output of the parent's.
[[noreturn]] void be_rank(const std::string& team, int rank, const std::function<void(Communicator&)>& body,
                          const TeamOptions& options, char* message) {
  omp_set_num_threads(1);  // fork leaves the parent's threads behind, which OpenMP does not know
  int status = 0;
  try {
    const auto communicator = join_team(team, rank, options.patience);
    body(*communicator);
  } catch (const std::exception& error) {
    std::snprintf(message, kMessage, "%s", error.what());
    status = 1;
  }
  _exit(status);
}

std::string ending(pid_t process, const char* message) {
  int status = 0;
  if (waitpid(process, &status, 0) != process) return "is lost";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) == 0) return "";
  return message[0] == 0 ? "exit code " + std::to_string(WEXITSTATUS(status)) : message;
}

}  // namespace

SharedBytes::SharedBytes(std::size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  data_ = static_cast<std::byte*>(memory);
}

SharedBytes::~SharedBytes() {
  munmap(data_, std::max<std::size_t>(bytes_, 1));
}

std::vector<std::string> run_ranks(int ranks, const std::function<void(Communicator&)>& body,
                                   const TeamOptions& options) {
  const TeamMemory team(ranks, options.mailbox_bytes);
  const SharedBytes messages(static_cast<std::size_t>(ranks) * kMessage);
  const auto message_of = [&](int rank) {
    return messages.as<char>().data() + static_cast<std::size_t>(rank) * kMessage;
  };
  std::cout.flush();
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) be_rank(team.name(), rank, body, options, message_of(rank));
    if (process < 0) throw std::runtime_error("fork failed");  // those that run end by their patience
    processes.push_back(process);
  }
  std::vector<std::string> endings;
  for (int rank = 0; rank < ranks; ++rank)
    endings.push_back(ending(processes[static_cast<std::size_t>(rank)], message_of(rank)));
  return endings;
}

}  // namespace ssmbench::test
