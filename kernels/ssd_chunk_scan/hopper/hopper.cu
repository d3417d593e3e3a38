// cuda-hopper: registration. The kernel, with the picture of its warps, is in kernel.cuh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>

#include "kernels/common/hopper/device.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/hopper/launch.h"
#include "kernels/ssd_chunk_scan/sequences.h"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench::ssd_hopper {

extern template Variant variant_for<__half, 1>(int states, bool gated);
extern template Variant variant_for<__half, 2>(int states, bool gated);
extern template Variant variant_for<__nv_bfloat16, 1>(int states, bool gated);
extern template Variant variant_for<__nv_bfloat16, 2>(int states, bool gated);
extern template PackedVariant packed_variant_for<__half, 1>(int states, bool gated);
extern template PackedVariant packed_variant_for<__nv_bfloat16, 1>(int states, bool gated);
extern template PackedVariant packed_variant_for<__nv_bfloat16, 2>(int states, bool gated);

namespace {

/// Multiprocessors of an H200; a GPU with fewer runs the last blocks after the first.
constexpr int kMultiprocessors = 132;
constexpr std::int64_t kMaxStates = 128;

Plan plan_of(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  if (sequences.packed)
    return packed_plan_for({sequences.count, scan.seqlen, scan.nheads, scan.groups, scan.headdim},
                           kMultiprocessors, problem.dtype() == DType::f16 ? 1 : 2);
  return plan_for({scan.batch, scan.seqlen, scan.nheads, scan.groups, scan.headdim}, kMultiprocessors);
}

int padded_dstate(const SsdChunkScan& scan) {
  return scan.dstate <= 64 ? 64 : 128;
}

std::optional<std::string> unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  if (sequences.stops > 0) return "does not support states_at";
  if (problem.dtype() == DType::f32) return "needs tensors of 16-bit elements";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0)
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  if (scan.dstate > kMaxStates) return "needs dstate of at most 128: states of 64 rows are held in registers";
  constexpr std::int64_t kMost = 2147483647;
  const std::int64_t tiles = ceil_div(scan.headdim, kRows);
  const std::int64_t chunks = ceil_div(scan.seqlen, kSteps) + (sequences.packed ? sequences.count : 0);
  if (scan.seqlen > kMost - 2 * kSteps || scan.nheads > kMost / tiles ||
      chunks > kMost / (scan.nheads * tiles) || scan.batch > kMost / (scan.nheads * tiles * chunks))
    return "needs at most 2147483647 chunks of 64 steps and 64 rows";
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

std::size_t workspace_bytes(const Problem& problem) {
  const Plan plan = plan_of(problem);
  const int states = padded_dstate(SsdChunkScan(problem));
  return SsdSequences(problem).packed ? PackedLayout(plan, states).bytes
                                      : handed_layout_of(plan, states).bytes;
}

template <class VariantOf>
auto variant_of(DType dtype, const Plan& plan, const VariantOf& variant_of_types) {
  using Two = std::integral_constant<int, 2>;
  using One = std::integral_constant<int, 1>;
  const bool one_tile = plan.tiles_per_item == 1;
  if (dtype == DType::f16)
    return one_tile ? variant_of_types(__half{}, One{}) : variant_of_types(__half{}, Two{});
  return one_tile ? variant_of_types(__nv_bfloat16{}, One{}) : variant_of_types(__nv_bfloat16{}, Two{});
}

template <class Kernel>
void allow_shared_bytes(Kernel* kernel, int bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-hopper " + *reason);
  const SsdArgs ssd = bind_ssd(problem, tensors);
  for (const void* tensor :
       std::array{ssd.in.x, ssd.in.B, ssd.in.C, ssd.in.z, static_cast<const void*>(ssd.out)})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("cuda-hopper needs tensors that are aligned to 16 bytes");
  const Plan plan = plan_of(problem);
  const int states = padded_dstate(SsdChunkScan(problem));
  const bool gated = ssd.in.z != nullptr;
  if (const SsdSequenceTable sequences = bind_ssd_sequences(problem, tensors);
      sequences.cu_seqlens != nullptr) {
    const PackedVariant variant = variant_of(problem.dtype(), plan, [&]<class Io, class Tiles>(Io, Tiles) {
      constexpr bool kScaled = std::is_same_v<Io, __half>;
      return packed_variant_for < Io, kScaled ? 1 : Tiles::value > (states, gated);
    });
    allow_shared_bytes(variant.kernel, variant.shared_bytes);
    return packed_launch(variant, make_packed_args(ssd, sequences.cu_seqlens, plan, states, workspace),
                         static_cast<int>(sequences.count));
  }
  const Variant variant = variant_of(problem.dtype(), plan, [&]<class Io, class Tiles>(Io, Tiles) {
    return variant_for<Io, Tiles::value>(states, gated);
  });
  allow_shared_bytes(variant.kernel, variant.shared_bytes);
  allow_shared_bytes(variant.parts_kernel, variant.parts_shared_bytes);
  const HopperArgs args = make_args(ssd, plan, states, workspace);
  return [=](void* stream) { launch(variant, args, states, static_cast<cudaStream_t>(stream)); };
}

const Registration registration{
    {.name = "cuda-hopper",
     .op = "ssd_chunk_scan_fwd",
     .device = DeviceKind::cuda,
     .summary =
         "chunks as products by wgmma, fed by TMA, in warps of different roles; for compute capability 9.0",
     .arithmetic = [](DType io) { return Arithmetic{.math = io == DType::f16 ? Math::f16 : Math::bf16}; },
     .unsupported = unsupported,
     .workspace_bytes = workspace_bytes,
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::ssd_hopper
