// The launches of cuda-hopper for packed sequences. The first says where the blocks start (packed.h): one
// block, whose threads have a run of sequences each.

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

/// What the plan is made from.
struct Sequences {
  const std::int32_t* cu_seqlens;
  int count, items;
  const std::int32_t* states_at;

  __device__ int chunks(int sequence) const {
    return packed_chunks(cu_seqlens[sequence + 1] - cu_seqlens[sequence]);
  }
};

/// Where it goes, of PackedArgs: without its tensor maps, which take 4 KB.
struct PackedPlan {
  int blocks;
  bool in_parts;
  PackedStart* starts;
  unsigned* flags;
  std::int32_t* firsts;
  PackedStop* stops;
  PackedStop* first_stops;
  int stop_count;
};

/// Equal shares of all chunks.
__device__ void plan_shares(const Sequences& of, const PackedPlan& to) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int block = thread; block < to.blocks; block += kPlanThreads) to.flags[block] = 0;
  const int each = static_cast<int>(ceil_div(of.count, kPlanThreads));
  const int first = min(thread * each, of.count);
  const int end = min(first + each, of.count);
  RunChunks run{};
  for (int sequence = first; sequence < end; ++sequence) {
    const int chunks = of.chunks(sequence);
    run = {run.all + chunks, max(run.longest, chunks)};
  }
  int before = 0;
  const RunChunks all = add_runs(run, before);
  const PackedShares shares(of.items, to.blocks, of.count, all.all, all.longest);
  for (int sequence = first; sequence < end; ++sequence) {
    const int chunks = of.chunks(sequence);
    shares.starts_in(sequence, before, chunks, to.starts);
    before += chunks;
  }
}

/// Items in parts; a thread for each sequence.
__device__ void plan_parts(const Sequences& of, const PackedPlan& to) {
  const int thread = static_cast<int>(threadIdx.x);
  const int chunks = thread < of.count ? of.chunks(thread) : 0;
  int before = 0;
  const auto add = [&](int number) {
    const RunChunks all = add_runs({number, chunks}, before);
    __syncthreads();  // before the next sum
    return all;
  };
  const RunChunks all = add(chunks);
  const auto parts_of = [&](int of_part) {
    return chunks == 0 ? 0 : PackedParts{of.items, of_part}.of_item(chunks);
  };
  const int least = static_cast<int>(ceil_div(all.all * of.items, to.blocks));
  FirstThatFits search{max(least, 1), all.longest};
  while (!search.is_found()) search.narrow(add(parts_of(search.tried())).all * of.items <= to.blocks);
  const int chunks_of_part = search.most;
  const int parts = add(parts_of(chunks_of_part)).all;
  if (chunks > 0)
    PackedParts{of.items, chunks_of_part}.starts_in(thread, before * of.items, chunks, to.starts, to.firsts);
  if (thread == 0) to.firsts[of.count * of.items] = parts * of.items;
}

/// The states that are wanted, in the order of their steps, and the first of each sequence. Each is put
/// behind all that come before it, unless they are in order.
__device__ void order_stops(const Sequences& of, const PackedPlan& to) {
  const std::int32_t* const states_at = of.states_at;
  const int count = to.stop_count;
  bool ordered = true;
  for (int i = static_cast<int>(threadIdx.x); i < count - 1; i += kPlanThreads)
    ordered = ordered && states_at[i] <= states_at[i + 1];
  ordered = __syncthreads_and(static_cast<int>(ordered)) != 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kPlanThreads) {
    const std::int32_t step = states_at[i];
    int rank = i;
    if (!ordered) {
      rank = 0;
      for (int j = 0; j < count; ++j) rank += states_at[j] < step || (states_at[j] == step && j < i) ? 1 : 0;
    }
    to.stops[rank] = {step, i};
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < of.count; i += kPlanThreads) {
    const int begin = of.cu_seqlens[i];
    to.first_stops[i] = first_stop_of(to.stops, count, begin, of.cu_seqlens[i + 1] - begin);
  }
}

/// Two blocks: where the others start, and what is wanted on their way.
__global__ void __launch_bounds__(kPlanThreads)
    ssd_plan_packed_kernel(const Sequences of, const PackedPlan to) {
  hopper::launch_dependents();
  if (blockIdx.x == 1) return order_stops(of, to);
  // (Before the barriers of what follows, which sets some of them.)
  for (int block = static_cast<int>(threadIdx.x); block < to.blocks; block += kPlanThreads)
    to.starts[block] = PackedStart{};
  if (to.in_parts)
    plan_parts(of, to);
  else
    plan_shares(of, to);
}

}  // namespace

Launch packed_plan_launch(const PackedArgs& args, int sequences, const std::int32_t* states_at) {
  const Plan& plan = args.plan;
  const Sequences of{args.cu_seqlens, sequences, plan.items, states_at};
  const PackedPlan to{.blocks = plan.blocks,
                      .in_parts = plan.parts > 1,
                      .starts = args.starts,
                      .flags = args.handed.flags,
                      .firsts = args.firsts,
                      .stops = args.stops,
                      .first_stops = args.first_stops,
                      .stop_count = args.stop_count};
  return [=, blocks = args.stop_count > 0 ? 2 : 1](void* stream) {
    ssd_plan_packed_kernel<<<blocks, kPlanThreads, 0, static_cast<cudaStream_t>(stream)>>>(of, to);
    check_cuda(cudaGetLastError());
  };
}

Launch packed_launch(const PackedVariant& variant, const PackedArgs& args, int sequences,
                     const std::int32_t* states_at, int states) {
  const Plan& plan = args.plan;
  const Launch make_plan = packed_plan_launch(args, sequences, states_at);
  const Launch outputs =
      hopper::dependent_launch_of(variant.kernel, plan.blocks, kThreads, variant.shared_bytes, args);
  if (plan.parts == 1)
    return [=](void* stream) {
      make_plan(stream);
      outputs(stream);
    };
  const Launch states_of_parts = hopper::dependent_launch_of(variant.parts_kernel, plan.blocks, kStateThreads,
                                                             variant.parts_shared_bytes, args);
  const Parts parts{sequences * plan.items, plan.blocks, plan.tiles_per_item, kRows * states / 4,
                    args.firsts};
  return [=, handed = args.handed](void* stream) {
    make_plan(stream);
    states_of_parts(stream);
    launch_join_parts(handed, parts, static_cast<cudaStream_t>(stream));
    outputs(stream);
  };
}

}  // namespace ssmbench::ssd_hopper
