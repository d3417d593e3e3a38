#include "support/random_cases.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "inputs/distributions.h"

namespace ssmbench::test {
namespace {

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

/// A size that is 0 where a sweep is silent: an option that brings tensors of its own.
bool is_option(const AxisSpec& axis) {
  const auto* size = axis.fallback ? std::get_if<std::int64_t>(&*axis.fallback) : nullptr;
  return size != nullptr && *size == 0;
}

/// Axes with a fallback are left out at times, and those without too: they may belong to one form of the
/// operation only. Options go with few problems, and are left out mostly. Nothing where the product of the
/// sizes that have to be named, the work, is too large.
std::optional<Axes> CaseDraw::axes(const OpSpec& op, const DrawnSizes& sizes) {
  Axes axes;
  std::int64_t work = 1;
  for (const auto& axis : op.axes) {
    if (is_option(axis) ? !one_in(6) : one_in(axis.fallback ? 4 : 8)) continue;
    if (axis.kind == AxisKind::size) {
      const std::int64_t size = size_of_axis(axis, sizes);
      if (!axis.fallback) work *= size;
      if (work > sizes.most_work) return {};  // which is what becomes of most
      axes[axis.name] = size;
    }
    if (axis.kind == AxisKind::flag) axes[axis.name] = one_in(2);
    if (axis.kind == AxisKind::choice) axes[axis.name] = of(axis.choices);
    if (axis.kind == AxisKind::interval) axes[axis.name] = of(kIntervals);
  }
  return axes;
}

/// What makes no problem is drawn again.
Problem CaseDraw::problem(const OpSpec& op, const DrawnSizes& sizes) {
  for (int attempt = 0; attempt < 50000; ++attempt) {
    auto drawn = axes(op, sizes);
    if (!drawn) continue;
    try {
      return {op, *std::move(drawn)};
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
