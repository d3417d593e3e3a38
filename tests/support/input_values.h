#pragma once

#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "support/host_tensors.h"

namespace ssmbench::test {

/// The elements of an input as it is generated, in row-major order; none where the problem has no such input.
inline std::vector<double> input_values(const Problem& problem, const std::string& name,
                                        const InputSpec& spec) {
  std::vector<double> values;
  for (const auto& tensor : generate_inputs(problem, spec, never_stop))
    if (tensor.spec.name == name)
      for (std::int64_t i = 0; i < element_count(tensor.spec.shape); ++i)
        values.push_back(tensor.spec.dtype == DType::i32
                             ? static_cast<const std::int32_t*>(tensor.buffer.data())[i]
                             : load_as_double(tensor.buffer.data(), i, tensor.spec.dtype));
  return values;
}

}  // namespace ssmbench::test
