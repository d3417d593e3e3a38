// The manual page and the completions against what --help says: a walk of the same tree by CLI11 itself.

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench::test;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string output_of(const std::string& arguments) {
  const CommandResult result = run_ssmbench(arguments);
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return result.out;
}

std::vector<std::string> subcommands() {
  std::vector<std::string> names;
  bool listed = false;
  for (const auto& line : lines_of(output_of("--help"))) {
    if (listed && line.starts_with("  ") && line[2] != ' ')
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    if (line == "Subcommands:") listed = true;
  }
  return names;
}

/// "--verbose" and "-v", of lines such as "  -v,--verbose    Print …".
std::vector<std::string> options_in_help(const std::string& command) {
  std::vector<std::string> names;
  for (const auto& line : lines_of(output_of(command + " --help"))) {
    if (!line.starts_with("  -")) continue;
    std::istringstream together(line.substr(2, line.find(' ', 2) - 2));
    for (std::string name; std::getline(together, name, ',');) names.push_back(name);
  }
  return names;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

/// From `begin` to the next `end` after it; empty when there is no such part.
std::string part(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  return text.substr(at, text.find(end, at + begin.size()) - at);
}

}  // namespace

TEST_CASE("the manual page and the completions have each option of each subcommand") {
  const std::string man = output_of("man");
  const std::string bash = output_of("completion bash");
  const std::string zsh = output_of("completion zsh");
  const std::string fish = output_of("completion fish");
  const auto commands = subcommands();
  CHECK(commands.size() > 8);
  for (const auto& command : commands) {
    INFO(command);
    std::string roff_name = command;
    for (std::size_t at = 0; (at = roff_name.find('-', at)) != std::string::npos; at += 2)
      roff_name.insert(at, "\\");
    const std::string of_man = part(man, ".SS " + roff_name + "\n", ".S");
    const std::string of_bash = part(bash, "    " + command + ") options='", ";;");
    const std::string of_zsh = part(zsh, "      " + command + ")\n", ";;");
    CHECK(zsh.find("'" + command + ":") != std::string::npos);
    CHECK(has_word(fish, "__fish_use_subcommand' -f -a " + command));
    for (const auto& option : options_in_help(command)) {
      INFO(option);
      const bool is_long = option.starts_with("--");
      const std::string bare = option.substr(is_long ? 2 : 1);
      std::string roff = option;
      for (std::size_t at = 0; (at = roff.find('-', at)) != std::string::npos; at += 2) roff.insert(at, "\\");
      CHECK(of_man.find(roff) != std::string::npos);
      CHECK(has_word(of_bash, option));
      CHECK(has_word(of_zsh, option));
      const auto fish_lines = lines_of(fish);
      CHECK(std::ranges::any_of(fish_lines, [&](const std::string& line) {
        return line.find("from " + command + "'") != std::string::npos &&
               has_word(line, (is_long ? "-l " : "-s ") + bare);
      }));
    }
  }
}

TEST_CASE("what is hidden from help is in no completion") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = output_of(std::string("completion ") + shell);
    CHECK(script.find("rehearse") == std::string::npos);
    CHECK(script.find("worker") == std::string::npos);
  }
}

TEST_CASE("bash completes subcommands, options and values") {
  const TemporaryFolder folder;
  const auto completed = [&](const std::string& line) {
    const CommandResult result =
        run_shell("bash -c 'source <(" SSMBENCH_EXECUTABLE " completion bash); COMP_WORDS=(" + line +
                      " \"\"); COMP_WORDS=(\"${COMP_WORDS[@]:0:${#COMP_WORDS[@]}-1}\"); "
                      "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ssmbench; "
                      "echo \"${COMPREPLY[*]}\"'",
                  folder.path().string());
    CHECK(result.err == "");
    return result.out;
  };
  CHECK(completed("ssmbench va") == "validate-config\n");
  CHECK(completed("ssmbench gate --max-r") == "--max-regression\n");
  CHECK(completed("ssmbench gate --timing \"\"") == "hot cold graph\n");
  CHECK(completed("ssmbench run --dump-what f") == "failed\n");
  CHECK(completed("ssmbench list me") == "methods\n");
  CHECK(completed("ssmbench --ver") == "--version\n");
}

TEST_CASE("the manual page formats without a complaint") {
  const TemporaryFolder folder;
  if (run_shell("command -v groff", folder.path().string()).exit_code != 0) {
    WARN("skipped: no groff");
    return;
  }
  const CommandResult result =
      run_shell("'" SSMBENCH_EXECUTABLE "' man | groff -man -Tutf8 -ww -z", folder.path().string());
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
}
