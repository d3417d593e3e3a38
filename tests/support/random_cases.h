#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "model/case.h"
#include "model/implementation.h"
#include "model/operation.h"

// Random problems on random inputs, drawn from what operations say of themselves (OpSpec), so that one that
// is added later is covered without a line here. The same seed draws the same cases on every machine.

namespace ssmbench::test {

/// How large drawn cases may be.
struct DrawnSizes {
  std::int64_t most_work = 10000;  ///< product of the sizes that make the work of a case
  std::int64_t most_steps = 130;   ///< size along time
};

class CaseDraw {
 public:
  explicit CaseDraw(std::uint64_t seed) : bits_(seed) {}

  /// A case of the operation. Throws std::logic_error where its axes allow none.
  Case draw(const OpSpec& op, const DrawnSizes& sizes = {});

  /// Not std::uniform_int_distribution, which every library implements its own way.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(bits_() % count); }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  bool one_in(std::size_t count) { return below(count) == 0; }
  std::int64_t size_of_axis(const AxisSpec& axis, const DrawnSizes& sizes);
  std::optional<Axes> axes(const OpSpec& op, const DrawnSizes& sizes);
  Problem problem(const OpSpec& op, const DrawnSizes& sizes);

  std::mt19937_64 bits_;
};

/// Operations that have an implementation for the kind of device.
std::vector<const OpSpec*> ops_on(DeviceKind device);

}  // namespace ssmbench::test
