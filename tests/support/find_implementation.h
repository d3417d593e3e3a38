#pragma once

#include <stdexcept>
#include <string>

#include "model/implementation.h"

namespace ssmbench::test {

inline const Implementation& find_implementation(const std::string& op, const std::string& name) {
  for (const auto& implementation : implementations())
    if (implementation.op == op && implementation.name == name) return implementation;
  throw std::logic_error("no " + name + " for " + op);
}

}  // namespace ssmbench::test
