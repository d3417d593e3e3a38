#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.h"
#include "model/operation.h"
#include "model/tensor.h"

namespace ssmbench {

/// One point of an operation's axes: what is computed, without the values of its inputs.
class Problem {
 public:
  /// Fills fallbacks. Throws ContractError for an unknown axis, a wrong kind, a value out of range, a missing
  /// axis, or axes that contradict each other.
  Problem(const OpSpec& op, const Axes& axes);

  const OpSpec& op() const { return *op_; }
  /// A copy of all that are there, by name.
  Axes axes() const;
  /// Whether the axis is there; not all are with every choice (AxisSpec::only_with).
  bool has(std::string_view axis) const { return find(axis) != nullptr; }
  bool has(const AxisSpec& axis) const { return has(axis.name); }
  /// The axis of that role that is there, or null.
  const AxisSpec* find_axis(AxisRole role) const;
  /// Throws std::logic_error where the axis is not there, as all that follow do.
  const AxisValue& value(std::string_view axis) const;
  std::int64_t size(std::string_view axis) const;
  bool flag(std::string_view axis) const;
  const std::string& choice(std::string_view axis) const;
  Interval interval(std::string_view axis) const;
  /// Groups of channels; 1 where the operation has no such axis.
  std::int64_t groups() const;
  DType dtype() const;

  std::vector<TensorSpec> tensors() const { return op_->tensors(*this); }
  /// The same problem with some axes changed.
  Problem with(const Axes& changes) const;
  /// One and the same of all problems whose outputs have the same values: axes that do not change values at
  /// their fallback, or at their first choice.
  Problem canonical() const;
  /// Unique among problems, free of '/' and of shell meta characters. Flags that are on and whatever is not
  /// at its fallback, so that an axis that is added later changes no id.
  std::string id() const;

 private:
  /// Null where it is not there.
  const AxisValue* find(std::string_view axis) const;

  const OpSpec* op_;
  /// In the order of the operation's axes. A sweep has up to a million problems, each of which is asked for
  /// its axes a hundred times: here they take one allocation, and no names.
  std::vector<std::optional<AxisValue>> values_;
};

/// Bytes that every implementation of the problem has to move: all inputs and outputs once.
double tensor_bytes(const Problem& problem);

}  // namespace ssmbench
