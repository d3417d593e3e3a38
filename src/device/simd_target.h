#pragma once

#include <string>

namespace ssmbench {

/// The instruction set that code written with Highway runs on here, by Highway's name: "AVX2", "AVX3" for
/// AVX-512.
std::string simd_target();

/// Keeps that code from instruction sets better than the one that the environment variable SSMBENCH_SIMD
/// names, if there is one. To be called before any of it runs. Throws UsageError for a name that is none of
/// those that this processor and this build have.
void limit_simd_target();

}  // namespace ssmbench
