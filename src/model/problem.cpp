#include "model/problem.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/errors.h"

namespace ssmbench {

Problem::Problem(const OpSpec& op, const Axes& axes) : op_(&op), values_(op.axes.size()) {
  for (const auto& [name, value] : axes) {
    const AxisSpec* axis = op.find_axis(name);
    if (axis == nullptr) throw ContractError(fmt::format("{} has no axis '{}'", op.name, name));
    values_[static_cast<std::size_t>(axis - op.axes.data())] = value;
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const AxisSpec& axis = op.axes[i];
    auto& value = values_[i];
    if (axis.only_with && choice(axis.only_with->first) != axis.only_with->second) {
      if (!value) continue;
      throw ContractError(fmt::format("{} has no axis '{}' with {} {}", op.name, axis.name,
                                      axis.only_with->first, choice(axis.only_with->first)));
    }
    if (!value) {
      if (!axis.fallback) throw ContractError(fmt::format("{} needs the axis '{}'", op.name, axis.name));
      value = axis.fallback;
      continue;
    }
    if (auto wrong = misfit(axis, *value)) throw ContractError(*wrong);
    if (axis.kind == AxisKind::interval) value = to_string(interval(axis.name));
  }
  if (auto contradiction = op.contradiction(*this)) throw ContractError(*contradiction);
}

Axes Problem::axes() const {
  Axes axes;
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i]) axes.emplace(op_->axes[i].name, *values_[i]);
  return axes;
}

const AxisSpec* Problem::find_axis(AxisRole role) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (op_->axes[i].role == role && values_[i]) return &op_->axes[i];
  return nullptr;
}

const AxisValue* Problem::find(std::string_view axis) const {
  const AxisSpec* const spec = op_->find_axis(axis);
  if (spec == nullptr) return nullptr;
  const auto& value = values_[static_cast<std::size_t>(spec - op_->axes.data())];
  return value ? &*value : nullptr;
}

const AxisValue& Problem::value(std::string_view axis) const {
  const AxisValue* const found = find(axis);
  if (found == nullptr) throw std::logic_error(fmt::format("{} has no axis '{}'", op_->name, axis));
  return *found;
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

Problem Problem::with(const Axes& changes) const {
  Axes all = axes();
  for (const auto& [name, value] : changes) all[name] = value;
  return {*op_, all};
}

Problem Problem::canonical() const {
  Axes changes;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const AxisSpec& axis = op_->axes[i];
    if (axis.changes_values || !values_[i]) continue;
    if (axis.fallback) {
      if (values_[i] != axis.fallback) changes[axis.name] = *axis.fallback;
    } else if (axis.kind == AxisKind::choice && std::get<std::string>(*values_[i]) != axis.choices.front()) {
      changes[axis.name] = axis.choices.front();
    }
  }
  return changes.empty() ? *this : with(changes);
}

std::string Problem::id() const {
  std::string id = op_->name;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const AxisSpec& axis = op_->axes[i];
    if (!values_[i]) continue;
    if (axis.kind == AxisKind::flag) {
      if (std::get<bool>(*values_[i])) (id += '-') += axis.id_token;
    } else if (values_[i] != axis.fallback) {
      ((id += '-') += axis.id_token) += to_string(*values_[i]);
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
