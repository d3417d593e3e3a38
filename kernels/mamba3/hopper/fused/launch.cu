// cuda-hopper's fused MIMO scan: launch.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/hopper/tensor_map.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/hopper/fused/fused.h"
#include "kernels/mamba3/hopper/rotated_plan.h"

namespace ssmbench::mamba3_fused {

extern template Variant variant_for<__nv_bfloat16>(std::int64_t angles, bool gated);
extern template Variant variant_for<__half>(std::int64_t angles, bool gated);

namespace {

/// Heads of sequences from which on it is the faster way on an H200: it does not cut them into parts. (64 of
/// 2048 steps take 0.26 ms in bf16 and 0.42 the other way; 32 of 4096 took 0.50 and 0.44 with one head a
/// block.)
constexpr std::int64_t kLeastItems = 40;

/// Of a (B, steps, rows, columns) tensor, in tiles of `tile_steps` steps of a row.
CUtensorMap map_of(const void* data, std::int64_t columns, std::int64_t rows, std::int64_t steps,
                   std::int64_t batch, int tile_steps) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return hopper::tensor_map({.data = data,
                             .rank = 4,
                             .sizes = {size(columns), size(rows), size(steps), size(batch)},
                             .tile = {hopper::kTileColumns, 1, static_cast<unsigned>(tile_steps), 1}});
}

CUtensorMap map_rates(const Mamba3Args& args, int pairs) {
  const Mamba3& scan = args.scan;
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return hopper::tensor_map(
      {.data = args.rates,
       .rank = 4,
       .sizes = {size(scan.angles), size(scan.nheads), size(scan.seqlen), size(scan.batch)},
       .tile = {static_cast<unsigned>(pairs), 1, kSteps, 1},
       .element_bytes = 4,
       .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE,
       .promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE});
}

/// Two where that is the faster way: a chunk of two heads takes 3.2 µs where one takes 2.0.
int heads_of_block(const Mamba3& scan) {
  if (scan.angles > 32 || scan.nheads / scan.groups % 2 != 0) return 1;
  const std::int64_t items = scan.batch * scan.nheads;
  const auto waves = [](std::int64_t blocks) { return ceil_div(blocks, mamba3_hopper::kMultiprocessors); };
  return 20 * waves(items) > 32 * waves(items / 2) ? 2 : 1;
}

}  // namespace

bool takes(const Mamba3& scan, DType dtype) {
  return scan.is_mimo && (dtype == DType::bf16 || dtype == DType::f16) && scan.rank == kRank &&
         scan.dstate == kStates && scan.headdim <= kHeaddim && !scan.interleaved && scan.angles % 4 == 0 &&
         scan.batch * scan.nheads >= kLeastItems && !mamba3_hopper::are_packed(scan);
}

Launch launch_fused(const Mamba3Args& args, DType dtype, const mamba3_hopper::PreparedRows& weights) {
  const Mamba3& scan = args.scan;
  const bool gated = args.Z != nullptr;
  const Variant variant = dtype == DType::f16 ? variant_for<__half>(scan.angles, gated)
                                              : variant_for<__nv_bfloat16>(scan.angles, gated);
  check_cuda(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.shared_bytes));
  const auto map_rows = [&](const void* data) {
    return map_of(data, kStates, scan.groups, scan.seqlen * kRank, scan.batch, kPartRows);
  };
  const auto map_steps = [&](const void* data) {
    return map_of(data, scan.headdim, scan.nheads, scan.seqlen, scan.batch, kSteps);
  };
  const FusedArgs to{.q = map_rows(args.Q),
                     .k = map_rows(args.K),
                     .v = map_steps(args.V),
                     .z = args.Z == nullptr ? CUtensorMap{} : map_steps(args.Z),
                     .rates = map_rates(args, scan.angles <= 32 ? 32 : 64),
                     .in = args,
                     .heads = heads_of_block(scan),
                     .log_decay = weights.log_decay,
                     .later = weights.s,
                     .own = weights.gamma,
                     .seed = weights.seed};
  return launch_of(variant.kernel, scan.batch * scan.nheads / to.heads, dim3(variant.threads),
                   variant.shared_bytes, to);
}

}  // namespace ssmbench::mamba3_fused
