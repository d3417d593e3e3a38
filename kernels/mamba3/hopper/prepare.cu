// Preparation of Mamba-3's scans for the kernels of compute capability 9.0: launches. The picture is in
// prepare.cuh.

#include "base/logic_error.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/hopper/prepare.cuh"

namespace ssmbench::mamba3_hopper {
namespace {

template <class Io, int kLanes>
Launch rotate_launch(const Mamba3Args& args, const PrepareGrid& grid, const PreparedRows& to) {
  const auto kernel =
      args.scan.interleaved ? rotate_kernel<Io, kLanes, true> : rotate_kernel<Io, kLanes, false>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes()));
  return launch_of(kernel, args.scan.batch * grid.segments * grid.slices, dim3(kPrepareThreads),
                   grid.shared_bytes(), args, grid, to, static_cast<int>(args.scan.heads_per_group()));
}

template <class Io>
Launch weights_of(const Mamba3Args& args, const PreparedRows& to) {
  const Mamba3& scan = args.scan;
  const dim3 threads(kPrepareThreads);
  const std::int64_t steps = scan.batch * scan.nheads * scan.seqlen;
  const std::int64_t vectors = scan.batch * scan.nheads * scan.headdim * (scan.dstate / 4);
  const Launch weigh =
      launch_of(weigh_kernel<Io>, ceil_div(steps, kPrepareThreads), threads, 0, args, to, steps);
  if (to.seed == nullptr && args.final_v == nullptr) return weigh;
  const Launch ends = launch_of(ends_kernel<Io>, ceil_div(vectors, kPrepareThreads), threads, 0, args, to);
  return [=](void* stream) {
    weigh(stream);
    ends(stream);
  };
}

template <class Io>
Launch rows_of(const Mamba3Args& args, const PreparedRows& to) {
  const Mamba3& scan = args.scan;
  const PrepareGrid grid(scan);
  const Launch rotate =
      scan.dstate <= 64 ? rotate_launch<Io, 8>(args, grid, to) : rotate_launch<Io, 16>(args, grid, to);
  if (grid.segments == 1) return rotate;
  const Launch sums = launch_of(sum_angles_kernel<Io>, scan.batch * grid.spans * grid.slices,
                                dim3(kPrepareThreads), 0, args, grid, to);
  return [=](void* stream) {
    sums(stream);
    rotate(stream);
  };
}

}  // namespace

Launch launch_weights(const Mamba3Args& args, DType dtype, const PreparedRows& to) {
  if (dtype == DType::bf16) return weights_of<__nv_bfloat16>(args, to);
  if (dtype == DType::f16) return weights_of<__half>(args, to);
  throw_logic_error("not a dtype of 16 bits");
}

Launch launch_prepare(const Mamba3Args& args, DType dtype, const PreparedRows& to) {
  return [weights = launch_weights(args, dtype, to),
          rows = dtype == DType::f16 ? rows_of<__half>(args, to)
                                     : rows_of<__nv_bfloat16>(args, to)](void* stream) {
    weights(stream);
    rows(stream);
  };
}

}  // namespace ssmbench::mamba3_hopper
