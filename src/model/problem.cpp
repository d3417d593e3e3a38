#include "model/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "model/errors.h"
#include "model/linear_scan.h"
#include "model/selective_scan.h"
#include "model/ssd.h"
#include "model/state_update.h"

namespace ssmbench {
namespace {

/// What is wrong with `value` on `axis`; nothing when it fits.
std::optional<std::string> misfit(const AxisSpec& axis, const AxisValue& value) {
  switch (axis.kind) {
    case AxisKind::size:
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

}  // namespace

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

const AxisSpec* OpSpec::find_axis(std::string_view axis) const {
  const auto found = std::ranges::find(axes, axis, &AxisSpec::name);
  return found == axes.end() ? nullptr : &*found;
}

const std::vector<const OpSpec*>& all_ops() {
  static const std::vector<const OpSpec*> ops{&selective_scan_fwd(), &selective_scan_bwd(),
                                              &linear_scan(),        &ssd_chunk_scan_fwd(),
                                              &ssd_chunk_scan_bwd(), &selective_state_update()};
  return ops;
}

const OpSpec* find_op(std::string_view name) {
  const auto found = std::ranges::find(all_ops(), name, [](const OpSpec* op) { return op->name; });
  return found == all_ops().end() ? nullptr : *found;
}

Problem::Problem(const OpSpec& op, std::map<std::string, AxisValue> axes) : op_(&op), axes_(std::move(axes)) {
  for (const auto& [name, _] : axes_)
    if (op.find_axis(name) == nullptr) throw ContractError(fmt::format("{} has no axis '{}'", op.name, name));
  for (const auto& axis : op.axes) {
    auto found = axes_.find(axis.name);
    if (axis.only_with && choice(axis.only_with->first) != axis.only_with->second) {
      if (found == axes_.end()) continue;
      throw ContractError(fmt::format("{} has no axis '{}' with {} {}", op.name, axis.name,
                                      axis.only_with->first, choice(axis.only_with->first)));
    }
    if (found == axes_.end()) {
      if (!axis.fallback) throw ContractError(fmt::format("{} needs the axis '{}'", op.name, axis.name));
      found = axes_.emplace(axis.name, *axis.fallback).first;
    }
    if (auto wrong = misfit(axis, found->second)) throw ContractError(*wrong);
    if (axis.kind == AxisKind::interval) found->second = to_string(interval(axis.name));
  }
  if (auto contradiction = op.contradiction(*this)) throw ContractError(*contradiction);
}

const AxisValue& Problem::value(std::string_view axis) const {
  const auto found = axes_.find(std::string(axis));
  if (found == axes_.end()) throw std::logic_error(fmt::format("{} has no axis '{}'", op_->name, axis));
  return found->second;
}

std::int64_t Problem::size(std::string_view axis) const {
  return std::get<std::int64_t>(value(axis));
}
bool Problem::flag(std::string_view axis) const {
  return std::get<bool>(value(axis));
}
const std::string& Problem::choice(std::string_view axis) const {
  return std::get<std::string>(value(axis));
}
Interval Problem::interval(std::string_view axis) const {
  return *parse_interval(choice(axis));
}
DType Problem::dtype() const {
  return *parse_dtype(choice("dtype"));
}

Problem Problem::with(const std::map<std::string, AxisValue>& changes) const {
  auto axes = axes_;
  for (const auto& [name, value] : changes) axes[name] = value;
  return {*op_, std::move(axes)};
}

std::string Problem::id() const {
  std::vector<std::string> tokens{op_->name};
  for (const auto& axis : op_->axes) {
    if (!has(axis)) continue;
    const AxisValue& here = value(axis.name);
    if (axis.kind == AxisKind::flag) {
      if (std::get<bool>(here)) tokens.push_back(axis.id_token);
    } else if (here != axis.fallback) {
      tokens.push_back(axis.id_token + to_string(here));
    }
  }
  return fmt::format("{}", fmt::join(tokens, "-"));
}

}  // namespace ssmbench
