#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ssmbench {

/// Rules by which the continuous system h' = A·h + B·u becomes a recurrence over steps Δ. With z = Δ·A,
/// φ1(z) = (e^z − 1)/z and φ2(z) = (e^z − 1 − z)/z²:
///   one sample:   h_t = Ā·h_{t-1} + c·B_t·u_t
///   two samples:  h_t = Ā·h_{t-1} + c·B_t·u_t + c'·B_{t-1}·u_{t-1}, with B·u = 0 before the first step
enum class MethodId {
  zoh,
  foh,
  bilinear,
  bilinear_flipped,
  poly,
  highorder,
  rk4,
  vim_foh,
  vim_poly,
  vim_highorder,
  foh_exact,
  trapezoidal
};

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
