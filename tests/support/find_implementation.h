#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "model/implementation.h"

namespace ssmbench::test {

inline const Implementation& find_implementation(std::string_view op, std::string_view name) {
  for (const auto& implementation : implementations())
    if (implementation.op == op && implementation.name == name) return implementation;
  throw std::logic_error("no " + std::string(name) + " for " + std::string(op));
}

}  // namespace ssmbench::test
