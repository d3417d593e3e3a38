#include "cli/cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "device/simd_target.h"
#include "model/build_info.h"
#include "model/errors.h"

namespace ssmbench {
namespace {

int fail(int code, const std::string& message) {
  fmt::print(stderr, "ssmbench: {}\n", message);
  return code;
}

/// CLI11 would only say that a subcommand is required.
void check_subcommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with("-")) return;
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::ranges::find(names, arguments[0]) == names.end())
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

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  CLI::App app("Benchmarks and validates state-space-model kernels against a fp64 reference.", "ssmbench");
  app.set_version_flag("--version", fmt::format("ssmbench {}", build_info().version));
  app.require_subcommand(1);
  app.footer("Example: ssmbench run configs/small.json");
  Action action;
  add_run(app, action, arguments);
  add_report(app, action);
  add_list(app, action);
  add_dump(app, action, arguments);
  add_check(app, action);
  add_compare(app, action);
  add_gate(app, action);
  add_validate_config(app, action);

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
  } catch (const std::exception& error) {  // devices, outputs, and what nobody thought of
    return fail(kDeviceOrCrash, error.what());
  }
}

}  // namespace ssmbench
