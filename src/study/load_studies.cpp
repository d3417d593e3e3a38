#include "study/load_studies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/errors.h"
#include "config/document.h"
#include "config/range.h"
#include "config/schema.h"
#include "config/sweep.h"

namespace ssmbench {
namespace {

constexpr double kMaxTotalSteps = 1e8;  // per method and A; half a minute

/// Reads one convergence study of a document that the schema has accepted.
class ConvergenceReader {
 public:
  ConvergenceReader(const Json& document, std::string file, std::size_t index)
      : document_(document),
        json_(document["studies"][index]),
        file_(std::move(file)),
        path_{"studies", std::to_string(index)} {}

  ConvergenceStudy read() const {
    ConvergenceStudy study;
    for (std::size_t i = 0; i < json_["A"].size(); ++i) study.A.push_back(read_decay(i));
    for (const auto& name : json_["method"]) study.methods.push_back(&method_named(name.get<std::string>()));
    study.horizon = json_["horizon"].get<double>();
    study.steps = read_steps();
    return study;
  }

 private:
  [[noreturn]] void reject(const JsonPath& below, std::string_view what) const {
    JsonPath path = path_;
    path.insert(path.end(), below.begin(), below.end());
    fail({file_, to_pointer(path)}, what, expectation(document_, path));
  }

  std::complex<double> read_decay(std::size_t index) const {
    const Json& json = json_["A"][index];
    const std::complex<double> A = json.is_array()
                                       ? std::complex(json[0].get<double>(), json[1].get<double>())
                                       : std::complex(json.get<double>());
    if (!(A.real() < 0)) reject({"A", std::to_string(index)}, fmt::format("got {}", shown(json)));
    return A;
  }

  std::vector<std::int64_t> read_steps() const {
    const Json& json = json_["steps"];
    try {
      auto steps = values_of(Range{.from = json["from"].get<std::int64_t>(),
                                   .to = json["to"].get<std::int64_t>(),
                                   .times = json["times"].get<std::int64_t>()});
      if (steps.size() < 2) reject({"steps"}, "measuring an order takes at least two runs");
      if (static_cast<double>(steps.back()) > kMaxTotalSteps)
        reject({"steps"}, fmt::format("more than {:g} steps", kMaxTotalSteps));
      return steps;
    } catch (const std::invalid_argument& error) {
      reject({"steps"}, error.what());
    }
  }

  const Json& document_;
  const Json& json_;
  std::string file_;
  JsonPath path_;
};

/// A consistency study is written like a sweep, with checks.
ConsistencyStudy read_consistency(const Json& document, const std::string& file, std::size_t index) {
  const Json& json = document["studies"][index];
  const OpSpec& op = *find_op(json["op"].get<std::string>());
  ConsistencyStudy study;
  for (std::size_t i = 0; i < json["check"].size(); ++i) {
    const auto* check = op.find_parts(json["check"][i].get<std::string>());
    if (check == nullptr) {
      std::vector<std::string> known;
      for (const auto& each : op.parts) known.push_back(each.check);
      fail({file, to_pointer({"studies", std::to_string(index), "check", std::to_string(i)})},
           fmt::format("{} has no check {}", op.name, shown(json["check"][i])),
           fmt::format("one of {}", fmt::join(known, ", ")));
    }
    study.checks.push_back(check);
  }
  study.cases = expand(read_sweep(document, file, "studies", index));
  return study;
}

}  // namespace

Studies load_studies(const std::vector<std::filesystem::path>& files) {
  Studies studies;
  std::size_t files_with_studies = 0;
  for (const auto& file : files) {
    const Json document = read_document(file);
    if (!document.contains("studies")) continue;
    if (const auto violation = find_violation(document))
      fail({file.string(), to_pointer(violation->path)}, violation->what, violation->expected);
    if (document.contains("sweeps"))
      fail({file.string(), "/"}, "sweeps and studies in one file", "one of them");
    for (std::size_t i = 0; i < document["studies"].size(); ++i) {
      if (document["studies"][i]["kind"] == "convergence")
        studies.convergence.push_back(ConvergenceReader(document, file.string(), i).read());
      else
        studies.consistency.push_back(read_consistency(document, file.string(), i));
    }
    ++files_with_studies;
  }
  if (files_with_studies != 0 && files_with_studies != files.size())
    throw UsageError("some configs hold studies and some sweeps; expected one kind");
  return studies;
}

}  // namespace ssmbench
