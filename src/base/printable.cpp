#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace ssmbench {

std::string printable(std::string_view text) {
  constexpr unsigned char kLeadOfC1 = 0xC2, kFirstC1 = 0x80, kLastC1 = 0x9F;
  const auto is_plain = [](char c) { return c >= ' ' && c < '\x7F'; };
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : '\0';
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (c < ' ' || c == 0x7F) {
      result += fmt::format("\\x{:02x}", c);
    } else if (c == kLeadOfC1 && next >= kFirstC1 && next <= kLastC1) {
      result += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace ssmbench
