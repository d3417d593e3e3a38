#pragma once

#include <cstddef>

namespace ssmbench {

/// Memory on both sides of every host and device buffer that nobody may write to. A multiple of 256 bytes, so
/// that buffers stay aligned as cudaMalloc has them.
inline constexpr std::size_t kBandBytes = 1024;
/// What fills it: in every dtype a large finite number (f32 -1.4e23), which shows in results that depend on
/// what lies beyond a buffer.
inline constexpr unsigned char kBandByte = 0xE5;

}  // namespace ssmbench
