#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/document.h"
#include "model/case.h"
#include "model/problem.h"

namespace ssmbench {

/// The axis whose values set several sizes at once.
inline constexpr std::string_view kShapeAxis = "shape";

/// What one value of an axis sets: an axis of the op, an input axis, or, for a shape, several of them.
using Point = std::map<std::string, AxisValue>;

struct Axis {
  std::string name;
  std::vector<Point> points;
};

/// One sweep of a config: its axes are crossed, apart from those that a group of `zip` makes advance
/// together.
struct Sweep {
  const OpSpec* op = nullptr;
  std::vector<Axis> axes;  ///< in file order; no two set the same thing
  std::vector<std::vector<std::string>> zip;
  std::optional<double> budget_ms;
  bool timed = true;
  std::vector<std::string> impl;  ///< globs on names of implementations
  UserTolerances tolerances = {};
  Json shapes;  ///< the file's named shapes
  Source source;
  std::vector<std::string> changes;  ///< overrides in force, for messages
};

/// Entry `index` of the document's `list`, "sweeps" or one that is written like it; the schema has accepted
/// the document. Throws UsageError.
Sweep read_sweep(const Json& document, const std::string& file, const std::string& list, std::size_t index);

/// The sweeps of a file. Throws UsageError.
std::vector<Sweep> read_sweeps(const std::filesystem::path& file);

/// What `value` (of a kind that the schema accepts) sets; nothing when it names a shape that is not in
/// `shapes`.
std::optional<Point> make_point(const std::string& axis, const Json& value, const Json& shapes);

/// Puts the override in place of whatever sets its axis; the axis leaves its zip group. Returns false, and
/// does nothing, where the op does not have the axis, or has it with a choice only and the sweep does not set
/// it. Throws UsageError when the axis does not take the
/// values.
bool apply_override(Sweep& sweep, const Override& change);

/// Keeps one sequence of the shortest length, for ops that have such axes; of axes that advance together with these
/// the values beside the smallest.
void make_quick(Sweep& sweep);

/// What of a sweep's cases is checked beside their axes.
enum class Checks {
  all,   ///< that machines may hold their tensors, and that tolerances are of outputs that some case has
  none,  ///< for cases that have been checked before
};

std::size_t count_cases(const Sweep& sweep);

/// Hands over each case with its number, in any order and on all cores; number 1 differs from number 0 in the
/// last axis. A case is not kept, and there may be a million. Throws UsageError when the axes of a case make no
/// sense or a check fails, the first one in order.
void visit_cases(const Sweep& sweep, Checks checks, const std::function<void(std::size_t, Case)>& visit);

/// All of them, by number.
std::vector<Case> expand(const Sweep& sweep, Checks checks = Checks::all);

}  // namespace ssmbench
