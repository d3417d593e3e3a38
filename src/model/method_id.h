#pragma once

namespace ssmbench {

/// Rules by which the continuous system h' = A·h + B·u becomes a recurrence over steps Δ. With z = Δ·A,
/// φ1(z) = (e^z − 1)/z and φ2(z) = (e^z − 1 − z)/z²:
///   one sample:   h_t = Ā·h_{t-1} + c·B_t·u_t
///   two samples:  h_t = Ā·h_{t-1} + c·B_t·u_t + c'·B_{t-1}·u_{t-1}, with B·u = 0 before the first step
/// What each of them is: methods() in model/method.h.
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

}  // namespace ssmbench
