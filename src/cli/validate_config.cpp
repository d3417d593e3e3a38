#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "config/config.h"
#include "study/load_studies.h"

namespace ssmbench {

void add_validate_config(Program& program) {
  Command& command = program.add("validate-config", "Check config files without running anything.",
                                 "ssmbench validate-config configs/small.json");
  auto files = std::make_shared<std::vector<std::filesystem::path>>();
  command.positionals("CONFIG", *files, "Config files");
  command.runs([files] {
    for (const auto& file : *files) {
      if (const auto studies = load_studies({file}); !studies.empty())
        fmt::print("{}: {} studies\n", file.string(), studies.size());
      else
        fmt::print("{}: {} cases\n", file.string(), load_config(file, {}, false).size());
    }
    return int{kOk};
  });
}

}  // namespace ssmbench
