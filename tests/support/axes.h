#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "model/problem.h"

namespace ssmbench::test {

/// Axes of a problem, by name.
using Axes = std::map<std::string, AxisValue>;

inline AxisValue size(std::int64_t value) {
  return value;
}

}  // namespace ssmbench::test
