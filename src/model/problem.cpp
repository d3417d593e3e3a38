#include "model/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"

namespace ssmbench {

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

const AxisSpec* Problem::find_axis(AxisRole role) const {
  const auto found =
      std::ranges::find_if(op_->axes, [&](const AxisSpec& axis) { return axis.role == role && has(axis); });
  return found == op_->axes.end() ? nullptr : &*found;
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
std::int64_t Problem::groups() const {
  const AxisSpec* axis = find_axis(AxisRole::groups);
  return axis == nullptr ? 1 : size(axis->name);
}
DType Problem::dtype() const {
  return *parse_dtype(choice("dtype"));
}

Problem Problem::with(const std::map<std::string, AxisValue>& changes) const {
  auto axes = axes_;
  for (const auto& [name, value] : changes) axes[name] = value;
  return {*op_, std::move(axes)};
}

Problem Problem::canonical() const {
  std::map<std::string, AxisValue> changes;
  for (const auto& axis : op_->axes) {
    if (axis.changes_values || !has(axis)) continue;
    if (axis.fallback)
      changes[axis.name] = *axis.fallback;
    else if (axis.kind == AxisKind::choice)
      changes[axis.name] = axis.choices.front();
  }
  const bool is_canonical = std::ranges::all_of(
      changes, [&](const auto& change) { return axes_.at(change.first) == change.second; });
  return is_canonical ? *this : with(changes);
}

std::string Problem::id() const {
  std::string id = op_->name;
  for (const auto& axis : op_->axes) {
    const auto here = axes_.find(axis.name);
    if (here == axes_.end()) continue;
    if (axis.kind == AxisKind::flag) {
      if (std::get<bool>(here->second)) (id += '-') += axis.id_token;
    } else if (here->second != axis.fallback) {
      ((id += '-') += axis.id_token) += to_string(here->second);
    }
  }
  return id;
}

double tensor_bytes(const Problem& problem) {
  double bytes = 0;
  for (const auto& tensor : problem.tensors()) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

}  // namespace ssmbench
