#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/json_text.h"
#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "config/make_schema.h"

namespace ssmbench {

void add_schema(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("schema", "Print the JSON schema of configs.");
  command->footer("Example: ssmbench schema > configs/schema.json");
  command->callback([&action] {
    action = [] {
      fmt::print("{}\n", json_text(config_schema(), 2));
      return int{kOk};
    };
  });
}

}  // namespace ssmbench
