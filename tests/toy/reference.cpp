#include "reference/reference.h"

#include <cmath>

namespace ssmbench {
namespace {

/// A sum of k terms has at most k roundings of at most the sum of magnitudes; the gain adds one.
ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& /*stop*/) {
  const std::int64_t batch = problem.size("sequences");
  const std::int64_t steps = problem.size("steps");
  const std::int64_t lanes = problem.size("lanes");
  const TensorView& x = inputs.at("x");
  const TensorView* gain = inputs.find("gain");
  ReferenceOutputs outputs;
  ReferenceOutput& sums = outputs["sums"] = empty_output({batch, steps, lanes});
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t c = 0; c < lanes; ++c) {
      double sum = 0;
      double magnitude = 0;
      double error = 0;
      const double factor = gain == nullptr ? 1 : load_as_double(gain->data, c, gain->dtype);
      for (std::int64_t t = 0; t < steps; ++t) {
        const std::int64_t element = (b * steps + t) * lanes + c;
        const double value = load_as_double(x.data, element, x.dtype);
        sum += value;
        magnitude += std::abs(value);
        error += magnitude;
        sums.expected[element] = factor * sum;
        sums.bound[element] = static_cast<float>(std::abs(factor) * (error + magnitude));
      }
    }
  return outputs;
}

std::size_t bytes(const Problem& problem) {
  return output_bytes(problem, [](const TensorSpec&) { return false; });
}

const ReferenceRegistration registration({.op = "running_sum", .compute = compute, .bytes = bytes});

}  // namespace
}  // namespace ssmbench
