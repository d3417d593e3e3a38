#include "model/axis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace ssmbench {

std::string to_string(const AxisValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::get<std::string>(value);
}

std::optional<Interval> parse_interval(std::string_view word) {
  const auto dots = word.find("..");
  if (dots == std::string_view::npos) return {};
  const auto number = [](std::string_view text) -> std::optional<double> {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) return {};
    return value;
  };
  const auto low = number(word.substr(0, dots));
  const auto high = number(word.substr(dots + 2));
  if (!low || !high || !(*low <= *high)) return {};
  return Interval{*low + 0.0, *high + 0.0};  // no -0, which would be a second word for 0
}

std::string to_string(const Interval& interval) {
  return fmt::format("{}..{}", interval.low, interval.high);
}

std::optional<std::string> misfit(const AxisSpec& axis, const AxisValue& value) {
  switch (axis.kind) {
    case AxisKind::size:
      if (value == axis.fallback) return {};  // 0 where nothing of the kind is there
      if (const auto* number = std::get_if<std::int64_t>(&value); number != nullptr && *number >= 1)
        return {};
      return fmt::format("{} must be an integer of at least 1, got {}", axis.name, to_string(value));
    case AxisKind::flag:
      if (std::holds_alternative<bool>(value)) return {};
      return fmt::format("{} must be true or false, got {}", axis.name, to_string(value));
    case AxisKind::choice:
      if (const auto* word = std::get_if<std::string>(&value);
          word != nullptr && std::ranges::find(axis.choices, *word) != axis.choices.end())
        return {};
      return fmt::format("{} must be one of {}, got {}", axis.name, fmt::join(axis.choices, ", "),
                         to_string(value));
    case AxisKind::interval:
      if (const auto* word = std::get_if<std::string>(&value); word != nullptr && parse_interval(*word))
        return {};
      return fmt::format("{} must be two numbers LOW..HIGH with LOW at most HIGH, got {}", axis.name,
                         to_string(value));
  }
  throw std::logic_error("unreachable");
}

}  // namespace ssmbench
