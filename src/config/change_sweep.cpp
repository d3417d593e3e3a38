#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "base/errors.h"
#include "config/schema.h"
#include "config/sweep.h"

namespace ssmbench {
namespace {

/// Makes `axis` the only one that sets what it sets. Where the sweep has it, it keeps its place in the order
/// of cases.
void replace_axis(Sweep& sweep, const Axis& axis) {
  std::set<std::string> keys;
  for (const auto& point : axis.points)
    for (const auto& [key, _] : point) keys.insert(key);

  const auto old = std::ranges::find(sweep.axes, axis.name, &Axis::name);
  if (old == sweep.axes.end())
    sweep.axes.push_back(axis);
  else
    old->points = axis.points;
  for (auto& group : sweep.zip) std::erase(group, axis.name);

  for (auto& other : sweep.axes) {
    if (other.name == axis.name) continue;
    for (auto& point : other.points)
      std::erase_if(point, [&](const auto& entry) { return keys.contains(entry.first); });
  }
  std::erase_if(sweep.axes, [](const Axis& a) { return std::ranges::all_of(a.points, &Point::empty); });
}

bool sets(const Sweep& sweep, const std::string& key) {
  return std::ranges::any_of(sweep.axes, [&](const Axis& axis) {
    return std::ranges::any_of(axis.points, [&](const Point& point) { return point.contains(key); });
  });
}

Point point_of(const Sweep& sweep, const Override& change, const Json& value) {
  if (auto point = make_point(change.axis, value, sweep.shapes)) return std::move(*point);
  std::vector<std::string> names;
  for (const auto& [name, _] : sweep.shapes.items()) names.push_back(name);
  throw UsageError(fmt::format("{}: {} has no shape {}; expected one of: {}", change.origin,
                               sweep.source.file, shown(value), fmt::join(names, ", ")));
}

/// Where `axis` advances together with others, of all of them the entries where it is smallest.
void keep_smallest_in_zip(Sweep& sweep, const std::string& axis) {
  const auto group = std::ranges::find_if(
      sweep.zip, [&](const auto& names) { return std::ranges::find(names, axis) != names.end(); });
  if (group == sweep.zip.end()) return;
  const std::vector<Point> own = std::ranges::find(sweep.axes, axis, &Axis::name)->points;
  const Point smallest = *std::ranges::min_element(own);
  for (auto& member : sweep.axes) {
    if (std::ranges::find(*group, member.name) == group->end()) continue;
    std::vector<Point> kept;
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i] == smallest) kept.push_back(member.points[i]);
    member.points = std::move(kept);
  }
}

}  // namespace

bool apply_override(Sweep& sweep, const Override& change) {
  const auto known = axis_names(sweep.op->name);
  if (std::ranges::find(known, change.axis) == known.end()) return false;
  if (const AxisSpec* axis = sweep.op->find_axis(change.axis);
      axis != nullptr && axis->only_with && !sets(sweep, change.axis))
    return false;

  Json values = Json::array();
  for (const auto& value : change.values) std::visit([&](const auto& v) { values.push_back(v); }, value);
  if (const auto violation = find_axis_violation(sweep.op->name, change.axis, values))
    throw UsageError(fmt::format("{}: {}; expected {}", change.origin, violation->what, violation->expected));

  Axis axis{change.axis, {}};
  for (const auto& value : values) axis.points.push_back(point_of(sweep, change, value));
  replace_axis(sweep, axis);
  sweep.changes.push_back(change.origin);
  return true;
}

void make_quick(Sweep& sweep) {
  const auto keep = [&sweep](const std::string& axis, const AxisValue& value) {
    replace_axis(sweep, {axis, {{{axis, value}}}});
  };
  if (const AxisSpec* time = sweep.op->find_axis(AxisRole::time)) {
    keep_smallest_in_zip(sweep, time->name);
    std::optional<AxisValue> shortest;
    for (const auto& axis : sweep.axes)
      for (const auto& point : axis.points)
        if (const auto found = point.find(time->name); found != point.end())
          shortest = std::min(shortest.value_or(found->second), found->second);
    if (shortest) keep(time->name, *shortest);
  }
  if (const AxisSpec* batch = sweep.op->find_axis(AxisRole::batch)) {
    keep_smallest_in_zip(sweep, batch->name);
    keep(batch->name, std::int64_t{1});
  }
}

}  // namespace ssmbench
