#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "model/build_info.h"

namespace ssmbench {
namespace {

/// Between single quotes of a shell; `quote` is how the shell writes a single quote there.
std::string single_quoted(std::string_view text, std::string_view quote = "'\\''") {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string(quote) : std::string(1, c);
  return result + "'";
}

std::string words(const std::vector<std::string>& all) {
  return fmt::format("{}", fmt::join(all, " "));
}

std::vector<std::string> option_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const auto& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::vector<std::string> command_names(const CommandText& program) {
  std::vector<std::string> names;
  for (const auto& command : program.commands) names.push_back(command.name);
  return names;
}

/// In brackets and before colons, which zsh's specifications give a meaning.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// What _arguments is told of one option or positional argument.
std::string zsh_argument(const ArgumentText& argument) {
  const std::string values =
      argument.choices.empty() ? "_files" : fmt::format("({})", words(argument.choices));
  if (!argument.names.front().starts_with('-'))
    return single_quoted(
        fmt::format("{}:{}:{}", argument.several ? "*" : "", argument.names.front(), values));
  const std::string value = argument.value.empty() ? "" : fmt::format(":{}:{}", argument.value, values);
  const std::string rest = single_quoted(fmt::format("[{}]{}", zsh_text(argument.description), value));
  if (argument.names.size() == 1) return argument.names.front() + rest;
  return fmt::format("'({})'{{{}}}{}", words(argument.names), fmt::join(argument.names, ","), rest);
}

std::string zsh_arguments(const CommandText& command) {
  std::string lines;
  for (const auto& option : command.options) lines += fmt::format(" \\\n        {}", zsh_argument(option));
  for (const auto& positional : command.positionals)
    lines += fmt::format(" \\\n        {}", zsh_argument(positional));
  return lines;
}

std::string fish_argument(std::string_view condition, const ArgumentText& argument) {
  std::string line = fmt::format("complete -c ssmbench -n '{}'", condition);
  for (const auto& name : argument.names) {
    if (name.starts_with("--")) line += " -l " + name.substr(2);
    if (name.starts_with('-') && !name.starts_with("--")) line += " -s " + name.substr(1);
  }
  if (!argument.choices.empty())
    line += fmt::format(" -x -a {}", single_quoted(words(argument.choices), "\\'"));
  else if (!argument.value.empty())
    line += " -r";
  return fmt::format("{} -d {}\n", line, single_quoted(argument.description, "\\'"));
}

}  // namespace

std::string bash_completion(const CommandText& program) {
  std::string options = fmt::format("    '') options='{}' ;;\n", words(option_names(program)));
  std::string choices;
  for (const auto& command : program.commands) {
    options += fmt::format("    {}) options='{}' ;;\n", command.name, words(option_names(command)));
    for (const auto& option : command.options)
      for (const auto& name : option.names)
        if (!option.choices.empty())
          choices += fmt::format("    {}:{}) values='{}' ;;\n", command.name, name, words(option.choices));
    for (const auto& positional : command.positionals)
      if (!positional.choices.empty())
        choices += fmt::format("    {0}:{0}) values='{1}' ;;\n", command.name, words(positional.choices));
  }
  return fmt::format(R"(# Completion of ssmbench for bash.
_ssmbench() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command='' options='' values='' i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${{COMP_WORDS[i]}} != -* ]]; then command=${{COMP_WORDS[i]}} && break; fi
  done
  case $command in
{}  esac
  case $command:$before in
{}  esac
  if [[ -z $command ]]; then values='{}'; fi
  if [[ $word == -* ]]; then values=$options; fi
  # Without values: names of files.
  mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
}}
complete -o default -F _ssmbench ssmbench
)",
                     options, choices, words(command_names(program)));
}

std::string zsh_completion(const CommandText& program) {
  std::string commands;
  std::string arguments;
  for (const auto& command : program.commands) {
    commands += fmt::format("        {}\n",
                            single_quoted(fmt::format("{}:{}", command.name, zsh_text(command.description))));
    arguments +=
        fmt::format("      {})\n      _arguments{}\n      ;;\n", command.name, zsh_arguments(command));
  }
  return fmt::format(R"(#compdef ssmbench
# Completion of ssmbench for zsh.
_ssmbench() {{
  local context state state_descr line
  typeset -A opt_args
  _arguments -C{} \
        '1:command:->command' \
        '*::argument:->argument'
  case $state in
    command)
      local -a commands=(
{}      )
      _describe command commands
      ;;
    argument)
      case $words[1] in
{}      esac
      ;;
  esac
}}
_ssmbench "$@"
)",
                     zsh_arguments(program), commands, arguments);
}

std::string fish_completion(const CommandText& program) {
  std::string lines = "# Completion of ssmbench for fish.\n";
  for (const auto& option : program.options) lines += fish_argument("__fish_use_subcommand", option);
  for (const auto& command : program.commands) {
    lines += fmt::format("complete -c ssmbench -n '__fish_use_subcommand' -f -a {} -d {}\n", command.name,
                         single_quoted(command.description, "\\'"));
    const std::string here = "__fish_seen_subcommand_from " + command.name;
    for (const auto& option : command.options) lines += fish_argument(here, option);
    for (const auto& positional : command.positionals)
      if (!positional.choices.empty()) lines += fish_argument(here, positional);
  }
  return lines;
}

void add_completion(Program& program) {
  Command& command = program.add("completion", "Print a completion script for a shell.",
                                 "source <(ssmbench completion bash)");
  auto shell = std::make_shared<std::string>();
  command.positional_choice("SHELL", *shell, "Shell to complete in", {"bash", "zsh", "fish"});
  command.runs([&program, shell] {
    const CommandText text = program.text();
    fmt::print("{}", *shell == "bash"  ? bash_completion(text)
                     : *shell == "zsh" ? zsh_completion(text)
                                       : fish_completion(text));
    return kOk;
  });
}

void add_man(Program& program) {
  Command& command = program.add_hidden("man", "Print the manual page.");  // for the build
  command.runs([&program] {
    fmt::print("{}", manual_page(program.text(), std::string(build_info().version)));
    return kOk;
  });
}

}  // namespace ssmbench
