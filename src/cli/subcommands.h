#pragma once

#include <string>
#include <vector>

#include "cli/program.h"

namespace ssmbench {

// Each adds one subcommand. `arguments` are those of the program, which results and files record.

void add_run(Program& program, const std::vector<std::string>& arguments);
void add_list(Program& program, const std::vector<std::string>& arguments);
void add_report(Program& program);
void add_check(Program& program);
void add_compare(Program& program);
void add_gate(Program& program);
void add_dump(Program& program, const std::vector<std::string>& arguments);
void add_schema(Program& program);
void add_validate_config(Program& program);
void add_completion(Program& program);
void add_man(Program& program);

}  // namespace ssmbench
