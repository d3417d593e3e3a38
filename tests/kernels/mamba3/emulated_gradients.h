#pragma once

// The code of Mamba-3's gradient kernels on the CPU, beside the reference.

#include <cstring>
#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "kernels/mamba3/bind.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "verify/compare.h"
#include "verify/describe.h"

namespace ssmbench::test {

/// All outputs, which are full of NaN before run(args).
template <class Run>
std::vector<HostTensor> outputs_of(const Problem& problem, const std::vector<HostTensor>& inputs,
                                   const Run& run) {
  std::vector<HostTensor> outputs;
  for (const auto& spec : specs_of(problem, Role::output)) {
    outputs.emplace_back(spec);
    std::memset(outputs.back().buffer.data(), 0xFF, outputs.back().buffer.bytes());
  }
  TensorSet tensors = views_of(inputs);
  for (const auto& output : outputs) tensors.add(output.spec.name, output.view());
  run(bind_mamba3_bwd(problem, tensors));
  return outputs;
}

/// What is wrong with what emulate(inputs) returns; nothing where all is right.
template <class Emulate>
std::string failures_of(const Problem& problem, const InputSpec& spec, const Arithmetic& arithmetic,
                        const Emulate& emulate) {
  const auto inputs = generate_inputs(problem, spec, never_stop);
  const auto reference = compute_reference(problem, views_of(inputs), never_stop);
  std::string failures;
  for (const HostTensor& output : emulate(inputs)) {
    const auto comparison =
        compare_output(output.view(), reference.at(output.spec.name).expectation(), arithmetic);
    if (!comparison.passed()) failures += output.spec.name + ": " + why_failed(comparison) + "\n";
  }
  return failures;
}

}  // namespace ssmbench::test
