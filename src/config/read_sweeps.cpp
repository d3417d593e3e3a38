#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "config/range.h"
#include "config/schema.h"
#include "config/sweep.h"

namespace ssmbench {
namespace {

/// Reads one sweep, or what is written like one, of a document that the schema has accepted.
class SweepReader {
 public:
  SweepReader(const Json& document, std::string file, const std::string& list, std::size_t index)
      : document_(document),
        json_(document[list][index]),
        file_(std::move(file)),
        path_{list, std::to_string(index)} {}

  Sweep read() {
    sweep_.op = find_op(json_["op"].get<std::string>());
    if (sweep_.op == nullptr) throw std::logic_error("the schema knows an op that the program does not");
    if (json_.contains("budget_ms")) sweep_.budget_ms = json_["budget_ms"].get<double>();
    if (json_.contains("fps")) {
      if (sweep_.budget_ms)
        fail({file_, to_pointer(path_)}, "\"budget_ms\" and \"fps\" are the same budget", "one of them");
      sweep_.budget_ms = 1000 / json_["fps"].get<double>();
      if (!std::isfinite(*sweep_.budget_ms)) reject({"fps"}, fmt::format("got {}", shown(json_["fps"])));
    }
    sweep_.timed = json_.value("timing", true);
    if (!sweep_.timed && sweep_.budget_ms)
      fail({file_, to_pointer(path_) + "/timing"}, "got false, and there is a budget", "true, or no budget");
    sweep_.impl = json_.value("impl", std::vector<std::string>());
    const Json tolerances = json_.value("tolerance", Json::object());
    for (const auto& [output, allowed] : tolerances.items())
      sweep_.tolerances[output] = {allowed.value("abs", 0.0), allowed.value("rel", 0.0)};
    sweep_.shapes = document_.value("shapes", Json::object());
    sweep_.source = {file_, to_pointer(path_)};
    for (const auto& [name, values] : json_["axes"].items()) read_axis(name, values);
    if (json_.contains("zip")) read_zip();
    return std::move(sweep_);
  }

 private:
  [[noreturn]] void reject(const JsonPath& below, std::string_view what) const {
    JsonPath path = path_;
    path.insert(path.end(), below.begin(), below.end());
    fail({file_, to_pointer(path)}, what, expectation(document_, path));
  }

  void read_axis(const std::string& name, const Json& values) {
    Axis axis{name, {}};
    if (values.is_array())
      for (std::size_t i = 0; i < values.size(); ++i)
        axis.points.push_back(read_point(name, values[i], {"axes", name, std::to_string(i)}));
    else if (values.is_object() && name != kShapeAxis)
      for (const auto value : read_range(name, values)) axis.points.push_back({{name, value}});
    else
      axis.points.push_back(read_point(name, values, {"axes", name}));
    claim_keys(axis);
    sweep_.axes.push_back(std::move(axis));
  }

  Point read_point(const std::string& name, const Json& value, const JsonPath& below) const {
    if (auto point = make_point(name, value, sweep_.shapes)) return std::move(*point);
    reject(below, fmt::format("no shape is named {}", shown(value)));
  }

  std::vector<std::int64_t> read_range(const std::string& name, const Json& range) const {
    try {
      return values_of(Range{.from = range["from"].get<std::int64_t>(),
                             .to = range["to"].get<std::int64_t>(),
                             .step = range.value("step", std::int64_t{0}),
                             .times = range.value("times", std::int64_t{0})});
    } catch (const std::invalid_argument& error) {
      reject({"axes", name}, error.what());
    }
  }

  void claim_keys(const Axis& axis) {
    for (const auto& point : axis.points)
      for (const auto& [key, _] : point) {
        const auto owner = owners_.emplace(key, axis.name).first->second;
        if (owner != axis.name)
          fail({file_, to_pointer(path_) + "/axes"},
               fmt::format("{} is set by {} and by {}", shown(key), shown(owner), shown(axis.name)),
               "each axis once");
      }
  }

  void read_zip() {
    sweep_.zip = json_["zip"].get<std::vector<std::vector<std::string>>>();
    std::set<std::string> zipped;
    for (std::size_t g = 0; g < sweep_.zip.size(); ++g) {
      const auto& group = sweep_.zip[g];
      const JsonPath below{"zip", std::to_string(g)};
      const Axis* first = nullptr;
      for (const auto& name : group) {
        const auto axis = std::ranges::find(sweep_.axes, name, &Axis::name);
        if (axis == sweep_.axes.end()) reject(below, fmt::format("the sweep has no axis {}", shown(name)));
        if (!zipped.insert(name).second) reject(below, fmt::format("{} is zipped twice", shown(name)));
        if (first == nullptr) first = &*axis;
        if (axis->points.size() != first->points.size())
          reject(below, fmt::format("{} and {} have {} and {} values", shown(first->name), shown(name),
                                    first->points.size(), axis->points.size()));
      }
    }
  }

  const Json& document_;
  const Json& json_;
  std::string file_;
  JsonPath path_;
  Sweep sweep_;
  std::map<std::string, std::string> owners_;  ///< which axis sets what
};

AxisValue to_axis_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  return value.get<std::int64_t>();
}

}  // namespace

std::optional<Point> make_point(const std::string& axis, const Json& value, const Json& shapes) {
  if (axis != kShapeAxis) return Point{{axis, to_axis_value(value)}};
  if (value.is_string() && !shapes.contains(value.get<std::string>())) return {};
  Point point;
  for (const auto& [key, size] : (value.is_string() ? shapes[value.get<std::string>()] : value).items())
    point[key] = to_axis_value(size);
  return point;
}

Sweep read_sweep(const Json& document, const std::string& file, const std::string& list, std::size_t index) {
  return SweepReader(document, file, list, index).read();
}

std::vector<Sweep> read_sweeps(const std::filesystem::path& file) {
  const Json document = read_document(file);
  if (const auto violation = find_violation(document))
    fail({file.string(), to_pointer(violation->path)}, violation->what, violation->expected);
  if (!document.contains("sweeps"))
    fail({file.string(), "/"}, "there are studies, which have no cases", "sweeps");
  std::vector<Sweep> sweeps;
  for (std::size_t i = 0; i < document["sweeps"].size(); ++i)
    sweeps.push_back(read_sweep(document, file.string(), "sweeps", i));
  return sweeps;
}

}  // namespace ssmbench
