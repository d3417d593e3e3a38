#include "support/random_cases.h"

#include <algorithm>
#include <stdexcept>

#include "base/errors.h"
#include "inputs/distributions.h"

namespace ssmbench::test {
namespace {

/// The axes that make the work of a case: those that have to be named.
std::int64_t work_of(const OpSpec& op, const Axes& axes) {
  std::int64_t product = 1;
  for (const auto& [name, value] : axes) {
    const AxisSpec* axis = op.find_axis(name);
    if (axis->kind == AxisKind::size && !axis->fallback) product *= std::get<std::int64_t>(value);
  }
  return product;
}

/// About what is on each side of a jump, and inside of the range.
const std::vector<std::string> kIntervals{"0..inf", "0.001..0.1", "0.02..0.03"};

std::int64_t most_of(const AxisSpec& axis, const DrawnSizes& sizes) {
  switch (axis.role) {
    case AxisRole::batch:
      return 5;
    case AxisRole::groups:
      return 4;
    case AxisRole::time:
      return sizes.most_steps;
    default:
      return !axis.changes_values ? 130 : axis.fallback ? 8 : 40;
  }
}

}  // namespace

/// Half of the time a size at which something may end: a vector, a warp, a tile, a thread's states.
std::int64_t CaseDraw::size_of_axis(const AxisSpec& axis, const DrawnSizes& sizes) {
  static const std::vector<std::int64_t> kBoundaries{
      1,   2,   3,   4,   7,   8,   9,   15,  16,   17,   31,   32,   33,   63,   64,   65,   96,  127,
      128, 129, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 4097};
  static const std::vector<std::int64_t> kLarge{64, 65, 127, 128, 129, 255, 256};
  if (axis.role == AxisRole::none && axis.changes_values && !axis.fallback && one_in(10)) return of(kLarge);
  const std::int64_t most = most_of(axis, sizes);
  if (one_in(2)) return static_cast<std::int64_t>(1 + below(static_cast<std::size_t>(most)));
  const auto end = std::ranges::upper_bound(kBoundaries, most);
  return kBoundaries[below(static_cast<std::size_t>(end - kBoundaries.begin()))];
}

/// Axes with a fallback are left out at times, and those without too: they may belong to one form of the
/// operation only. What makes no problem is drawn again.
Problem CaseDraw::problem(const OpSpec& op, const DrawnSizes& sizes) {
  for (int attempt = 0; attempt < 50000; ++attempt) {
    Axes axes;
    for (const auto& axis : op.axes) {
      if (one_in(axis.fallback ? 4 : 8)) continue;
      if (axis.kind == AxisKind::size) axes[axis.name] = size_of_axis(axis, sizes);
      if (axis.kind == AxisKind::flag) axes[axis.name] = one_in(2);
      if (axis.kind == AxisKind::choice) axes[axis.name] = of(axis.choices);
      if (axis.kind == AxisKind::interval) axes[axis.name] = of(kIntervals);
    }
    if (work_of(op, axes) > sizes.most_work) continue;
    try {
      return {op, std::move(axes)};
    } catch (const ContractError&) {  // axes that contradict each other, or do not go together
    }
  }
  throw std::logic_error("no problem of " + op.name + " could be drawn");
}

Case CaseDraw::draw(const OpSpec& op, const DrawnSizes& sizes) {
  Problem drawn = problem(op, sizes);
  const auto& all = distributions();
  InputSpec inputs{.distribution = of(all).name,
                   .values = one_in(4) ? "shared" : "native",
                   .seed = static_cast<std::int64_t>(below(1000000))};
  return {.problem = std::move(drawn), .inputs = std::move(inputs), .budget_ms = {}, .source = {}};
}

std::vector<const OpSpec*> ops_on(DeviceKind device) {
  std::vector<const OpSpec*> ops;
  for (const auto* op : all_ops())
    if (std::ranges::any_of(implementations(), [&](const Implementation& implementation) {
          return implementation.op == op->name && implementation.device == device;
        }))
      ops.push_back(op);
  return ops;
}

}  // namespace ssmbench::test
