#pragma once

#include <string>
#include <vector>

namespace ssmbench::test {

struct CommandResult {
  int exit_code = -1;  ///< 128 + signal when a signal ended it
  std::string out, err;
};

/// Runs a shell command in `directory` and collects what it prints. Not on a terminal, no standard input.
CommandResult run_shell(const std::string& command, const std::string& directory);

/// Runs this build's ssmbench, from the root of the sources, so that configs/... are there.
CommandResult run_ssmbench(const std::string& arguments);

}  // namespace ssmbench::test
