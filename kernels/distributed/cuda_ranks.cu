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
    for (int axis = region.axes - 1; axis > 0; --axis) {
      const std::int64_t before = rest / region.shape[axis];
      const std::int64_t index = rest - before * region.shape[axis];
      rest = before;
      source += index * region.from_strides[axis];
      target += index * region.to_strides[axis];
    }
    source += rest * region.from_strides[0];
    target += rest * region.to_strides[0];
    to[target] = from[source];
  }
}

/// Axes from the one with the longest strides to the one that is contiguous, without those of one index, and
/// with neighbours that are one run in both places taken together.
RegionCopy simplified(const RegionCopy& region) {
  std::array<int, RegionCopy::kMaxAxes> order{0, 1, 2, 3, 4, 5};
  std::stable_sort(order.begin(), order.begin() + region.axes,
                   [&](int a, int b) { return region.to_strides[a] > region.to_strides[b]; });
  RegionCopy simple = region;
  simple.axes = 0;
  for (int i = 0; i < region.axes; ++i) {
    const int axis = order[i];
    const std::int64_t size = region.shape[axis];
    const std::int64_t from = region.from_strides[axis];
    const std::int64_t to = region.to_strides[axis];
    if (size == 1) continue;
    const int last = simple.axes - 1;
    if (last >= 0 && simple.from_strides[last] == size * from && simple.to_strides[last] == size * to)
      simple.shape[last] *= size;
    else
      simple.shape[simple.axes++] = size;
    simple.from_strides[simple.axes - 1] = from;
    simple.to_strides[simple.axes - 1] = to;
  }
  return simple;
}

/// In words as large as lengths, places and strides allow, 16 bytes at most.
RegionCopy in_words(const RegionCopy& region) {
  const int last = region.axes - 1;
  if (last < 0 || region.from_strides[last] != 1 || region.to_strides[last] != 1) return region;
  const auto fits = [&](std::int64_t elements, std::size_t bytes) {
    bool fit = region.shape[last] % elements == 0;
    for (int axis = 0; axis < last; ++axis)
      fit = fit && region.from_strides[axis] % elements == 0 && region.to_strides[axis] % elements == 0;
    for (const std::byte* place : {region.from, static_cast<const std::byte*>(region.to)})
      fit = fit && reinterpret_cast<std::uintptr_t>(place) % bytes == 0;
    return fit;
  };
  std::int64_t elements = 1;
  std::size_t bytes = region.element_bytes;
  while (bytes < sizeof(uint4) && fits(2 * elements, 2 * bytes)) {
    elements *= 2;
    bytes *= 2;
  }
  RegionCopy words = region;
  words.element_bytes = bytes;
  words.shape[last] /= elements;
  for (int axis = 0; axis < last; ++axis) {
    words.from_strides[axis] /= elements;
    words.to_strides[axis] /= elements;
  }
  return words;
}

void copy(const RegionCopy& whole, void* stream) {
  const RegionCopy region = in_words(simplified(whole));
  std::int64_t count = 1;
  for (int axis = 0; axis < region.axes; ++axis) count *= region.shape[axis];
  if (count == 0) return;
  const auto launch = [&](auto kernel) {
    const auto blocks = static_cast<unsigned>(std::min(ceil_div(count, std::int64_t{kThreads}), kMaxBlocks));
    kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(region, count);
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
    case 16:
      return launch(copy_kernel<uint4>);
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
