#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ssmbench {

using AxisValue = std::variant<std::int64_t, bool, std::string>;
std::string to_string(const AxisValue& value);

enum class AxisKind {
  size,      ///< an integer ≥ 1
  flag,      ///< true or false
  choice,    ///< one of a fixed set of words
  interval,  ///< two numbers, low ≤ high, as the word "LOW..HIGH"; either may be infinite ("0..inf")
};

/// What an axis is to the layers that know no operation: which one --quick shortens, which one a results
/// record has as a field of its own, along which one `check` looks for mixed-up channels.
enum class AxisRole {
  none,
  batch,    ///< sequences that have nothing to do with one another
  time,     ///< steps of a sequence
  channel,  ///< recurrences side by side, divided into groups where there is an axis of that role
  groups,   ///< runs of channels that share projections
  method,   ///< the rule that makes a recurrence of a continuous system
  dtype,    ///< of what the network computes in: the io dtype
  layout,   ///< order of tensors in memory
};

/// One thing that a sweep can vary. Operations list theirs; configs and their schema, ids, results and HDF5
/// attributes all follow from the list.
struct AxisSpec {
  std::string name;  ///< the key in configs and results
  AxisKind kind = AxisKind::size;
  std::string id_token = {};  ///< prefix of the value in case ids ("b" gives b8); for a flag, the word itself
  std::vector<std::string> choices = {};   ///< for AxisKind::choice
  std::optional<AxisValue> fallback = {};  ///< value where a sweep is silent; none: the sweep must name it
  /// An axis and a choice of it, listed before: the axis is there only with that choice. None: always.
  std::optional<std::pair<std::string, std::string>> only_with = {};
  AxisRole role = AxisRole::none;
  /// False where outputs have the same values whatever the axis is: layouts, hints to implementations. Cases
  /// that differ in such axes alone share a reference.
  bool changes_values = true;
  char letter = 0;  ///< of the channel axis: what TensorSpec::axes calls it
};

/// Whether results have the axis as a field, or column, of its own rather than among shape or options.
inline bool has_own_field(const AxisSpec& axis) {
  return axis.role == AxisRole::method || axis.role == AxisRole::dtype || axis.role == AxisRole::layout;
}

/// The value of an AxisKind::interval.
struct Interval {
  double low, high;
};
/// Nothing where the word is not an interval.
std::optional<Interval> parse_interval(std::string_view word);
/// The word that reads back as these numbers, the same for each pair.
std::string to_string(const Interval& interval);

/// Why `value` cannot be on the axis; nothing when it can.
std::optional<std::string> misfit(const AxisSpec& axis, const AxisValue& value);

}  // namespace ssmbench
