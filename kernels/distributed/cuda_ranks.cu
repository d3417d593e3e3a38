// Ranks on GPUs. They are named after NCCL, which carries their data from GPU to GPU; ranks that share a GPU
// have staged copies instead.

#include <algorithm>
#include <array>
#include <string_view>

#include "base/cuda_check.h"
#include "base/logic_error.h"
#include "kernels/common/index_math.h"
#include "kernels/distributed/rank_kind.h"

namespace ssmbench::cuda_rank {
namespace {

/// By operation and io dtype the first of these that does the problem.
constexpr std::array<std::string_view, 2> kExact{"cuda-fused", "cuda-chunked-f32"};
constexpr std::array<std::string_view, 3> kOf16Bits{"cuda-fused", "cuda-hopper", "cuda-chunked"};

const Implementation* find(std::string_view op, std::string_view name) {
  const auto& all = implementations();
  const auto found =
      std::ranges::find_if(all, [&](const Implementation& one) { return one.op == op && one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

/// Calls call(implementation) for those of an operation until it returns true; returns that one, or null.
template <class Call>
const Implementation* first_of(std::string_view op, DType io, const Call& call) {
  const auto among = [&](const auto& names) -> const Implementation* {
    for (const auto name : names)
      if (const Implementation* one = find(op, name); one != nullptr && call(*one)) return one;
    return nullptr;
  };
  return io == DType::f32 ? among(kExact) : among(kOf16Bits);
}

const Implementation* implementation(const Problem& problem) {
  return first_of(problem.op().name, problem.dtype(),
                  [&](const Implementation& one) { return !one.unsupported(problem); });
}

/// All of an operation's claim the same.
Arithmetic arithmetic(const std::string& op, DType io) {
  const Implementation* any = first_of(op, io, [](const Implementation& /*one*/) { return true; });
  return any == nullptr ? Arithmetic() : any->arithmetic(io);
}

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMaxBlocks = 4096;

template <class Word>
__global__ void copy_kernel(const RegionCopy region, std::int64_t count) {
  const auto* const from = reinterpret_cast<const Word*>(region.from);
  auto* const to = reinterpret_cast<Word*>(region.to);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    std::int64_t rest = i;
    std::int64_t source = 0;
    std::int64_t target = 0;
    for (int axis = region.axes - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % region.shape[axis];
      rest /= region.shape[axis];
      source += index * region.from_strides[axis];
      target += index * region.to_strides[axis];
    }
    to[target] = from[source];
  }
}

/// Axes from the one with the longest strides to the one that is contiguous.
RegionCopy ordered(const RegionCopy& region) {
  std::array<int, RegionCopy::kMaxAxes> order{0, 1, 2, 3, 4, 5};
  std::stable_sort(order.begin(), order.begin() + region.axes,
                   [&](int a, int b) { return region.to_strides[a] > region.to_strides[b]; });
  RegionCopy sorted = region;
  for (int i = 0; i < region.axes; ++i) {
    sorted.shape[i] = region.shape[order[i]];
    sorted.from_strides[i] = region.from_strides[order[i]];
    sorted.to_strides[i] = region.to_strides[order[i]];
  }
  return sorted;
}

void copy(const RegionCopy& region, void* stream) {
  std::int64_t count = 1;
  for (int axis = 0; axis < region.axes; ++axis) count *= region.shape[axis];
  if (count == 0) return;
  const auto launch = [&](auto kernel) {
    const auto blocks = static_cast<unsigned>(std::min(ceil_div(count, std::int64_t{kThreads}), kMaxBlocks));
    kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(ordered(region), count);
    check_cuda(cudaGetLastError());
  };
  switch (region.element_bytes) {
    case 1:
      return launch(copy_kernel<std::uint8_t>);
    case 2:
      return launch(copy_kernel<std::uint16_t>);
    case 4:
      return launch(copy_kernel<std::uint32_t>);
    case 8:
      return launch(copy_kernel<std::uint64_t>);
    default:
      throw_logic_error("not a size of elements");
  }
}

}  // namespace
}  // namespace ssmbench::cuda_rank

namespace ssmbench {

const RankKind& cuda_ranks() {
  static constexpr RankKind kind{.device = DeviceKind::cuda,
                                 .prefix = "nccl",
                                 .implementation = cuda_rank::implementation,
                                 .arithmetic = cuda_rank::arithmetic,
                                 .copy = cuda_rank::copy};
  return kind;
}

}  // namespace ssmbench
