#include "study/consistency.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/errors.h"
#include "device/device.h"
#include "inputs/inputs.h"
#include "sweep/prepared_run.h"
#include "verify/compare_pair.h"
#include "verify/dequantized.h"
#include "verify/describe.h"

namespace ssmbench {
namespace {

/// What came of running an implementation: its outputs, or why there are none.
struct Attempt {
  std::vector<HostTensor> outputs;
  Status status = Status::pass;
  std::optional<Explanation> why = {};  ///< unless it passed
};

template <class Run>
Attempt attempt(const Run& run) {
  try {
    return {run()};
  } catch (const UnsupportedPart& error) {
    return {{}, Status::skip, {{Cause::unsupported, error.what()}}};
  } catch (const Interrupted&) {
    throw;
  } catch (const DamageError& error) {
    return {{}, Status::error, {{cause_of(error.damage), error.what()}}};
  } catch (const std::exception& error) {  // an implementation that fails is a result
    return {{}, Status::error, explain(error)};
  }
}

/// One case on one device.
class CaseStudy {
 public:
  CaseStudy(const ConsistencyStudy& study, const Case& the_case, const ReferenceOutputs& reference,
            const std::vector<HostTensor>& inputs, const DeviceInfo& info, const std::atomic<bool>& stop)
      : study_(study),
        case_(the_case),
        reference_(reference),
        inputs_(inputs),
        info_(info),
        device_(open_device(info.kind, info.index)),
        stop_(stop) {}

  void run(const std::vector<Job>& jobs, const std::function<void(const ConsistencyResult&)>& done) {
    std::map<const Implementation*, Attempt> at_once;
    for (const auto& job : jobs) at_once.emplace(job.implementation, compute_at_once(job));
    for (const auto* check : study_.checks) {
      std::map<const Implementation*, Attempt> in_parts;  // of those that do without the one of the whole
      for (const auto& job : jobs)
        for (const auto* parts : implementations_of_parts(*check, *job.implementation)) {
          if (stop_) throw Interrupted();
          auto found = in_parts.find(parts);
          std::optional<Attempt> own;
          if (found == in_parts.end()) {
            bool uses_whole = false;
            Attempt computed = compute_in_parts(*check, *parts, *job.implementation, uses_whole);
            if (uses_whole)
              own = std::move(computed);
            else
              found = in_parts.emplace(parts, std::move(computed)).first;
          }
          done(compare(*check, *job.implementation, at_once.at(job.implementation), *parts,
                       own ? *own : found->second));
        }
    }
  }

 private:
  Attempt compute_at_once(const Job& job) {
    if (job.skip) return {{}, Status::skip, job.skip};
    return attempt([&] { return run_once(*device_, *job.implementation, case_.problem, inputs_); });
  }

  /// Parts of the operation of the whole, where that of the check is another, are computed by `whole`.
  /// `uses_whole` becomes true where there are any.
  Attempt compute_in_parts(const PartwiseComputation& check, const Implementation& parts,
                           const Implementation& whole, bool& uses_whole) {
    if (auto reason = check.inapplicable(case_.problem))
      return {{}, Status::skip, {{Cause::inapplicable, *reason}}};
    return attempt([&] {
      return check.compute(case_.problem, inputs_,
                           [&](const Problem& part, const std::vector<HostTensor>& part_inputs) {
                             if (stop_) throw Interrupted();
                             const bool is_of_whole = part.op().name != parts.op;
                             uses_whole |= is_of_whole;
                             const Implementation& implementation = is_of_whole ? whole : parts;
                             if (auto reason = implementation.unsupported(part))
                               throw UnsupportedPart(*reason);
                             return run_once(*device_, implementation, part, part_inputs);
                           });
    });
  }

  std::vector<const Implementation*> implementations_of_parts(const PartwiseComputation& check,
                                                              const Implementation& whole) const {
    if (check.parts_op == whole.op) return {&whole};
    std::vector<const Implementation*> chosen;
    for (const auto& each : implementations())
      if (each.op == check.parts_op && each.device == info_.kind && each.known_failure.empty() &&
          !each.only_when_named)
        chosen.push_back(&each);
    return chosen;
  }

  ConsistencyResult compare(const PartwiseComputation& check, const Implementation& whole,
                            const Attempt& at_once, const Implementation& parts,
                            const Attempt& in_parts) const {
    const DType io = case_.problem.dtype();
    CaseResult result{.the_case = case_, .impl = whole.name, .device = device_id(info_)};
    const Attempt& worse = at_once.status == Status::pass ? in_parts : at_once;
    result.status = worse.status;
    if (worse.why) {
      result.cause = worse.why->cause;
      result.reason = worse.why->reason;
    }
    if (result.status == Status::pass)
      judge(result, at_once.outputs, whole.arithmetic(io), in_parts.outputs, parts.arithmetic(io));
    return {check.check, check.parts_op, parts.name, std::move(result)};
  }

  void judge(CaseResult& result, const std::vector<HostTensor>& at_once, const Arithmetic& at_once_arithmetic,
             const std::vector<HostTensor>& in_parts, const Arithmetic& in_parts_arithmetic) const {
    for (std::size_t i = 0; i < at_once.size(); ++i) {
      const std::string& name = at_once[i].spec.name;
      const auto whole = dequantized(at_once[i], at_once);
      const auto parts = dequantized(in_parts[i], in_parts);
      const auto comparison =
          compare_pair((whole ? *whole : at_once[i]).view(), (parts ? *parts : in_parts[i]).view(),
                       reference_.at(name).expectation(), at_once_arithmetic, in_parts_arithmetic);
      if (!comparison.passed() && result.status == Status::pass) {
        result.status = Status::fail;
        result.cause = cause_of_failure(comparison);
        result.reason = fmt::format("{} at ({}): {:.9g} at once, {:.9g} in parts, {:.3g} × the tolerances",
                                    name, fmt::join(comparison.worst_index, ", "), comparison.worst_expected,
                                    comparison.worst_got, comparison.tolerance_ratio);
      }
      result.outputs.emplace(name, comparison);
    }
  }

  const ConsistencyStudy& study_;
  const Case& case_;
  const ReferenceOutputs& reference_;
  const std::vector<HostTensor>& inputs_;
  const DeviceInfo& info_;
  std::unique_ptr<Device> device_;
  const std::atomic<bool>& stop_;
};

}  // namespace

void measure_consistency(const ConsistencyStudy& study, const std::vector<DeviceInfo>& devices,
                         const Selection& selection, const std::atomic<bool>& stop,
                         const std::function<void(const ConsistencyResult&)>& done) {
  const Plan plan = make_plan(study.cases, devices, selection);
  for (const auto& planned : plan.cases) {
    const Problem& problem = planned.the_case.problem;
    const auto inputs = generate_inputs(problem, planned.the_case.inputs, stop);
    const auto reference = compute_reference(problem, views_of(inputs), stop);
    for (std::size_t device = 0; device < plan.devices.size(); ++device) {
      std::vector<Job> jobs;
      for (const auto& job : planned.jobs)
        if (job.device == device) jobs.push_back(job);
      if (!jobs.empty())
        CaseStudy(study, planned.the_case, reference, inputs, plan.devices[device], stop).run(jobs, done);
    }
  }
}

}  // namespace ssmbench
