#include <cstring>

#include "kernels/distributed/rank_kind.h"

namespace ssmbench {
namespace {

const Implementation* host_implementation(const Problem& problem) {
  const Implementation* found = nullptr;
  for (const auto& one : implementations())
    if (one.op == problem.op().name && !one.unsupported(problem) &&
        (one.name == "cpu-simd" || (one.name == "cpu-scalar" && found == nullptr)))
      found = &one;
  return found;
}

void host_copy(const RegionCopy& region, void* /*stream*/) {
  Shape rows(region.shape, region.shape + region.axes);
  std::size_t bytes = region.element_bytes;
  for (int axis = 0; axis < region.axes; ++axis) {
    if (region.from_strides[axis] != 1 || region.to_strides[axis] != 1) continue;
    bytes *= static_cast<std::size_t>(rows[static_cast<std::size_t>(axis)]);  // neighbours in both
    rows[static_cast<std::size_t>(axis)] = 1;
    break;
  }
  for (std::int64_t i = 0; i < element_count(rows); ++i) {
    const Shape index = index_of(i, rows);
    std::int64_t source = 0;
    std::int64_t target = 0;
    for (int axis = 0; axis < region.axes; ++axis) {
      source += index[static_cast<std::size_t>(axis)] * region.from_strides[axis];
      target += index[static_cast<std::size_t>(axis)] * region.to_strides[axis];
    }
    const auto element = static_cast<std::int64_t>(region.element_bytes);
    std::memcpy(region.to + target * element, region.from + source * element, bytes);
  }
}

}  // namespace

std::optional<std::string> cannot_compute(const RankKind& ranks, const Problem& part) {
  if (ranks.implementation(part) != nullptr) return {};
  return "has no kernel for a rank's part";
}

const RankKind& host_ranks() {
  static constexpr RankKind kind{
      .device = DeviceKind::cpu,
      .prefix = "cpu",
      .implementation = host_implementation,
      .arithmetic = [](const std::string& /*op*/, DType /*io*/) { return Arithmetic(); },
      .copy = host_copy};
  return kind;
}

}  // namespace ssmbench
