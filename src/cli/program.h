#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_text.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace ssmbench {

/// What a subcommand does once its arguments are read. Returns the exit code.
using Action = std::function<int()>;

/// The arguments of one subcommand. Parsing the command line writes the values of those that are given to the
/// variables `to`, which live until then. Names are as in "-v,--verbose", and `value` is what help calls an
/// option's value: "FILE". CLI11 does the work; only program.cpp includes it, because it takes five seconds to
/// compile wherever it is.
class Command {
 public:
  Command(CLI::App& app, CommandText& text, Action& chosen) : app_(app), text_(text), chosen_(chosen) {}

  /// In the order of the command line.
  void positional(const std::string& name, std::string& to, const std::string& help);
  void positional_choice(const std::string& name, std::string& to, const std::string& help,
                         const std::vector<std::string>& choices);
  void positionals(const std::string& name, std::vector<std::string>& to, const std::string& help);
  void positionals(const std::string& name, std::vector<std::filesystem::path>& to, const std::string& help);
  /// Any number of them, also none.
  void optional_positionals(const std::string& name, std::vector<std::filesystem::path>& to,
                            const std::string& help);

  void flag(const std::string& names, bool& to, const std::string& help);
  /// Not for users: in no help.
  void hidden_flag(const std::string& name, bool& to);
  void option(const std::string& names, const std::string& value, std::string& to, const std::string& help);
  void required_option(const std::string& names, const std::string& value, std::string& to,
                       const std::string& help);
  void option(const std::string& names, const std::string& value, std::optional<std::int64_t>& to,
              const std::string& help);
  /// May be given several times, with one value each.
  void repeated_option(const std::string& names, const std::string& value, std::vector<std::string>& to,
                       const std::string& help);
  void choice(const std::string& names, std::string& to, const std::string& help,
              const std::vector<std::string>& choices);
  /// A finite number above 0.
  void positive(const std::string& names, const std::string& value, double& to, const std::string& help);
  void positive(const std::string& names, const std::string& value, std::optional<double>& to,
                const std::string& help);
  void positive(const std::string& names, const std::string& value, std::optional<int>& to,
                const std::string& help);
  /// A finite number of at least 0.
  void at_least_0(const std::string& names, const std::string& value, std::optional<double>& to,
                  const std::string& help);
  void at_least_0(const std::string& names, const std::string& value, std::optional<int>& to,
                  const std::string& help);

  /// What to do when this subcommand was given.
  void runs(Action action);

 private:
  CLI::App& app_;
  CommandText& text_;
  Action& chosen_;
};

/// The command line of the whole program.
class Program {
 public:
  /// `version` is what --version says behind the program's name.
  Program(const std::string& description, const std::string& version, const std::string& example);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program(Program&&) = delete;
  Program& operator=(Program&&) = delete;

  /// A subcommand. It lives as long as the program does.
  Command& add(const std::string& name, const std::string& description, const std::string& example);
  /// One that is in no help.
  Command& add_hidden(const std::string& name, const std::string& description);

  /// Parses `arguments` and does what they ask for. Throws UsageError, and what the subcommand throws.
  int run(const std::vector<std::string>& arguments);

  /// For the manual page and the completions: without what is hidden.
  CommandText text() const;

 private:
  /// CLI11 would only say that a subcommand is required.
  void check_subcommand(const std::vector<std::string>& arguments) const;

  std::unique_ptr<CLI::App> app_;
  CommandText text_;
  std::deque<CommandText> commands_;
  std::deque<CommandText> hidden_;
  std::deque<Command> added_;
  Action chosen_;
};

}  // namespace ssmbench
