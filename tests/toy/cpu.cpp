#include <vector>

#include "model/implementation.h"

namespace ssmbench {
namespace {

std::optional<std::string> unsupported(const Problem& problem) {
  if (problem.dtype() != DType::f32) return "has f32 only";
  return {};
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  check_contract(problem, tensors);
  const auto* x = static_cast<const float*>(tensors.at("x").data);
  const TensorView* gain = tensors.find("gain");
  const auto* factors = gain == nullptr ? nullptr : static_cast<const float*>(gain->data);
  auto* sums = static_cast<float*>(tensors.at("sums").data);
  return [=, batch = problem.size("sequences"), steps = problem.size("steps"),
          lanes = problem.size("lanes")](void* /*stream*/) {
    for (std::int64_t b = 0; b < batch; ++b) {
      std::vector<float> sum(lanes);
      for (std::int64_t t = 0; t < steps; ++t)
        for (std::int64_t c = 0; c < lanes; ++c) {
          const std::int64_t element = (b * steps + t) * lanes + c;
          sum[c] += x[element];
          sums[element] = factors == nullptr ? sum[c] : factors[c] * sum[c];
        }
    }
  };
}

const Registration registration({.name = "cpu-toy",
                                 .op = "running_sum",
                                 .device = DeviceKind::cpu,
                                 .summary = "one thread",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind});

}  // namespace
}  // namespace ssmbench
