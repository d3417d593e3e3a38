#include <fmt/format.h>

#include "base/json_text.h"
#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "config/make_schema.h"

namespace ssmbench {

void add_schema(Program& program) {
  Command& command =
      program.add("schema", "Print the JSON Schema of configs.", "ssmbench schema > configs/schema.json");
  command.runs([] {
    fmt::print("{}\n", json_text(config_schema(), 2));
    return int{kOk};
  });
}

}  // namespace ssmbench
