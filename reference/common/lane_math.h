#pragma once

#include <cstdint>

// Elementary functions of many numbers at once, in fp64 to 3 ulp, on SIMD lanes.

namespace ssmbench {

/// e^x; beyond the range of fp64 0 or some number above 1e307. NaN of NaN, as all of these.
void exp_of(const double* x, std::int64_t count, double* to);

/// e^-|x|.
void exp_of_minus_size(const double* x, std::int64_t count, double* to);

/// log(1 + x) of x in [0, 1].
void log1p_of(const double* x, std::int64_t count, double* to);

/// `to` must not be `x`.
void sine_of(const double* x, std::int64_t count, double* to);
void cosine_of(const double* x, std::int64_t count, double* to);

}  // namespace ssmbench
