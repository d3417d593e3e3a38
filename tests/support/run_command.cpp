#include "support/run_command.h"

#include <sys/wait.h>

#include <cstdlib>
#include <regex>

#include "support/temporary_folder.h"

namespace ssmbench::test {

namespace {

/// Progress is printed every ten seconds, which a quick command takes on a busy machine only: no test is about it.
std::string without_progress(const std::string& err) {
  static const std::regex progress("^[0-9]+(/[0-9]+)?(, about [^:]* left)?: ");
  std::string kept;
  for (std::size_t begin = 0; begin < err.size();) {
    const std::size_t newline = err.find('\n', begin);
    const std::size_t end = newline == std::string::npos ? err.size() : newline + 1;
    const std::string line = err.substr(begin, end - begin);
    if (!std::regex_search(line, progress)) kept += line;
    begin = end;
  }
  return kept;
}

}  // namespace

CommandResult run_shell(const std::string& command, const std::string& directory) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string();
  const std::string err = (folder.path() / "err").string();
  // What runs in a workflow of GitHub is not to annotate it with failures that are asked for.
  const std::string line = "unset GITHUB_ACTIONS; cd '" + directory + "' && { " + command + " ; } >'" + out +
                           "' 2>'" + err + "' </dev/null";
  const int status = std::system(line.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(out), without_progress(read_file(err))};
}

CommandResult run_ssmbench(const std::string& arguments) {
  return run_shell("'" SSMBENCH_EXECUTABLE "' " + arguments, SSMBENCH_SOURCE_DIR);
}

}  // namespace ssmbench::test
