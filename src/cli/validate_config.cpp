#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "config/config.h"
#include "study/load_studies.h"

namespace ssmbench {

void add_validate_config(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("validate-config", "Check config files without running anything.");
  command->footer("Example: ssmbench validate-config configs/small.json");
  auto files = std::make_shared<std::vector<std::filesystem::path>>();
  command->add_option("CONFIG", *files, "Config files")->required();
  command->callback([&action, files] {
    action = [files] {
      for (const auto& file : *files) {
        if (const auto studies = load_studies({file}); !studies.empty())
          fmt::print("{}: {} studies\n", file.string(), studies.size());
        else
          fmt::print("{}: {} cases\n", file.string(), load_config(file, {}, false).size());
      }
      return kOk;
    };
  });
}

}  // namespace ssmbench
