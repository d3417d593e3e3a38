#include "model/method.h"

namespace ssmbench {

const std::vector<Method>& methods() {
  static const std::vector<Method> all{
      {"zoh", "e^(ΔA)", "Δ", "Mamba's rule: exact decay, Euler input"},
  };
  return all;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& method : methods()) names.push_back(method.name);
  return names;
}

}  // namespace ssmbench
