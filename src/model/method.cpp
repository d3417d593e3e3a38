#include "model/method.h"

#include <algorithm>
#include <stdexcept>

namespace ssmbench {

const std::vector<Method>& methods() {
  static const std::vector<Method> all{
      {MethodId::zoh, "zoh", "e^z", "Δ", "", "Mamba's rule: exact decay, Euler input"},
      {MethodId::foh, "foh", "e^z", "Δ·φ1(z)", "",
       "the exact zero-order hold, named foh by the Vision-Mamba fork"},
      {MethodId::bilinear, "bilinear", "(1 + z/2)/(1 − z/2)", "Δ/(1 − z/2)", "",
       "Tustin's rule, A-stable for A < 0"},
      {MethodId::bilinear_flipped, "bilinear_flipped", "(1 − z/2)/(1 + z/2)", "Δ/(1 + z/2)", "",
       "the sign as that fork prints it: unstable for A < 0, pole at z = −2"},
      {MethodId::poly, "poly", "e^z", "Δ·(1 + z/2 + z²/6)", "", "Taylor series of foh to order 3"},
      {MethodId::highorder, "highorder", "e^z", "Δ·(1 + z/2)", "", "Taylor series of foh to order 2"},
      {MethodId::rk4, "rk4", "e^z", "Δ·(1 + z/2 + z²/6 + z³/24)", "", "Taylor series of foh to order 4"},
      {MethodId::vim_foh, "vim_foh", "e^z", "Δ²·(1/2 + z/6 + z²/24 + z³/120)", "",
       "what that fork's code computes under foh"},
      {MethodId::vim_poly, "vim_poly", "e^z", "Δ + (A/2 + 1/4)·Δ² + (A²/6 + A/12)·Δ³ + (A³/24 + A²/48)·Δ⁴",
       "", "that fork's poly, causal part"},
      {MethodId::vim_highorder, "vim_highorder", "e^z",
       "Δ + (A/2 + 1/2)·Δ² + (A²/6 + A/6 + 1/12)·Δ³ + (A³/24 + A²/24 + A/48)·Δ⁴", "",
       "that fork's highorder"},
      {MethodId::foh_exact, "foh_exact", "e^z", "Δ·φ2(z)", "Δ·(φ1(z) − φ2(z))",
       "the textbook first-order hold"},
      {MethodId::trapezoidal, "trapezoidal", "e^z", "Δ/2", "(Δ/2)·e^z",
       "Mamba-3's exponential-trapezoidal rule at λ = 1/2"},
  };
  return all;
}

const Method& method_named(std::string_view name) {
  const auto found = std::ranges::find(methods(), name, &Method::name);
  if (found == methods().end()) throw std::logic_error("no such method");
  return *found;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& method : methods()) names.push_back(method.name);
  return names;
}

}  // namespace ssmbench
