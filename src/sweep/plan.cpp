#include "sweep/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/glob.h"
#include "model/distributed.h"
#include "plugin/plugin.h"
#include "reference/reference.h"
#include "sweep/exchange.h"

namespace ssmbench {
namespace {

bool selected(const Case& the_case, const Selection& selection) {
  const Problem& problem = the_case.problem;
  const auto axis_matches = [&](AxisRole role, const std::string& pattern) {
    if (pattern.empty()) return true;
    const AxisSpec* axis = problem.find_axis(role);
    return axis != nullptr && matches_glob(pattern, problem.choice(axis->name));
  };
  return matches_glob(selection.op, problem.op().name) && axis_matches(AxisRole::dtype, selection.dtype) &&
         axis_matches(AxisRole::method, selection.method) &&
         (selection.case_id.empty() || matches_glob(selection.case_id, the_case.id()));
}

/// Whether --impl or, without it, the case's sweep asks for the implementation.
bool wanted(const Implementation& implementation, const Case& the_case, const Selection& selection) {
  if (!selection.impl.empty() || the_case.impl.empty())
    return matches_any_glob(selection.impl, implementation.name);
  return std::ranges::any_of(
      the_case.impl, [&](const std::string& glob) { return matches_glob(glob, implementation.name); });
}

/// Why not to run a wanted implementation; nothing to run it. One that is kept to compare algorithms, or to
/// show how one breaks, is for those who name it: it must not slow every sweep down, or turn it red.
std::optional<Explanation> reason_to_skip(const Implementation& implementation, const Case& the_case,
                                          const Selection& selection) {
  if (auto reason = implementation.unsupported(the_case.problem))
    return {{Cause::unsupported, std::move(*reason)}};
  const bool is_named = !selection.impl.empty() || !the_case.impl.empty();
  if (is_named || (implementation.known_failure.empty() && !implementation.only_when_named)) return {};
  std::string reason = "runs only when --impl or a config names it";
  if (!implementation.known_failure.empty()) (reason += ": ") += implementation.known_failure;
  return {{Cause::only_when_named, std::move(reason)}};
}

/// An implementation on a device.
using Candidate = std::pair<const Implementation*, std::size_t>;

const std::vector<Implementation>& implementations_on(const DeviceInfo& device) {
  return device.ranks > 1 ? team_implementations(device.ranks) : implementations();
}

/// Those of an operation.
std::vector<Candidate> candidates_for(const OpSpec& op, const std::vector<DeviceInfo>& devices) {
  std::vector<Candidate> candidates;
  for (std::size_t device = 0; device < devices.size(); ++device)
    for (const auto& implementation : implementations_on(devices[device]))
      if (implementation.op == op.name && implementation.device == devices[device].kind)
        candidates.emplace_back(&implementation, device);
  return candidates;
}

std::vector<Job> jobs_for(const Case& the_case, const std::vector<Candidate>& candidates,
                          const Selection& selection) {
  std::vector<Job> jobs;
  jobs.reserve(candidates.size());
  for (const auto& [implementation, device] : candidates)
    if (wanted(*implementation, the_case, selection))
      jobs.push_back({implementation, device, reason_to_skip(*implementation, the_case, selection)});
  return jobs;
}

/// Cases with equal keys one after the other, at the place of the first of them.
std::vector<std::size_t> order_by_reference(std::vector<std::string> keys) {
  std::unordered_map<std::string, std::size_t> firsts;
  firsts.reserve(keys.size());
  std::vector<std::size_t> first(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    first[i] = firsts.emplace(std::move(keys[i]), i).first->second;
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return first[i]; });
  return order;
}

}  // namespace

bool PlannedCase::runs_anything() const {
  return std::ranges::any_of(jobs, [](const Job& job) { return !job.skip; });
}

std::size_t Plan::job_count() const {
  std::size_t count = 0;
  for (const auto& planned : cases) count += planned.jobs.size();
  return count;
}

std::pair<const PlannedCase*, const Job*> Plan::job(std::size_t number) const {
  for (const auto& planned : cases) {
    if (number < planned.jobs.size()) return {&planned, &planned.jobs[number]};
    number -= planned.jobs.size();
  }
  throw std::out_of_range("the plan has fewer jobs");
}

std::string device_id(const DeviceInfo& device) {
  if (device.ranks > 1) return fmt::format("{}*{}", name_of(device.kind), device.ranks);
  if (device.kind == DeviceKind::cpu) return "cpu";
  return fmt::format("cuda:{}", device.index);
}

std::string reference_key(const Case& the_case) {
  Problem canonical = the_case.problem.canonical();
  if (the_case.inputs.values == "shared" && !reference_depends_on_dtype(canonical))
    canonical = canonical.with({{"dtype", "f32"}});
  return Case{.problem = std::move(canonical), .inputs = the_case.inputs, .budget_ms = {}, .source = {}}.id();
}

Plan make_plan(std::vector<Case> cases, std::vector<DeviceInfo> devices, const Selection& selection) {
  Plan plan{.devices = std::move(devices), .cases = {}};
  std::erase_if(cases, [&](const Case& the_case) { return !selected(the_case, selection); });
  std::map<const OpSpec*, std::vector<Candidate>> candidates;
  for (const auto& the_case : cases)
    if (const OpSpec& op = the_case.problem.op(); !candidates.contains(&op))
      candidates[&op] = candidates_for(op, plan.devices);
  std::vector<std::vector<Job>> jobs(cases.size());
  // Plugins need not be able to answer several threads.
#pragma omp parallel for schedule(static) if (cases.size() > 1000 && !a_plugin_is_loaded())
  for (std::size_t i = 0; i < cases.size(); ++i)
    jobs[i] = jobs_for(cases[i], candidates.at(&cases[i].problem.op()), selection);
  std::vector<PlannedCase> planned;
  planned.reserve(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (!jobs[i].empty()) planned.push_back({std::move(cases[i]), std::move(jobs[i])});
  std::vector<std::string> keys(planned.size());
#pragma omp parallel for schedule(static) if (planned.size() > 1000)
  for (std::size_t i = 0; i < planned.size(); ++i) keys[i] = reference_key(planned[i].the_case);

  plan.cases.reserve(planned.size());
  for (const std::size_t i : order_by_reference(std::move(keys))) plan.cases.push_back(std::move(planned[i]));
  return plan;
}

std::size_t bytes_of_ranks(const Job& job, const Plan& plan, const Problem& problem) {
  const DeviceInfo& team = plan.devices[job.device];
  if (team.ranks == 1) return 0;
  const auto& implementation = *distributed_implementation(problem.op().name, job.implementation->name);
  if (!team.has_device_per_rank) return bytes_of_ranks(implementation, problem, team.ranks);
  std::size_t most = 0;
  for (int rank = 0; rank < team.ranks; ++rank)
    most = std::max(most, bytes_of_rank(implementation, problem, rank, team.ranks));
  return most;
}

MemoryNeed memory_need(const PlannedCase& planned, const Plan& plan, bool verify,
                       std::size_t most_of_reference) {
  MemoryNeed need;
  if (!planned.runs_anything()) return need;
  const Problem& problem = planned.the_case.problem;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  for (const auto& tensor : problem.tensors())
    (tensor.role == Role::input ? inputs : outputs) += tensor.bytes();
  std::size_t reference = verify ? reference_bytes_in_parts(problem, most_of_reference) : 0;
  if (planned.the_case.timed &&
      !ExchangeDraw(problem).can_exchange()) {  // then there are inputs of another seed
    inputs *= 2;
    reference *= 2;
  }
  need.host = inputs + outputs + reference;
  for (const auto& job : planned.jobs) {
    if (job.skip) continue;
    const std::size_t workspace = job.implementation->workspace_bytes(problem);
    if (plan.devices[job.device].kind == DeviceKind::cuda) {
      // Rank 0 of a team has the whole problem beside its part.
      need.device = std::max(need.device, inputs + outputs + workspace + bytes_of_ranks(job, plan, problem));
      // The outputs of the first launch and of the latest.
      need.host = std::max(need.host, inputs + 2 * outputs + reference);
    } else {  // the CPU's outputs lie beside these copies
      need.host = std::max(need.host,
                           inputs + 3 * outputs + reference + workspace + bytes_of_ranks(job, plan, problem));
    }
  }
  return need;
}

}  // namespace ssmbench
