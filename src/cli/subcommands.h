#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace ssmbench {

/// Each adds one subcommand; when it was given, `action` is set to what then runs and returns the exit code.
using Action = std::function<int()>;
void add_run(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
void add_list(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
void add_report(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_gate(CLI::App& app, Action& action);
void add_dump(CLI::App& app, Action& action, const std::vector<std::string>& arguments);
void add_schema(CLI::App& app, Action& action);
void add_validate_config(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_man(CLI::App& app, Action& action);

}  // namespace ssmbench
