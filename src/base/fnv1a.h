#pragma once

#include <cstdint>
#include <string_view>

namespace ssmbench {

/// FNV-1a of 64 bits (Fowler, Noll, Vo): for names, not against adversaries.
constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace ssmbench
