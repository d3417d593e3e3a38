#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>
#include <utility>

#include "cli/command_text.h"
#include "cli/exit_code.h"

namespace ssmbench {
namespace {

/// As roff prints it: a minus that can be copied, no escapes, no line that begins with a request.
std::string roff(std::string_view text) {
  std::string escaped;
  if (text.starts_with('.') || text.starts_with('\'')) escaped = "\\&";
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  return escaped;
}

std::string entry(const ArgumentText& argument) {
  std::string head = fmt::format("\\fB{}\\fR", roff(fmt::format("{}", fmt::join(argument.names, ", "))));
  const std::string choices = fmt::format("{}", fmt::join(argument.choices, "|"));
  if (!argument.value.empty() && argument.names.front().starts_with('-'))
    head += fmt::format(" \\fI{}\\fR", roff(choices.empty() ? argument.value : choices));
  return fmt::format(".TP\n{}\n{}\n", head, roff(argument.description));
}

constexpr std::array<std::pair<int, std::string_view>, 8> kExitCodes{{
    {kOk, "everything passed"},
    {kOutOfTolerance, "an output was out of tolerance, or memory was overwritten"},
    {kUsage, "wrong usage or an invalid config"},
    {kRegression, "gate: something got slower or less exact"},
    {kDeviceOrCrash, "a device failed, an implementation crashed, or a file could not be written"},
    {kNothingMatched, "nothing matched, so nothing ran"},
    {kInconclusive, "gate: the samples do not tell, with --fail-on-inconclusive"},
    {kInterrupted, "interrupted"},
}};

std::string synopsis(const CommandText& command) {
  std::string line = fmt::format(".B ssmbench {}\n[\\fIOPTION\\fR]...", roff(command.name));
  for (const auto& positional : command.positionals) {
    const std::string name =
        fmt::format("\\fI{}\\fR{}", roff(positional.names.front()), positional.several ? "..." : "");
    line += positional.required ? " " + name : fmt::format(" [{}]", name);
  }
  return line + "\n.br\n";
}

}  // namespace

std::string manual_page(const CommandText& program, const std::string& version) {
  std::string page = fmt::format(".TH SSMBENCH 1 \"\" \"ssmbench {0}\" \"User Commands\"\n", roff(version));
  page += ".SH NAME\nssmbench \\- benchmark and validate state\\-space\\-model kernels\n.SH SYNOPSIS\n";
  for (const auto& command : program.commands) page += synopsis(command);
  page += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS\n", roff(program.description));
  for (const auto& option : program.options) page += entry(option);
  page += ".SH COMMANDS\n";
  for (const auto& command : program.commands) {
    page += fmt::format(".SS {}\n{}\n", roff(command.name), roff(command.description));
    for (const auto& positional : command.positionals) page += entry(positional);
    for (const auto& option : command.options) page += entry(option);
  }
  page += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) page += fmt::format(".TP\n.B {}\n{}\n", code, roff(meaning));
  page += ".SH EXAMPLES\n.nf\n";
  for (const auto& command : program.commands)
    if (!command.example.empty()) page += roff(command.example) + "\n";
  return page + ".fi\n";
}

}  // namespace ssmbench
