#include "reference/reference.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "reference/linear_scan.h"
#include "reference/selective_scan.h"
#include "reference/selective_scan_bwd.h"
#include "reference/ssd_bwd.h"
#include "reference/ssd_fwd.h"
#include "reference/state_update.h"
#include "reference/zeros.h"

namespace ssmbench {

ReferenceOutput empty_output(Shape shape) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  return {std::move(shape), zeros<double>(count), zeros<float>(count)};
}

ReferenceOutputs compute_reference(const Problem& problem, const TensorSet& inputs,
                                   const std::atomic<bool>& stop) {
  if (problem.op().name == "selective_scan_fwd") return selective_scan_fwd_reference(problem, inputs, stop);
  if (problem.op().name == "selective_scan_bwd") return selective_scan_bwd_reference(problem, inputs, stop);
  if (problem.op().name == "selective_state_update") return state_update_reference(problem, inputs, stop);
  if (problem.op().name == "linear_scan") return linear_scan_reference(problem, inputs, stop);
  if (problem.op().name == "ssd_chunk_scan_fwd") return ssd_chunk_scan_fwd_reference(problem, inputs, stop);
  if (problem.op().name == "ssd_chunk_scan_bwd") return ssd_chunk_scan_bwd_reference(problem, inputs, stop);
  throw std::logic_error(fmt::format("no reference for {}", problem.op().name));
}

std::size_t reference_bytes(const Problem& problem) {
  const std::string_view op = problem.op().name;
  std::size_t bytes = 0;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const std::int64_t elements = element_count(tensor.shape) * (tensor.dtype == DType::c64 ? 2 : 1);
    // Two arrays of floats beside the values: bounds of operands' roundings too, or responses to decays.
    const bool responses = op == "selective_scan_fwd" && tensor.name == "out" && elements <= kMostResponses;
    const bool two = op.starts_with("ssd_") || responses;
    bytes += static_cast<std::size_t>(elements) * (sizeof(double) + (two ? 2 : 1) * sizeof(float));
  }
  if (op == "selective_scan_bwd") bytes += selective_scan_bwd_working_bytes(problem);
  if (op == "ssd_chunk_scan_bwd") bytes += ssd_chunk_scan_bwd_working_bytes(problem);
  return bytes;
}

}  // namespace ssmbench
