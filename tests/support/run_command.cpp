#include "support/run_command.h"

#include <sys/wait.h>

#include <cstdlib>

#include "support/temporary_folder.h"

namespace ssmbench::test {

CommandResult run_shell(const std::string& command, const std::string& directory) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string();
  const std::string err = (folder.path() / "err").string();
  // What runs in a workflow of GitHub is not to annotate it with failures that are asked for.
  const std::string line = "unset GITHUB_ACTIONS; cd '" + directory + "' && { " + command + " ; } >'" + out +
                           "' 2>'" + err + "' </dev/null";
  const int status = std::system(line.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(out), read_file(err)};
}

CommandResult run_ssmbench(const std::string& arguments) {
  return run_shell("'" SSMBENCH_EXECUTABLE "' " + arguments, SSMBENCH_SOURCE_DIR);
}

}  // namespace ssmbench::test
