// Where the blocks of cuda-hopper start in packed sequences (packed.h): one block, whose threads have a run of
// sequences each.

#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/index_math.h"
#include "kernels/ssd_chunk_scan/hopper/launch.h"

namespace ssmbench::ssd_hopper {
namespace {

constexpr int kPlanWarps = 8;
constexpr int kPlanThreads = 32 * kPlanWarps;
constexpr unsigned kLanes = 0xFFFFFFFFU;

/// Chunks of a run of sequences, and of the longest.
struct RunChunks {
  int all, longest;
};

/// All of a run's, and those of the runs before it, to `before`. By all threads.
__device__ RunChunks add_runs(const RunChunks& run, int& before) {
  __shared__ RunChunks warps[kPlanWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  RunChunks until = run;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int all = __shfl_up_sync(kLanes, until.all, distance);
    const int longest = __shfl_up_sync(kLanes, until.longest, distance);
    if (lane >= distance) until = {until.all + all, max(until.longest, longest)};
  }
  if (lane == 31) warps[warp] = until;
  __syncthreads();
  RunChunks total{};
  before = until.all - run.all;
  for (int i = 0; i < kPlanWarps; ++i) {
    if (i < warp) before += warps[i].all;
    total = {total.all + warps[i].all, max(total.longest, warps[i].longest)};
  }
  return total;
}

__global__ void __launch_bounds__(kPlanThreads)
    ssd_plan_packed_kernel(const std::int32_t* cu_seqlens, const int sequences, const int items,
                           const int blocks, PackedStart* starts, unsigned* flags) {
  hopper::launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  for (int block = thread; block < blocks; block += kPlanThreads) {
    starts[block] = PackedStart{};
    flags[block] = 0;
  }
  const int each = static_cast<int>(ceil_div(sequences, kPlanThreads));
  const int first = min(thread * each, sequences);
  const int end = min(first + each, sequences);
  const auto chunks_of = [&](int sequence) {
    return packed_chunks(cu_seqlens[sequence + 1] - cu_seqlens[sequence]);
  };
  RunChunks run{};
  for (int sequence = first; sequence < end; ++sequence) {
    const int chunks = chunks_of(sequence);
    run = {run.all + chunks, max(run.longest, chunks)};
  }
  int before = 0;
  const RunChunks all = add_runs(run, before);
  const PackedShares shares(items, blocks, sequences, all.all, all.longest);
  for (int sequence = first; sequence < end; ++sequence) {
    const int chunks = chunks_of(sequence);
    shares.starts_in(sequence, before, chunks, starts);
    before += chunks;
  }
}

}  // namespace

Launch packed_launch(const PackedVariant& variant, const PackedArgs& args, int sequences) {
  const Plan& plan = args.plan;
  const Launch scan =
      hopper::dependent_launch_of(variant.kernel, plan.blocks, kThreads, variant.shared_bytes, args);
  return [=, items = plan.items, blocks = plan.blocks, cu_seqlens = args.cu_seqlens, starts = args.starts,
          flags = args.handed.flags](void* stream) {
    ssd_plan_packed_kernel<<<1, kPlanThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        cu_seqlens, sequences, items, blocks, starts, flags);
    check_cuda(cudaGetLastError());
    scan(stream);
  };
}

}  // namespace ssmbench::ssd_hopper
