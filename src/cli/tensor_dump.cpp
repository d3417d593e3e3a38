#include "cli/tensor_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "base/errors.h"
#include "model/build_info.h"

namespace ssmbench {
namespace {

/// The one implementation and device of the plan.
FileInfo producer_of(const Plan& plan, const std::vector<std::string>& argv, const std::string& created) {
  std::set<std::string> names;
  std::set<std::size_t> devices;
  for (const auto& planned : plan.cases) {
    for (const auto& job : planned.jobs) {
      if (job.skip) continue;
      names.insert(job.implementation->name);
      devices.insert(job.device);
    }
  }
  if (names.size() != 1 || devices.size() != 1)
    throw UsageError(fmt::format(
        "--dump: a file holds the outputs of one implementation on one device, this run has {}; choose "
        "with --impl and --device",
        names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  return {.producer = fmt::format("ssmbench {} {}", build_info().version, *names.begin()),
          .device = plan.devices[*devices.begin()].name,
          .created = created,
          .argv = fmt::format("{}", fmt::join(argv, " "))};
}

}  // namespace

TensorDump::TensorDump(const std::string& file, bool failed_only, const Plan& plan,
                       const std::vector<std::string>& argv, const std::string& created)
    : writer_(file, producer_of(plan, argv, created), true), failed_only_(failed_only) {}

void TensorDump::add(const FinishedJob& job) {
  if (failed_only_ && job.result.status != Status::fail) return;
  const Case& the_case = job.result.the_case;
  CaseToWrite entry{.id = the_case.id(),
                    .problem = the_case.problem,
                    .arithmetic = job.implementation.arithmetic(the_case.problem.dtype()),
                    .seed = the_case.inputs.seed,
                    .inputs = views_of(job.inputs),
                    .outputs = views_of(job.outputs),
                    .reference = {}};
  if (job.reference != nullptr)
    for (const auto& [name, output] : *job.reference) entry.reference[name] = output.expected;
  writer_.add_case(entry);
}

void TensorDump::take(const std::string& part) {
  if (!std::filesystem::exists(part)) return;
  writer_.add_cases_of(part);
  std::filesystem::remove(part);
}

}  // namespace ssmbench
