#include "report/study_table.h"

#include <fmt/format.h>

#include <cmath>

#include "base/printable.h"
#include "report/labels.h"

namespace ssmbench {
namespace {

std::string limit_text(double limit) {
  return std::isinf(limit) ? "none" : fmt::format("{:.4g}", limit);
}

std::string decay_text(std::complex<double> A) {
  return A.imag() == 0 ? fmt::format("{:g}", A.real()) : fmt::format("{:g}{:+g}i", A.real(), A.imag());
}

std::string line(const MethodConvergence& result) {
  const StepErrors& coarse = result.errors.front();
  const StepErrors& fine = result.errors.back();
  return fmt::format("{:<17} {:>6} {:>9.2f} {:>8} {:>9} {:>10.2e} {:>10.2e} {:>10.2e} {:>10.2e}\n",
                     result.method->name, result.order, result.measured_order,
                     limit_text(result.stability_limit), limit_text(result.measured_stability_limit),
                     coarse.discretization, fine.discretization, coarse.rounding, fine.rounding);
}

}  // namespace

std::string convergence_table(const std::vector<MethodConvergence>& methods) {
  const MethodConvergence& any = methods.front();
  std::string text =
      fmt::format("h' = A·h + sin(t) on [0, {:g}], A = {}, {} runs from Δ = {:g} to Δ = {:g}\n", any.horizon,
                  decay_text(any.A), any.errors.size(), any.errors.front().delta, any.errors.back().delta);
  text +=
      "                         order    stability limit Δ|A|  discretization error    f32 rounding error\n";
  text +=
      "method            theory  measured   theory  measured  largest Δ smallest Δ  largest Δ smallest Δ\n";
  for (const auto& result : methods) text += line(result);
  return text;
}

std::string consistency_heading() {
  return fmt::format("{:<7} {:<7} {:<19} {:<19} {:<6} {:<5} {:>9} {:>7}  {}", "status", "check", "at once",
                     "in parts", "device", "dtype", "rel L2", "err/tol", "case");
}

std::string consistency_line(const ConsistencyResult& result) {
  const CaseResult& at_once = result.at_once;
  const Problem& problem = at_once.the_case.problem;
  std::string line =
      fmt::format("{:<7} {:<7} {:<19} {:<19} {:<6} {:<5}", name_of(at_once.status), result.check,
                  at_once.impl, result.parts, at_once.device, problem.choice("dtype"));
  const OutputComparison* worst = worst_output(at_once);
  line += worst != nullptr ? fmt::format(" {:>9.2e} {:>7.3f}", worst->rel_l2, worst->tolerance_ratio)
                           : fmt::format(" {:>9} {:>7}", "", "");
  line += fmt::format("  {} {} {}", problem.op().name, shape_label(problem), options_label(at_once.the_case));
  return at_once.reason.empty() ? line : line + "  -- " + printable(at_once.reason);
}

}  // namespace ssmbench
