#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "model/operation.h"

namespace ssmbench::test {

/// All operations, as messages list them: "a, b, c".
inline std::string op_names() {
  std::vector<std::string> names;
  for (const OpSpec* op : all_ops()) names.emplace_back(op->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace ssmbench::test
