#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <mutex>
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

Source axes_of(const Sweep& sweep) {
  return {sweep.source.file, sweep.source.pointer + "/axes"};
}

void check_size(const Sweep& sweep, const Case& made) {
  if (const double bytes = bytes_of(made.problem); bytes > kMaxBytes)
    fail(axes_of(sweep),
         with_changes(sweep, fmt::format("the tensors of {} take {:.4g} TiB", made.id(), bytes / kTiB)),
         fmt::format("at most {:.0f} TiB, more than any machine holds", kMaxBytes / kTiB));
}

/// A tolerance has to be of an output that some case has.
void check_tolerances(const Sweep& sweep) {
  if (sweep.tolerances.empty()) return;
  std::set<std::string> outputs;
  std::mutex mutex;
  visit_cases(sweep, Checks::none, [&](std::size_t, const Case& one) {
    const auto tensors = one.problem.tensors();
    const std::lock_guard lock(mutex);
    for (const auto& tensor : tensors)
      if (tensor.role == Role::output) outputs.insert(tensor.name);
  });
  for (const auto& [name, tolerance] : sweep.tolerances)
    if (!outputs.contains(name))
      fail({sweep.source.file, sweep.source.pointer + "/tolerance"},
           with_changes(sweep, fmt::format("no case of the sweep has an output {}", shown(name))),
           fmt::format("one of {}", fmt::join(outputs, ", ")));
}

/// Goes through the product, in which the last factor varies fastest, and changes only what differs from one
/// case to the next.
class Odometer {
 public:
  Odometer(const Sweep& sweep, const std::vector<Points>& factors, std::size_t number)
      : sweep_(sweep), factors_(factors), digits_(factors.size()) {
    for (std::size_t i = factors.size(); i-- > 0;) {
      digits_[i] = number % factors[i].size();
      number /= factors[i].size();
      put_in(factors[i][digits_[i]]);
    }
  }

  Case made() const {
    try {
      return {Problem(*sweep_.op, axes_), inputs_,      sweep_.budget_ms, sweep_.source,
              sweep_.tolerances,          sweep_.timed, sweep_.impl};
    } catch (const ContractError& error) {
      fail(axes_of(sweep_), with_changes(sweep_, error.what()), "axes that are complete and go together");
    }
  }

  void advance() {
    for (std::size_t i = factors_.size(); i-- > 0;) {
      const bool carries = digits_[i] + 1 == factors_[i].size();
      if (factors_[i].size() > 1) {
        take_out(factors_[i][digits_[i]]);
        digits_[i] = carries ? 0 : digits_[i] + 1;
        put_in(factors_[i][digits_[i]]);
      }
      if (!carries) return;
    }
  }

 private:
  void put_in(const Point& point) {
    for (const auto& [key, value] : point)
      if (key == "inputs")
        inputs_.distribution = std::get<std::string>(value);
      else if (key == "values")
        inputs_.values = std::get<std::string>(value);
      else if (key == "seed")
        inputs_.seed = std::get<std::int64_t>(value);
      else
        axes_[key] = value;
  }
  /// The next shape may leave out what this one sets; every point of an input axis sets it.
  void take_out(const Point& point) {
    for (const auto& [key, _] : point) axes_.erase(key);
  }

  const Sweep& sweep_;
  const std::vector<Points>& factors_;
  std::vector<std::size_t> digits_;
  Axes axes_;
  InputSpec inputs_;
};

}  // namespace

std::size_t count_cases(const Sweep& sweep) {
  return count_of(sweep, factors_of(sweep));
}

void visit_cases(const Sweep& sweep, Checks checks, const std::function<void(std::size_t, Case)>& visit) {
  constexpr std::size_t kBlock = 1000;
  const std::vector<Points> factors = factors_of(sweep);
  const std::size_t count = count_of(sweep, factors);
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<std::exception_ptr> errors(blocks);
#pragma omp parallel for schedule(static) if (blocks > 1)
  for (std::size_t block = 0; block < blocks; ++block) {
    try {
      const std::size_t end = std::min((block + 1) * kBlock, count);
      Odometer odometer(sweep, factors, block * kBlock);
      for (std::size_t i = block * kBlock; i < end; ++i, odometer.advance()) {
        Case made = odometer.made();
        if (checks == Checks::all) check_size(sweep, made);
        visit(i, std::move(made));
      }
    } catch (...) {
      errors[block] = std::current_exception();
    }
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  if (checks == Checks::all) check_tolerances(sweep);
}

std::vector<Case> expand(const Sweep& sweep, Checks checks) {
  std::vector<std::optional<Case>> made(count_cases(sweep));
  visit_cases(sweep, checks, [&](std::size_t i, Case one) { made[i] = std::move(one); });
  std::vector<Case> cases;
  cases.reserve(made.size());
  for (auto& one : made) cases.push_back(*std::move(one));
  return cases;
}

}  // namespace ssmbench
