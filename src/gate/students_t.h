#pragma once

namespace ssmbench {

/// The probability that |T| is over `t` ≥ 0, where T has Student's t distribution with `freedom` > 0 degrees
/// of freedom: I(ν/(ν + t²); ν/2, ½), the regularized incomplete beta function (DLMF 8.17), to 12 digits also
/// where it is tiny. `t` may be infinite.
double students_t_outside(double t, double freedom);

/// The t at which students_t_outside is `probability`, in (0, 1).
double students_t_quantile(double probability, double freedom);

}  // namespace ssmbench
