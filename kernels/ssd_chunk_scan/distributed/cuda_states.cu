#include "kernels/ssd_chunk_scan/distributed/cuda_states.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/common/launch.cuh"
#include "kernels/distributed/time_fold.cuh"
#include "kernels/distributed/workspace_parts.h"
#include "kernels/ssd_chunk_scan/distributed/host_shard.h"
#include "kernels/ssd_chunk_scan/distributed/passed_states.h"
#include "kernels/ssd_chunk_scan/distributed/walk.cuh"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

namespace ssmbench::cuda_ssd_shards {
namespace {

using ssd_shards::numbers_at;
using ssd_shards::PassedStates;
using ssd_walk::Walk;
using ssd_walk::Way;

constexpr int kThreads = 256;

/// ΣΔ of each row, which counts (batch, head), as two floats.
template <class Io>
struct StepSums {
  using Value = double;
  static constexpr bool kMayBeEnough = false;
  SsdInputs in;
  float* summary;

  __device__ static double identity() { return 0; }
  __device__ static double join(double a, double b) { return a + b; }
  __device__ double term(std::int64_t row, std::int64_t t) const {
    const std::int64_t h = row % in.nheads;
    const float bias = in.dt_bias == nullptr ? 0.0F : in.dt_bias[h];
    const float dt =
        to_float(static_cast<const Io*>(in.dt)[(row / in.nheads * in.seqlen + t) * in.nheads + h]);
    return step_size(dt, bias, {in.dt_softplus, in.dt_low, in.dt_high});
  }
  __device__ void store(std::int64_t row, double total) const {
    summary[2 * row] = static_cast<float>(total);
    summary[2 * row + 1] = static_cast<float>(total - summary[2 * row]);
  }
};

/// The first and the last number of each batch, as bits.
__global__ void store_numbers(const SsdInputs in, float* summary) {
  for (std::int64_t b = threadIdx.x; b < in.batch; b += kThreads) {
    float* const to = summary + numbers_at(in.batch, in.nheads, b);
    to[0] = __int_as_float(in.seq_idx[b * in.seqlen]);
    to[1] = __int_as_float(in.seq_idx[(b + 1) * in.seqlen - 1]);
  }
}

__global__ void rebase_kernel(const std::int32_t* numbers, std::int64_t begin, std::int64_t count,
                              std::int32_t* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[i] = numbers[begin + i] - numbers[begin == 0 ? 0 : begin - 1];
}

__global__ void enter_kernel(const PassedStates passed, std::int64_t states, int rank, float* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= states) return;
  const std::int64_t row = i / passed.of_head;
  to[i] = passed.entering(rank, row, i, [&](int q) { return passed.through_next(q, row); });
}

__global__ void enter_from_after_kernel(const PassedStates passed, std::int64_t states, std::int64_t carries,
                                        int rank, int ranks, float* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= states) return;
  const std::int64_t row = i / passed.of_head;
  to[i] = passed.from_after(carries, rank, ranks, row, i, [&](int q) { return passed.back_through(q, row); });
}

TimeSlices step_slices(const SsdInputs& in) {
  return {in.batch * in.nheads, in.seqlen};
}

/// The sizes alone.
SsdInputs sizes_of(const Problem& part) {
  const SsdChunkScan scan(part);
  SsdInputs in{};
  in.batch = scan.batch;
  in.seqlen = scan.seqlen;
  in.nheads = scan.nheads;
  in.headdim = scan.headdim;
  in.dstate = scan.dstate;
  return in;
}

/// Where everything lies: sums of steps and walks do not overlap.
struct StatesRoom {
  double* partial;
  float *ends, *decays;
  std::int64_t floats;

  StatesRoom(const SsdInputs& in, float* workspace) {
    const std::int64_t heads = ssd_walk::slices_of(in, in.seqlen) * in.batch * in.nheads;
    WorkspaceParts parts(workspace);
    partial = reinterpret_cast<double*>(parts.take(2 * step_slices(in).values()));
    ends = parts.take(heads * in.headdim * in.dstate);
    decays = parts.take(heads);
    floats = parts.floats();
  }
};

Walk walk_over(const SsdInputs& in, const void* rows, const void* columns, IndexRange range,
               float* workspace) {
  const StatesRoom room(in, workspace);
  const std::int64_t most = ssd_walk::slices_of(in, range.count());
  const std::int64_t steps =
      ceil_div(ceil_div(range.count(), most), std::int64_t{ssd_walk::kSteps}) * ssd_walk::kSteps;
  return {.in = in,
          .rows = rows,
          .columns = columns,
          .begin = range.begin,
          .steps = range.count(),
          .slices = ceil_div(range.count(), steps),
          .of_slice = steps,
          .ends = room.ends,
          .decays = room.decays};
}

PassedStates passed_states(const SsdInputs& in, std::int64_t summary_at, Payloads payloads) {
  return {in.A, in.batch, in.nheads, in.headdim * in.dstate, in.seq_idx != nullptr, summary_at, payloads};
}

}  // namespace

StatesShard::StatesShard(const Problem& part, const SsdInputs& in, float* final_states, float* workspace)
    : DeviceScan(ssd_shards::sizes(part)),
      part_(part),
      in_(in),
      final_states_(final_states),
      workspace_(workspace) {}

void StatesShard::run(IndexRange range, const float* entering, float* leaving, bool outputs, void* stream) {
  if (outputs) throw std::logic_error("there are no outputs");
  ssd_walk::walk<Way::states>(walk_over(in_, in_.x, in_.B, range, workspace_), part_.dtype(), entering,
                              leaving, static_cast<cudaStream_t>(stream));
}

void StatesShard::begin_summary(float* summary, bool decays, void* stream) {
  with_io_type(part_.dtype(), [&]<class Io>(std::type_identity<Io>) {
    if (!decays) return;
    fold_time(StepSums<Io>{in_, summary}, step_slices(in_), StatesRoom(in_, workspace_).partial,
              fork(stream));
  });
  if (in_.seq_idx != nullptr) launch_of(store_numbers, 1, kThreads, 0, in_, summary)(stream);
}

void StatesShard::enter(Payloads payloads, int rank, float* state, void* stream) {
  const std::int64_t states = sizes().state_floats;
  launch_of(enter_kernel, ceil_div(states, std::int64_t{kThreads}), kThreads, 0,
            passed_states(in_, states, payloads), states, rank, state)(stream);
}

void StatesShard::enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks,
                                   float* gradient, void* stream) {
  const std::int64_t states = sizes().state_floats;
  launch_of(enter_from_after_kernel, ceil_div(states, std::int64_t{kThreads}), kThreads, 0,
            passed_states(in_, states, payloads), states, carries, rank, ranks, gradient)(stream);
}

std::int64_t states_floats(const Problem& part) {
  return StatesRoom(sizes_of(part), nullptr).floats;
}

void walk_back(const Problem& part, const SsdInputs& in, const void* dout, const float* leaving,
               float* entering, float* workspace, void* stream) {
  ssd_walk::walk<Way::gradients>(walk_over(in, dout, in.C, {0, in.seqlen}, workspace), part.dtype(), leaving,
                                 entering, static_cast<cudaStream_t>(stream));
}

void rebase_numbers(const std::int32_t* numbers, std::int64_t begin, std::int64_t count, std::int32_t* to,
                    void* stream) {
  launch_of(rebase_kernel, ceil_div(count, std::int64_t{kThreads}), kThreads, 0, numbers, begin, count,
            to)(stream);
}

}  // namespace ssmbench::cuda_ssd_shards
