// Preparation of Mamba-3's scans for the kernels of compute capability 9.0: launches. The picture is in
// prepare.cuh.

#include "base/logic_error.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/hopper/phases.cuh"
#include "kernels/mamba3/hopper/prepare.cuh"

namespace ssmbench::mamba3_hopper {
namespace {

template <class Io, int kLanes, bool kPacked>
Launch rotate_launch(const Mamba3Args& args, const PrepareGrid& grid, const PreparedRows& to) {
  const auto kernel = args.scan.interleaved ? rotate_kernel<Io, kLanes, true, kPacked>
                                            : rotate_kernel<Io, kLanes, false, kPacked>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes()));
  return launch_of(kernel, args.scan.batch * grid.segments * grid.slices, dim3(kPrepareThreads),
                   grid.shared_bytes(), args, grid, to, static_cast<int>(args.scan.heads_per_group()));
}

/// `launch`, and that of what initial and final states need.
template <class Io>
Launch with_ends(const Mamba3Args& args, const PreparedRows& to, const Launch& launch) {
  if (to.seed == nullptr && args.final_v == nullptr) return launch;
  const Mamba3& scan = args.scan;
  const std::int64_t vectors = scan.sequences * scan.nheads * scan.headdim * (scan.dstate / 4);
  const Launch ends = launch_of(are_packed(scan) ? ends_kernel<Io, true> : ends_kernel<Io, false>,
                                ceil_div(vectors, kPrepareThreads), dim3(kPrepareThreads), 0, args, to);
  return [=](void* stream) {
    launch(stream);
    ends(stream);
  };
}

std::int64_t steps_of(const Mamba3& scan) {
  return scan.batch * scan.nheads * scan.seqlen;
}

template <class Io>
Launch weights_of(const Mamba3Args& args, const PreparedRows& to) {
  const std::int64_t steps = steps_of(args.scan);
  return with_ends<Io>(
      args, to,
      launch_of(are_packed(args.scan) ? weigh_kernel<Io, true> : weigh_kernel<Io, false>,
                ceil_div(steps, kPrepareThreads), dim3(kPrepareThreads), 0, args, to, steps));
}

template <class Io>
Launch phases_of(const Mamba3Args& args, const PreparedRows& to, const ChunkPhases& phases) {
  const Mamba3& scan = args.scan;
  const std::int64_t chunks = phase_chunks(scan);
  const std::int64_t vectors = chunks * scan.nheads * scan.angles / kPhasePairs;
  const std::int64_t phase_blocks = ceil_div(vectors, kPrepareThreads);
  const std::int64_t steps = steps_of(scan);
  return with_ends<Io>(args, to,
                       launch_of(are_packed(scan) ? phases_kernel<Io, true> : phases_kernel<Io, false>,
                                 phase_blocks + ceil_div(steps, kPrepareThreads), dim3(kPrepareThreads), 0,
                                 args, to, phases, static_cast<int>(phase_blocks), chunks, steps));
}

template <class Io, bool kPacked>
Launch rows_of(const Mamba3Args& args, const PreparedRows& to) {
  const Mamba3& scan = args.scan;
  const PrepareGrid grid(scan);
  const Launch rotate = scan.dstate <= 64 ? rotate_launch<Io, 8, kPacked>(args, grid, to)
                                          : rotate_launch<Io, 16, kPacked>(args, grid, to);
  if (grid.segments == 1) return rotate;
  const Launch sums = launch_of(sum_angles_kernel<Io, kPacked>, scan.batch * grid.spans * grid.slices,
                                dim3(kPrepareThreads), 0, args, grid, to);
  return [=](void* stream) {
    sums(stream);
    rotate(stream);
  };
}
template <class Io>
Launch rows_of(const Mamba3Args& args, const PreparedRows& to) {
  return are_packed(args.scan) ? rows_of<Io, true>(args, to) : rows_of<Io, false>(args, to);
}

}  // namespace

Launch launch_weights(const Mamba3Args& args, DType dtype, const PreparedRows& to) {
  if (dtype == DType::bf16) return weights_of<__nv_bfloat16>(args, to);
  if (dtype == DType::f16) return weights_of<__half>(args, to);
  throw_logic_error("not a dtype of 16 bits");
}

Launch launch_phases(const Mamba3Args& args, DType dtype, const PreparedRows& to, const ChunkPhases& phases) {
  if (dtype == DType::bf16) return phases_of<__nv_bfloat16>(args, to, phases);
  if (dtype == DType::f16) return phases_of<__half>(args, to, phases);
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

Launch launch_row_borders(const Mamba3Args& args, const PreparedRows& to) {
  return launch_of(row_borders_kernel, args.scan.sequences / kPrepareThreads + 1, dim3(kPrepareThreads), 0,
                   args, to);
}

}  // namespace ssmbench::mamba3_hopper
