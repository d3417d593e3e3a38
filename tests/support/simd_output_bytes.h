#pragma once

#include <cstring>
#include <vector>

#include "model/tensor.h"
#include "support/find_implementation.h"
#include "support/host_tensors.h"

namespace ssmbench::test {

/// All outputs of cpu-simd, one after the other as bytes, from a workspace full of NaN.
inline std::vector<char> simd_output_bytes(const Problem& problem, const std::vector<HostTensor>& inputs) {
  const Implementation& simd = find_implementation(problem.op().name, "cpu-simd");
  std::vector<HostTensor> outputs;
  for (const auto& spec : specs_of(problem, Role::output)) outputs.emplace_back(spec);
  TensorSet tensors = views_of(inputs);
  for (const auto& output : outputs) tensors.add(output.spec.name, output.view());
  const HostBuffer workspace(simd.workspace_bytes(problem));
  std::memset(workspace.data(), 0xFF, workspace.bytes());
  simd.bind(problem, tensors, workspace.data())(nullptr);
  std::vector<char> bytes;
  for (const auto& output : outputs) {
    const auto* begin = static_cast<const char*>(output.buffer.data());
    bytes.insert(bytes.end(), begin, begin + output.buffer.bytes());
  }
  return bytes;
}

}  // namespace ssmbench::test
