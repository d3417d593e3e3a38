#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "model/arithmetic.h"
#include "model/expectation.h"
#include "model/tensor.h"
#include "model/user_tolerance.h"
#include "record/result.h"

namespace ssmbench {

/// Position of the axis l.
std::optional<std::size_t> time_axis(const TensorSpec& spec);

/// Judges one output (host memory, any layout) against what it should be, element by element, on all cores.
/// The result does not depend on the number of threads. An expected value beyond the output dtype's range
/// passes as the infinity it rounds to; an element whose bound is not finite is left out. `user`, where not
/// null, takes the place of the derived tolerance. Errors over time are those along the time axis,
/// where there is one.
OutputComparison compare_output(const TensorView& output, const Expectation& expected,
                                const Arithmetic& arithmetic, const UserTolerance* user = nullptr,
                                std::optional<std::size_t> along = {});

/// The same of an output whose parts are judged one after the other. They may be cut along any axis but that
/// of time. What describes single elements and the worst of them is what compare_output says of the whole;
/// sums are rounded in another order, and neighbours in two parts are not taken for copies of each other.
class PartwiseComparison {
 public:
  /// `user` and the memory of `output` have to live as long.
  PartwiseComparison(const TensorView& output, const Arithmetic& arithmetic, const UserTolerance* user,
                     std::optional<std::size_t> along);
  ~PartwiseComparison();
  PartwiseComparison(PartwiseComparison&&) noexcept;
  PartwiseComparison(const PartwiseComparison&) = delete;
  PartwiseComparison& operator=(const PartwiseComparison&) = delete;
  PartwiseComparison& operator=(PartwiseComparison&&) = delete;

  /// Judges the part whose first element has the index `begin`, of which `shape` is with complex numbers as
  /// pairs.
  void add(Shape begin, const Shape& shape, const Expectation& expected);
  OutputComparison result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ssmbench
