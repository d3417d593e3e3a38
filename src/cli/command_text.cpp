#include "cli/command_text.h"

#include <CLI/CLI.hpp>
#include <string_view>

namespace ssmbench {
namespace {

/// CLI11 keeps them in the name of the type only: "TEXT:{hot,cold,graph}".
std::vector<std::string> choices_in(std::string_view type) {
  const std::size_t begin = type.find(":{");
  if (begin == std::string_view::npos || !type.ends_with('}')) return {};
  return CLI::detail::split(std::string(type.substr(begin + 2, type.size() - begin - 3)), ',');
}

ArgumentText argument_text(const CLI::Option& option) {
  ArgumentText text;
  const bool is_positional = option.get_positional();
  if (is_positional) text.names.push_back(option.get_name());
  for (const auto& name : option.get_snames()) text.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) text.names.push_back("--" + name);
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() > 0) text.value = type.substr(0, type.find(':'));
  text.choices = choices_in(type);
  text.description = option.get_description();
  text.required = option.get_required();
  text.several = is_positional && option.get_items_expected_max() > 1;
  return text;
}

}  // namespace

CommandText command_text(const CLI::App& app) {
  constexpr std::string_view kExample = "Example: ";
  CommandText text;
  text.name = app.get_name();
  text.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    (option->get_positional() ? text.positionals : text.options).push_back(argument_text(*option));
  }
  const std::string footer = app.get_footer();
  if (footer.starts_with(kExample)) text.example = footer.substr(kExample.size());
  for (const CLI::App* command : app.get_subcommands({}))
    if (!command->get_group().empty()) text.commands.push_back(command_text(*command));
  return text;
}

}  // namespace ssmbench
