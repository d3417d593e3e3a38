#include "sweep/case_reference.h"

#include "verify/compare.h"
#include "verify/dequantized.h"

namespace ssmbench {
namespace {

/// Values that are in units of scales take the place of an output.
struct JudgedOutput {
  const TensorSpec& spec;
  std::optional<HostTensor> values;
  PartwiseComparison comparison;
};

JudgedOutput judged_output(const HostTensor& output, const std::vector<HostTensor>& all,
                           const Arithmetic& arithmetic, const Case& the_case) {
  auto values = dequantized(output, all);
  PartwiseComparison comparison((values ? *values : output).view(), arithmetic,
                                the_case.tolerance_of(output.spec.name), time_axis(output.spec));
  return {output.spec, std::move(values), std::move(comparison)};
}

void add_part(JudgedOutput& output, const ReferenceParts::Part& part) {
  const auto found = part.outputs.find(output.spec.name);
  if (found == part.outputs.end()) return;  // it comes with another one
  output.comparison.add(begin_of(output.spec, part.box), found->second.shape, found->second.expectation());
}

}  // namespace

CaseReference::CaseReference(const Problem& problem, const std::vector<HostTensor>& inputs, std::size_t bytes,
                             const std::atomic<bool>& stop) {
  if (reference_bytes(problem) <= bytes ||
      reference_bytes_in_parts(problem, bytes) == reference_bytes(problem)) {
    outputs_ = compute_reference(problem, views_of(inputs), stop);
    return;
  }
  problem_ = &problem;
  inputs_ = &inputs;
  bytes_ = bytes;
  stop_ = &stop;
}

std::vector<OutputComparison> CaseReference::compare(const std::vector<const HostTensor*>& judged,
                                                     const std::vector<HostTensor>& all,
                                                     const Arithmetic& arithmetic,
                                                     const Case& the_case) const {
  std::vector<OutputComparison> comparisons;
  if (outputs_) {
    for (const HostTensor* output : judged) {
      const auto values = dequantized(*output, all);
      comparisons.push_back(
          compare_output((values ? *values : *output).view(), outputs_->at(output->spec.name).expectation(),
                         arithmetic, the_case.tolerance_of(output->spec.name), time_axis(output->spec)));
    }
    return comparisons;
  }
  std::vector<JudgedOutput> outputs;
  for (const HostTensor* output : judged)
    outputs.push_back(judged_output(*output, all, arithmetic, the_case));
  const TensorSet inputs = views_of(*inputs_);
  ReferenceParts parts(*problem_, inputs, bytes_);
  for (auto part = parts.next(*stop_); part; part = parts.next(*stop_)) {
    for (auto& output : outputs) add_part(output, *part);
    part.reset();  // before the next one
  }
  for (const auto& output : outputs) comparisons.push_back(output.comparison.result());
  return comparisons;
}

std::string CaseReference::note() const {
  if (outputs_)
    for (const auto& [name, output] : *outputs_)
      if (!output.note.empty()) return output.note;
  return "";
}

}  // namespace ssmbench
