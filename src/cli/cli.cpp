#include "cli/cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
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

/// CLI11 would only say that a subcommand is required.
void check_subcommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with("-")) return;
  std::vector<std::string> names;
  bool is_known = false;
  for (const auto* command : app.get_subcommands({})) {
    is_known = is_known || command->get_name() == arguments[0];
    if (!command->get_group().empty()) names.push_back(command->get_name());  // not hidden
  }
  if (!is_known)
    throw UsageError(
        fmt::format("unknown subcommand {}; expected one of {}", arguments[0], fmt::join(names, ", ")));
}

/// Help and version go to stdout with code 0; anything else that CLI11 throws is a usage error, in one line.
int parse_failure(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  std::string message = error.what();
  std::ranges::replace(message, '\n', ' ');
  return fail(kUsage, fmt::format("{} (see --help)", message));
}

int parse_and_run(const std::vector<std::string>& arguments) {
  CLI::App app("Benchmarks and validates state-space-model kernels against a fp64 reference.", "ssmbench");
  app.set_version_flag("--version", fmt::format("ssmbench {}\nMPI: {}", build_info().version,
                                                mpi_version().empty() ? "no" : mpi_version()));
  app.require_subcommand(1);
  app.footer("Example: ssmbench run configs/small.json");
  Action action;
  add_run(app, action, arguments);
  add_report(app, action);
  add_list(app, action, arguments);
  add_dump(app, action, arguments);
  add_check(app, action);
  add_compare(app, action);
  add_gate(app, action);
  add_validate_config(app, action);
  add_schema(app, action);
  add_completion(app, action);
  add_man(app, action);

  try {
    limit_simd_target();
    check_subcommand(app, arguments);
    std::vector<std::string> last_first(arguments.rbegin(), arguments.rend());  // as CLI11 takes them
    app.parse(last_first);
    return action();
  } catch (const CLI::ParseError& error) {
    return parse_failure(app, error);
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
