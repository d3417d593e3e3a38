#pragma once

#include <string>
#include <vector>

namespace ssmbench {

/// What the command line takes, as text: the manual page and the completions are made of it.
struct ArgumentText {
  std::vector<std::string> names;    ///< "-v", "--verbose"; of a positional argument "CONFIG" alone
  std::string value;                 ///< what an option takes: "FILE"; empty for a flag
  std::vector<std::string> choices;  ///< all values that there are; empty when it takes others
  std::string description;
  bool required = false;
  bool several = false;  ///< a positional argument that takes more than one
};

struct CommandText {
  std::string name;
  std::string description;
  std::vector<ArgumentText> positionals;
  std::vector<ArgumentText> options;
  std::string example;                ///< a command line
  std::vector<CommandText> commands;  ///< of the program: its subcommands
};

/// A manual page, in the macros of man(7).
std::string manual_page(const CommandText& program, const std::string& version);

std::string bash_completion(const CommandText& program);
std::string zsh_completion(const CommandText& program);
std::string fish_completion(const CommandText& program);

}  // namespace ssmbench
