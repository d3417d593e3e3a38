#include "model/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace ssmbench {
namespace {

std::vector<const OpSpec*>& op_registry() {
  static std::vector<const OpSpec*> all;
  return all;
}

const std::string& op_name(const OpSpec* op) {
  return op->name;
}

}  // namespace

const AxisSpec* OpSpec::find_axis(std::string_view axis) const {
  // First letters before names: listing a million cases asks for 10⁸ axes, and memcmp is no inline function.
  const auto found = std::ranges::find_if(axes, [axis](const AxisSpec& spec) {
    return spec.name.size() == axis.size() && spec.name.front() == axis.front() && spec.name == axis;
  });
  return found == axes.end() ? nullptr : &*found;
}

const AxisSpec* OpSpec::find_axis(AxisRole role) const {
  const auto found = std::ranges::find(axes, role, &AxisSpec::role);
  return found == axes.end() ? nullptr : &*found;
}

const PartwiseComputation* OpSpec::find_parts(std::string_view check) const {
  const auto found = std::ranges::find(parts, check, &PartwiseComputation::check);
  return found == parts.end() ? nullptr : &*found;
}

const std::vector<const OpSpec*>& all_ops() {
  return op_registry();
}

const OpSpec* find_op(std::string_view name) {
  const auto found = std::ranges::find(all_ops(), name, op_name);
  return found == all_ops().end() ? nullptr : *found;
}

OpRegistration::OpRegistration(const OpSpec& spec) {
  auto& all = op_registry();
  const auto place = std::ranges::lower_bound(all, spec.name, {}, op_name);
  if (place != all.end() && (*place)->name == spec.name)
    throw std::logic_error(fmt::format("the operation {} is registered twice", spec.name));
  all.insert(place, &spec);
}

}  // namespace ssmbench
