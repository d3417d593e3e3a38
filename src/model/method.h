#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/method_id.h"

namespace ssmbench {

struct Method {
  MethodId id;
  std::string name;
  std::string decay;           ///< Ā, for people
  std::string input;           ///< c, for people
  std::string previous_input;  ///< c', for people; empty for methods of one sample
  std::string summary;

  bool two_samples() const { return !previous_input.empty(); }
};

/// In the order of MethodId.
const std::vector<Method>& methods();
const Method& method_named(std::string_view name);
std::vector<std::string> method_names();

}  // namespace ssmbench
