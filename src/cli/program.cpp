#include "cli/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "cli/exit_code.h"

namespace ssmbench {
namespace {

constexpr const char* kHelpNames = "-h,--help";
constexpr const char* kHelp = "Print this help and exit";

/// CLI11's help, without the blank line that it leaves for hidden options.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("REQUIRED", ""); }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode), "\n\n\n",
                                         "\n\n");
  }
};

/// A finite number, positive or also 0. CLI11's own checks let NaN pass, and in their message the largest
/// double has all of its digits.
CLI::Validator finite(bool or_zero) {
  return {[or_zero](const std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
            if (is_number && (value > 0 || (or_zero && value == 0))) return std::string();
            return fmt::format("got {}; expected a number {}", text, or_zero ? "of at least 0" : "above 0");
          },
          ""};
}

std::string in_braces(const std::vector<std::string>& choices) {
  return fmt::format("{{{}}}", fmt::join(choices, ","));
}

void add_option_text(CommandText& text, const std::string& names, const std::string& value,
                     const std::string& help, const std::vector<std::string>& choices = {}) {
  text.options.push_back(
      {.names = CLI::detail::split(names, ','), .value = value, .choices = choices, .description = help});
}

template <class Value>
CLI::Option* add_option(CLI::App& app, CommandText& text, const std::string& names, const std::string& value,
                        Value& to, const std::string& help) {
  add_option_text(text, names, value, help);
  return app.add_option(names, to, help)->option_text(value);
}

template <class Value>
CLI::Option* add_positional(CLI::App& app, CommandText& text, const std::string& name, Value& to,
                            const std::string& help, bool required) {
  constexpr bool kSeveral = !std::is_same_v<Value, std::string>;
  text.positionals.push_back({.names = {name},
                              .value = "",
                              .choices = {},
                              .description = help,
                              .required = required,
                              .several = kSeveral});
  return app.add_option(name, to, help)->type_name("")->required(required);
}

}  // namespace

void Command::positional(const std::string& name, std::string& to, const std::string& help) {
  add_positional(app_, text_, name, to, help, true);
}

void Command::positional_choice(const std::string& name, std::string& to, const std::string& help,
                                const std::vector<std::string>& choices) {
  add_positional(app_, text_, name, to, help, true)
      ->check(CLI::IsMember(choices))
      ->option_text(in_braces(choices));
  text_.positionals.back().choices = choices;
}

void Command::positionals(const std::string& name, std::vector<std::string>& to, const std::string& help) {
  add_positional(app_, text_, name, to, help, true);
}

void Command::positionals(const std::string& name, std::vector<std::filesystem::path>& to,
                          const std::string& help) {
  add_positional(app_, text_, name, to, help, true);
}

void Command::optional_positionals(const std::string& name, std::vector<std::filesystem::path>& to,
                                   const std::string& help) {
  add_positional(app_, text_, name, to, help, false);
}

void Command::flag(const std::string& names, bool& to, const std::string& help) {
  add_option_text(text_, names, "", help);
  app_.add_flag(names, to, help);
}

void Command::hidden_flag(const std::string& name, bool& to) {
  app_.add_flag(name, to)->group("");
}

void Command::option(const std::string& names, const std::string& value, std::string& to,
                     const std::string& help) {
  add_option(app_, text_, names, value, to, help);
}

void Command::required_option(const std::string& names, const std::string& value, std::string& to,
                              const std::string& help) {
  add_option(app_, text_, names, value, to, help)->required()->option_text(value + " (required)");
}

void Command::option(const std::string& names, const std::string& value, std::optional<std::int64_t>& to,
                     const std::string& help) {
  add_option(app_, text_, names, value, to, help);
}

void Command::repeated_option(const std::string& names, const std::string& value,
                              std::vector<std::string>& to, const std::string& help) {
  add_option(app_, text_, names, value, to, help)->take_all()->expected(1);
}

void Command::choice(const std::string& names, std::string& to, const std::string& help,
                     const std::vector<std::string>& choices) {
  add_option(app_, text_, names, in_braces(choices), to, help)->check(CLI::IsMember(choices));
  text_.options.back().choices = choices;
}

void Command::positive(const std::string& names, const std::string& value, double& to,
                       const std::string& help) {
  add_option(app_, text_, names, value, to, help)->check(finite(false));
}

void Command::positive(const std::string& names, const std::string& value, std::optional<double>& to,
                       const std::string& help) {
  add_option(app_, text_, names, value, to, help)->check(finite(false));
}

void Command::positive(const std::string& names, const std::string& value, std::optional<int>& to,
                       const std::string& help) {
  add_option(app_, text_, names, value, to, help)->check(finite(false));
}

void Command::at_least_0(const std::string& names, const std::string& value, std::optional<double>& to,
                         const std::string& help) {
  add_option(app_, text_, names, value, to, help)->check(finite(true));
}

void Command::at_least_0(const std::string& names, const std::string& value, std::optional<int>& to,
                         const std::string& help) {
  add_option(app_, text_, names, value, to, help)->check(finite(true));
}

void Command::runs(Action action) {
  app_.callback([&chosen = chosen_, action = std::move(action)] { chosen = action; });
}

Program::Program(const std::string& description, const std::string& version, const std::string& example)
    : app_(std::make_unique<CLI::App>(description, "ssmbench")) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_help_flag(kHelpNames, kHelp);
  app_->set_version_flag("--version", "ssmbench " + version, "Print the version and exit");
  app_->require_subcommand(1);
  app_->footer("Example: " + example);
  text_.name = "ssmbench";
  text_.description = description;
  text_.example = example;
  add_option_text(text_, kHelpNames, "", kHelp);
  add_option_text(text_, "--version", "", "Print the version and exit");
}

Program::~Program() = default;

Command& Program::add(const std::string& name, const std::string& description, const std::string& example) {
  CLI::App* command = app_->add_subcommand(name, description);
  command->footer("Example: " + example);
  CommandText& text = commands_.emplace_back();
  text.name = name;
  text.description = description;
  text.example = example;
  add_option_text(text, kHelpNames, "", kHelp);
  return added_.emplace_back(*command, text, chosen_);
}

Command& Program::add_hidden(const std::string& name, const std::string& description) {
  CommandText& text = hidden_.emplace_back();
  text.name = name;
  return added_.emplace_back(*app_->add_subcommand(name, description)->group(""), text, chosen_);
}

void Program::check_subcommand(const std::vector<std::string>& arguments) const {
  if (arguments.empty() || arguments[0].starts_with("-")) return;
  std::vector<std::string> names;
  for (const auto& command : commands_) names.push_back(command.name);
  if (std::ranges::find(names, arguments[0]) != names.end() ||
      std::ranges::find(hidden_, arguments[0], &CommandText::name) != hidden_.end())
    return;
  throw UsageError(
      fmt::format("unknown subcommand {}; expected one of {}", arguments[0], fmt::join(names, ", ")));
}

int Program::run(const std::vector<std::string>& arguments) {
  check_subcommand(arguments);
  try {
    std::vector<std::string> last_first(arguments.rbegin(), arguments.rend());  // as CLI11 takes them
    app_->parse(last_first);
  } catch (const CLI::ParseError& error) {
    // Help and version go to stdout with code 0; anything else is a usage error, in one line.
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app_->exit(error);
    std::string message = error.what();
    std::ranges::replace(message, '\n', ' ');
    throw UsageError(message + " (see --help)");
  }
  return chosen_();
}

CommandText Program::text() const {
  CommandText text = text_;
  text.commands.assign(commands_.begin(), commands_.end());
  return text;
}

}  // namespace ssmbench
