#pragma once

#include <string>
#include <vector>

namespace ssmbench {

/// Runs the command line (argv without the program's name) and returns the exit code (exit_code.h).
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace ssmbench
