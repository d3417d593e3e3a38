#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/dtype.h"
#include "model/tensor.h"

namespace ssmbench {

using AxisValue = std::variant<std::int64_t, bool, std::string>;
std::string to_string(const AxisValue& value);

enum class AxisKind {
  size,      ///< an integer ≥ 1
  flag,      ///< true or false
  choice,    ///< one of a fixed set of words
  interval,  ///< two numbers, low ≤ high, as the word "LOW..HIGH"; either may be infinite ("0..inf")
};

/// One thing that a sweep can vary. Op specs list theirs; configs, ids, results and HDF5 attributes all
/// follow from the list.
struct AxisSpec {
  std::string name;  ///< the key in configs and results
  AxisKind kind = AxisKind::size;
  std::string id_token;  ///< prefix of the value in case ids ("b" gives b8); for a flag, the word itself
  std::vector<std::string> choices;   ///< for AxisKind::choice
  std::optional<AxisValue> fallback;  ///< value where a sweep is silent; none: the sweep must name it
  /// An axis and a choice of it, listed before: the axis is there only with that choice. None: always.
  std::optional<std::pair<std::string, std::string>> only_with = {};
};

/// The value of an AxisKind::interval.
struct Interval {
  double low, high;
};
/// Nothing where the word is not an interval.
std::optional<Interval> parse_interval(std::string_view word);
/// The word that reads back as these numbers, the same for each pair.
std::string to_string(const Interval& interval);

class Problem;

/// An operation: its axes, the tensors that a point on them has, and which points make no sense.
struct OpSpec {
  std::string name;
  std::string summary;
  std::vector<AxisSpec> axes;
  std::vector<TensorSpec> (*tensors)(const Problem&);
  /// Why the axes contradict each other ("dim 10 is not a multiple of groups 4"); nothing when they do not.
  std::optional<std::string> (*contradiction)(const Problem&);

  const AxisSpec* find_axis(std::string_view axis) const;
};

/// Every operation this build knows, in the order `list ops` prints.
const std::vector<const OpSpec*>& all_ops();
const OpSpec* find_op(std::string_view name);

/// One point of an operation's axes: what is computed, without the values of its inputs.
class Problem {
 public:
  /// Fills fallbacks. Throws ContractError for an unknown axis, a wrong kind, a value out of range, a missing
  /// axis, or axes that contradict each other.
  Problem(const OpSpec& op, std::map<std::string, AxisValue> axes);

  const OpSpec& op() const { return *op_; }
  const std::map<std::string, AxisValue>& axes() const { return axes_; }
  /// Whether the axis is there; not all are with every choice (AxisSpec::only_with).
  bool has(const AxisSpec& axis) const { return axes_.contains(axis.name); }
  std::int64_t size(std::string_view axis) const;
  bool flag(std::string_view axis) const;
  const std::string& choice(std::string_view axis) const;
  Interval interval(std::string_view axis) const;
  DType dtype() const;

  std::vector<TensorSpec> tensors() const { return op_->tensors(*this); }
  /// The same problem with some axes changed.
  Problem with(const std::map<std::string, AxisValue>& changes) const;
  /// Unique among problems, free of '/' and of shell meta characters. Flags that are on and whatever is not
  /// at its fallback, so that an axis that is added later changes no id.
  std::string id() const;

 private:
  const AxisValue& value(std::string_view axis) const;

  const OpSpec* op_;
  std::map<std::string, AxisValue> axes_;
};

}  // namespace ssmbench
