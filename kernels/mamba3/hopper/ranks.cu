// The projections of MIMO around cuda-hopper's scan: launches. The picture is in ranks.cuh.

#include "base/logic_error.h"
#include "kernels/common/index_math.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/hopper/ranks.cuh"

namespace ssmbench::mamba3_hopper {
namespace {

template <class Io>
Launch up_projection_of(const Mamba3Args& args, const RankRows& rows) {
  const Mamba3& scan = args.scan;
  const std::int64_t vectors = scan.batch * scan.seqlen * scan.nheads * (scan.headdim / 8);
  return launch_of(up_projection_kernel<Io>, ceil_div(vectors, kRankThreads), dim3(kRankThreads), 0, args,
                   rows, vectors);
}

template <class Io>
Launch down_projection_of(const Mamba3Args& args, const RankRows& rows) {
  const Mamba3& scan = args.scan;
  const std::int64_t warps = scan.batch * scan.seqlen * scan.nheads;
  const auto kernel = scan.rank == 1   ? down_projection_kernel<Io, 1>
                      : scan.rank == 2 ? down_projection_kernel<Io, 2>
                      : scan.rank == 4 ? down_projection_kernel<Io, 4>
                                       : down_projection_kernel<Io, 8>;
  return launch_of(kernel, ceil_div(warps, kRankThreads / kWarpThreads), dim3(kRankThreads), 0, args, rows,
                   warps);
}

}  // namespace

Launch launch_up_projection(const Mamba3Args& args, DType dtype, const RankRows& rows) {
  if (dtype == DType::bf16) return up_projection_of<__nv_bfloat16>(args, rows);
  if (dtype == DType::f16) return up_projection_of<__half>(args, rows);
  throw_logic_error("not a dtype of 16 bits");
}

Launch launch_down_projection(const Mamba3Args& args, DType dtype, const RankRows& rows) {
  if (dtype == DType::bf16) return down_projection_of<__nv_bfloat16>(args, rows);
  if (dtype == DType::f16) return down_projection_of<__half>(args, rows);
  throw_logic_error("not a dtype of 16 bits");
}

}  // namespace ssmbench::mamba3_hopper
