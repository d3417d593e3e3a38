#pragma once

#include <string>
#include <vector>

namespace ssmbench {

/// How the continuous system h' = A·h + B·u becomes h_t = Ā·h_{t-1} + c·B_t·u_t over a step Δ.
struct Method {
  std::string name;
  std::string decay;  ///< Ā, for people
  std::string input;  ///< c, for people
  std::string summary;
};

const std::vector<Method>& methods();
std::vector<std::string> method_names();

}  // namespace ssmbench
