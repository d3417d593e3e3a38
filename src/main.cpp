#include "cli/cli.h"

int main(int argc, char** argv) {
  return ssmbench::run_command_line({argv + 1, argv + argc});
}
