#pragma once

#include "model/operation.h"
#include "model/problem.h"
#include "support/axes.h"

namespace ssmbench::test {

/// A problem of any operation: a batch of 4, 8 channels in 2 groups, initial and final states, and the layout
/// that is listed last.
inline Problem problem_of_several_rows(const OpSpec& op) {
  Axes axes;
  for (const auto& axis : op.axes) {
    if (axis.fallback) continue;
    if (axis.only_with && axes.at(axis.only_with->first) != AxisValue(axis.only_with->second)) continue;
    if (axis.kind == AxisKind::size) axes[axis.name] = size(axis.role == AxisRole::channel ? 8 : 4);
    if (axis.kind == AxisKind::choice) axes[axis.name] = axis.choices.front();
  }
  if (const AxisSpec* groups = op.find_axis(AxisRole::groups)) axes[groups->name] = size(2);
  if (op.find_axis("rope_angles") != nullptr) axes["rope_angles"] = size(2);
  for (const char* states : {"initial_state", "initial_states", "final_states", "dlast_state"})
    if (op.find_axis(states) != nullptr) axes[states] = true;
  if (op.find_axis("layout") != nullptr) axes["layout"] = op.find_axis("layout")->choices.back();
  return {op, axes};
}

}  // namespace ssmbench::test
