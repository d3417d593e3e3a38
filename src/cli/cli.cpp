#include "cli/cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "base/errors.h"
#include "base/printable.h"
#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "device/simd_target.h"
#include "launch/launcher.h"
#include "model/build_info.h"
#include "plugin/plugin.h"
#include "team/nccl_team.h"

namespace ssmbench {
namespace {

int fail(int code, const std::string& message) {
  fmt::print(stderr, "ssmbench: {}\n", printable(message));
  return code;
}

/// A file takes the lowest number that is free: what is printed would end up in a results file that took
/// stdout's.
void open_standard_streams() {
  int descriptor = open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
  if (descriptor >= 0) close(descriptor);
}

/// A full disk shows when what was printed leaves the buffer, and not before.
int with_stdout_written(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (code == kUsage || code == kDeviceOrCrash || code == kInterrupted) return code;  // worse, and said
  return fail(kDeviceOrCrash, fmt::format("standard output: cannot be written{}{}", errno == 0 ? "" : ": ",
                                          errno == 0 ? "" : std::strerror(errno)));
}

int parse_and_run(const std::vector<std::string>& arguments) {
  const std::string mpi = mpi_version();
  const std::string nccl = nccl_built_with();
  Program program("Benchmarks and validates state-space-model kernels against an fp64 reference.",
                  fmt::format("{}\nMPI: {}\nNCCL: {}", build_info().version, mpi.empty() ? "no" : mpi,
                              nccl.empty() ? "no" : nccl),
                  "ssmbench run configs/small.json");
  add_run(program, arguments);
  add_report(program);
  add_list(program, arguments);
  add_dump(program, arguments);
  add_check(program);
  add_compare(program);
  add_gate(program);
  add_validate_config(program);
  add_schema(program);
  add_completion(program);
  add_man(program);

  try {
    limit_simd_target();
    return program.run(arguments);
  } catch (const UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const Interrupted& error) {
    return fail(kInterrupted, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kDeviceOrCrash, "out of host memory");
  } catch (const std::exception& error) {  // devices, outputs, and anything unexpected
    return fail(kDeviceOrCrash, error.what());
  }
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a failing write, as on a full disk
  const int code = with_stdout_written(parse_and_run(arguments));
  if (a_plugin_is_loaded()) _exit(code);
  return code;
}

}  // namespace ssmbench
