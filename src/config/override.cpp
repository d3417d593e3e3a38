#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

#include "base/errors.h"
#include "config/config.h"
#include "config/range.h"

namespace ssmbench {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (auto end = text.find(separator); end != text.npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

AxisValue parse_value(std::string_view text) {
  if (const auto number = parse_integer(text)) return *number;
  if (text == "true" || text == "false") return text == "true";
  return std::string(text);
}

/// "512:65536:*2" or "64:256:+64"; nothing for other texts.
std::optional<Range> parse_range(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() != 3 || parts[2].empty()) return {};
  const auto from = parse_integer(parts[0]);
  const auto to = parse_integer(parts[1]);
  const auto advance = parse_integer(parts[2].substr(1));
  if (!from || !to || !advance) return {};
  if (parts[2].front() == '*') return Range{.from = *from, .to = *to, .times = *advance};
  if (parts[2].front() == '+') return Range{.from = *from, .to = *to, .step = *advance};
  return {};
}

}  // namespace

Override parse_override(std::string_view text) {
  const std::string origin = fmt::format("--set {}", text);
  const auto malformed = [&] {
    return UsageError(origin +
                      ": expected axis=value[,value...], where a value may be a range FROM:TO:*FACTOR or "
                      "FROM:TO:+STEP");
  };
  const auto equals = text.find('=');
  if (equals == text.npos || equals == 0) throw malformed();

  Override result{std::string(text.substr(0, equals)), {}, origin};
  for (const auto item : split(text.substr(equals + 1), ',')) {
    if (item.empty()) throw malformed();
    if (item.find(':') == item.npos) {
      result.values.push_back(parse_value(item));
      continue;
    }
    const auto range = parse_range(item);
    if (!range) throw malformed();
    try {
      for (const auto value : values_of(*range)) result.values.emplace_back(value);
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("{}: {}; expected a range such as 512:65536:*2", origin, error.what()));
    }
  }
  return result;
}

}  // namespace ssmbench
