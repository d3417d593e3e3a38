#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>

#include "base/errors.h"
#include "config/range.h"
#include "config/sweep.h"

namespace ssmbench {
namespace {

constexpr double kTiB = 1024.0 * 1024 * 1024 * 1024;
/// No machine holds more, and below it no count of elements or bytes overflows.
constexpr double kMaxBytes = 16 * kTiB;

using Points = std::vector<Point>;

/// A complaint about the sweep, with the overrides that may have caused it.
std::string with_changes(const Sweep& sweep, std::string_view what) {
  if (sweep.changes.empty()) return std::string(what);
  return fmt::format("{} (with {})", what, fmt::join(sweep.changes, ", "));
}

/// What is crossed: each axis alone, zipped ones merged point by point, at the place of the first of them.
std::vector<Points> factors_of(const Sweep& sweep) {
  std::vector<Points> factors;
  std::map<const std::vector<std::string>*, std::size_t> place_of_group;
  for (const auto& axis : sweep.axes) {
    const auto group = std::ranges::find_if(
        sweep.zip, [&](const auto& names) { return std::ranges::find(names, axis.name) != names.end(); });
    if (group == sweep.zip.end()) {
      factors.push_back(axis.points);
      continue;
    }
    const auto [place, is_first] = place_of_group.emplace(&*group, factors.size());
    if (is_first) {
      factors.push_back(axis.points);
      continue;
    }
    Points& merged = factors[place->second];
    for (std::size_t i = 0; i < merged.size(); ++i)
      merged[i].insert(axis.points[i].begin(), axis.points[i].end());
  }
  return factors;
}

std::size_t count_of(const Sweep& sweep, const std::vector<Points>& factors) {
  std::size_t count = 1;
  for (const auto& factor : factors) {
    if (count * factor.size() > kMaxCases)
      fail(sweep.source, with_changes(sweep, "the axes multiply to too many cases"),
           fmt::format("at most {} cases in a sweep", kMaxCases));
    count *= factor.size();
  }
  return count;
}

/// Point `number` of the product, in which the last factor varies fastest.
Point point_of(const std::vector<Points>& factors, std::size_t number) {
  Point point;
  for (auto factor = factors.rbegin(); factor != factors.rend(); ++factor) {
    const Point& part = (*factor)[number % factor->size()];
    point.insert(part.begin(), part.end());
    number /= factor->size();
  }
  return point;
}

/// Moves the value of an input axis from the point to `target`, where the point has it.
template <class T>
void take(Point& point, const char* axis, T& target) {
  if (const auto entry = point.extract(axis)) target = std::get<T>(entry.mapped());
}

/// Bytes of all tensors; in double, because the exact number may not fit any integer.
double bytes_of(const Problem& problem) {
  double sum = 0;
  for (const auto& tensor : problem.tensors()) {
    auto bytes = static_cast<double>(size_of(tensor.dtype));
    for (const auto extent : tensor.shape) bytes *= static_cast<double>(extent);
    sum += bytes;
  }
  return sum;
}

Case make_case(const Sweep& sweep, Point point) {
  const Source axes{sweep.source.file, sweep.source.pointer + "/axes"};
  InputSpec inputs;
  take(point, "inputs", inputs.distribution);
  take(point, "values", inputs.values);
  take(point, "seed", inputs.seed);
  try {
    Case made{Problem(*sweep.op, std::move(point)),
              std::move(inputs),
              sweep.budget_ms,
              sweep.source,
              sweep.tolerances,
              sweep.timed,
              sweep.impl};
    if (const double bytes = bytes_of(made.problem); bytes > kMaxBytes)
      fail(axes,
           with_changes(sweep, fmt::format("the tensors of {} take {:.4g} TiB", made.id(), bytes / kTiB)),
           fmt::format("at most {:.0f} TiB, more than any machine holds", kMaxBytes / kTiB));
    return made;
  } catch (const ContractError& error) {
    fail(axes, with_changes(sweep, error.what()), "axes that are complete and go together");
  }
}

/// A tolerance has to be of an output that some case has.
void check_tolerances(const Sweep& sweep, const std::vector<Case>& cases) {
  if (sweep.tolerances.empty()) return;
  std::set<std::string> outputs;
  for (const auto& one : cases)
    for (const auto& tensor : one.problem.tensors())
      if (tensor.role == Role::output) outputs.insert(tensor.name);
  for (const auto& [name, tolerance] : sweep.tolerances)
    if (!outputs.contains(name))
      fail({sweep.source.file, sweep.source.pointer + "/tolerance"},
           with_changes(sweep, fmt::format("no case of the sweep has an output {}", shown(name))),
           fmt::format("one of {}", fmt::join(outputs, ", ")));
}

}  // namespace

std::vector<Case> expand(const Sweep& sweep) {
  const std::vector<Points> factors = factors_of(sweep);
  const std::size_t count = count_of(sweep, factors);
  std::vector<std::optional<Case>> made(count);
  std::vector<std::exception_ptr> errors(count);
#pragma omp parallel for schedule(static) if (count > 1000)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      made[i] = make_case(sweep, point_of(factors, i));
    } catch (...) {
      errors[i] = std::current_exception();
    }
  }
  std::vector<Case> cases;
  cases.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
    cases.push_back(*std::move(made[i]));
  }
  check_tolerances(sweep, cases);
  return cases;
}

}  // namespace ssmbench
