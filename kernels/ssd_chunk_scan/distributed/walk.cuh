#pragma once

// A shard's states from first step to last without outputs, and the gradients of its states from last to first
// without the states; f32. Both are sums of outer products over time, of rows r_t (P) and columns c_t (N):
//
//   states      H ← e^(Δ_t·A)·H + (Δ_t·x_t) ⊗ B_t
//   gradients   G ← e^(Δ_t·A)·(G + dy_t ⊗ C_t),   dy_t = dout_t·silu(z_t)
//
// where a sequence begins, its first step's decay is 0. Time is cut into slices that begin from zero, so that a
// GPU is full with few heads:
//
//   slices   a block: a slice of a head of a batch, 64 rows and 64 columns of its state, 256 threads with 4 × 4
//            elements each; 32 steps at a time, in shared memory, weighted by their decay to the end of these
//   join     a thread for each element: the slices one after the other, from the state that enters
//
// All orders are fixed.

#include <algorithm>
#include <cstdint>

#include "base/cuda_check.h"
#include "kernels/common/activations.h"
#include "kernels/common/index_math.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/delta.h"

namespace ssmbench::ssd_walk {

inline constexpr int kThreads = 256;
inline constexpr int kTile = 64;   ///< rows, and columns, of a block
inline constexpr int kSteps = 32;  ///< at a time

enum class Way { states, gradients };

/// What is walked over.
struct Walk {
  SsdInputs in;
  const void* rows;     ///< (B, L, H, P): x, or dout
  const void* columns;  ///< (B, L, G, N): B, or C
  std::int64_t begin, steps;
  std::int64_t slices, of_slice;  ///< of_slice: steps, a multiple of kSteps
  float* ends;                    ///< (slices, B, H, P, N)
  float* decays;                  ///< (slices, B, H)

  __host__ __device__ std::int64_t heads() const { return in.batch * in.nheads; }
  __host__ __device__ std::int64_t of_head() const { return in.headdim * in.dstate; }
};

/// Slices for `blocks` blocks a slice.
constexpr std::int64_t slices_for(std::int64_t blocks, std::int64_t steps) {
  constexpr std::int64_t kEnoughBlocks = 1056;  // 8 a multiprocessor of an H200
  constexpr std::int64_t kLeastSteps = 256;
  return std::max<std::int64_t>(1, std::min(kEnoughBlocks / blocks, steps / kLeastSteps));
}

constexpr std::int64_t tiles_of(const SsdInputs& in) {
  return ceil_div(in.headdim, std::int64_t{kTile}) * ceil_div(in.dstate, std::int64_t{kTile});
}

constexpr std::int64_t slices_of(const SsdInputs& in, std::int64_t steps) {
  return slices_for(in.batch * in.nheads * tiles_of(in), steps);
}

/// One warp: the weights of kSteps steps from `first` on, of which `count` exist, and their decay altogether.
template <class Io, Way way>
__device__ void weigh_steps(const Walk& walk, std::int64_t b, std::int64_t h, std::int64_t first, int count,
                            float* weights, float* decay) {
  const SsdInputs& in = walk.in;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = b * in.seqlen + first + lane;
  const bool exists = lane < count;
  float delta = 0.0F;
  bool starts = false;
  if (exists) {
    const float bias = in.dt_bias == nullptr ? 0.0F : in.dt_bias[h];
    delta = step_size(to_float(static_cast<const Io*>(in.dt)[step * in.nheads + h]), bias,
                      {in.dt_softplus, in.dt_low, in.dt_high});
    starts = in.seq_idx != nullptr && first + lane > 0 && in.seq_idx[step] != in.seq_idx[step - 1];
  }
  float sum = delta;  // of the steps up to this one
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float before = __shfl_up_sync(~0U, sum, distance);
    if (lane >= distance) sum += before;
  }
  const float all = __shfl_sync(~0U, sum, 31);
  const unsigned starting = __ballot_sync(~0U, starts);
  const float A = in.A[h];
  float weight = 0.0F;
  if constexpr (way == Way::states) {
    // Decays of the steps that follow.
    const bool ends = lane < 31 && (starting >> (lane + 1)) != 0;
    if (exists && !ends) weight = expf(A * (all - sum)) * delta;
  } else {
    const bool ends = (starting << (31 - lane)) != 0;  // in this step or before
    if (exists && !ends) weight = expf(A * sum);
  }
  weights[lane] = weight;
  if (lane == 0) *decay = starting != 0 ? 0.0F : expf(A * all);
}

/// The rows or columns of kSteps steps as floats; zeros where there are none.
template <class Io>
__device__ void stage(float (&to)[kSteps][kTile], const Io* from, std::int64_t pitch, int steps, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < kSteps * kTile; i += kThreads) {
    const int t = i / kTile;
    const int at = i % kTile;
    to[t][at] = t < steps && at < count ? to_float(from[t * pitch + at]) : 0.0F;
  }
}

template <class Io, Way way>
__global__ void __launch_bounds__(kThreads) slices_kernel(const Walk walk) {
  __shared__ __align__(16) float rows[kSteps][kTile];
  __shared__ __align__(16) float columns[kSteps][kTile];
  __shared__ float weights[kSteps];
  __shared__ float decay;
  const SsdInputs& in = walk.in;
  const std::int64_t column_tiles = ceil_div(in.dstate, std::int64_t{kTile});
  const std::int64_t head = blockIdx.x;
  const std::int64_t b = head / in.nheads;
  const std::int64_t h = head % in.nheads;
  const std::int64_t p = blockIdx.z / column_tiles * kTile;
  const std::int64_t n = blockIdx.z % column_tiles * kTile;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4;
  const int column = static_cast<int>(threadIdx.x) % 16 * 4;
  const std::int64_t begin = walk.begin + blockIdx.y * walk.of_slice;
  const std::int64_t end = min(begin + walk.of_slice, walk.begin + walk.steps);
  const std::int64_t chunks = ceil_div(end - begin, std::int64_t{kSteps});
  float sum[4][4] = {};
  float product = 1.0F;

  for (std::int64_t i = 0; i < chunks; ++i) {
    const std::int64_t first = begin + (way == Way::states ? i : chunks - 1 - i) * kSteps;
    const int count = static_cast<int>(min(std::int64_t{kSteps}, end - first));
    const std::int64_t step = b * in.seqlen + first;
    const std::int64_t row_at = (step * in.nheads + h) * in.headdim + p;
    const std::int64_t pitch = in.nheads * in.headdim;
    __syncthreads();
    if (threadIdx.x < 32) weigh_steps<Io, way>(walk, b, h, first, count, weights, &decay);
    const int rows_left = static_cast<int>(min(std::int64_t{kTile}, in.headdim - p));
    stage(rows, static_cast<const Io*>(walk.rows) + row_at, pitch, count, rows_left);
    stage(columns,
          static_cast<const Io*>(walk.columns) + (step * in.groups + h / in.heads_per_group) * in.dstate + n,
          in.groups * in.dstate, count, static_cast<int>(min(std::int64_t{kTile}, in.dstate - n)));
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < kSteps * kTile; k += kThreads) {
      const int t = k / kTile;
      float value = weights[t] * rows[t][k % kTile];
      if (way == Way::gradients && in.z != nullptr && t < count && k % kTile < rows_left)
        value *= silu(to_float(static_cast<const Io*>(in.z)[row_at + t * pitch + k % kTile]));
      rows[t][k % kTile] = value;
    }
    __syncthreads();
    product *= decay;
#pragma unroll
    for (int e = 0; e < 16; ++e) sum[e / 4][e % 4] *= decay;
#pragma unroll 4
    for (int t = 0; t < kSteps; ++t) {
      float r[4], c[4];
      load_vectors(r, &rows[t][row]);
      load_vectors(c, &columns[t][column]);
#pragma unroll
      for (int e = 0; e < 16; ++e) sum[e / 4][e % 4] += r[e / 4] * c[e % 4];
    }
  }

  float* const ends = walk.ends + (blockIdx.y * walk.heads() + head) * walk.of_head();
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    const std::int64_t at_p = p + row + e / 4;
    const std::int64_t at_n = n + column + e % 4;
    if (at_p < in.headdim && at_n < in.dstate) ends[at_p * in.dstate + at_n] = sum[e / 4][e % 4];
  }
  if (blockIdx.z == 0 && threadIdx.x == 0) walk.decays[blockIdx.y * walk.heads() + head] = product;
}

/// `from`: what enters the first slice (the last one, of gradients), or null.
template <Way way>
__global__ void __launch_bounds__(kThreads) join_kernel(const Walk walk, const float* from, float* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t states = walk.heads() * walk.of_head();
  if (i >= states) return;
  float value = from == nullptr ? 0.0F : from[i];
  for (std::int64_t k = 0; k < walk.slices; ++k) {
    const std::int64_t slice = way == Way::states ? k : walk.slices - 1 - k;
    const float decay = walk.decays[slice * walk.heads() + i / walk.of_head()];
    // What is 0 stays so, and is not multiplied by a decay that overflows.
    value = (value == 0.0F || decay == 0.0F ? 0.0F : decay * value) + walk.ends[slice * states + i];
  }
  to[i] = value;
}

/// Takes a state through the steps of a range, or a gradient back through it.
template <Way way>
void walk(const Walk& args, DType io, const float* from, float* to, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.heads()), static_cast<unsigned>(args.slices),
                  static_cast<unsigned>(tiles_of(args.in)));
  with_io_type(io, [&]<class Io>(std::type_identity<Io>) {
    slices_kernel<Io, way><<<grid, kThreads, 0, stream>>>(args);
  });
  check_cuda(cudaGetLastError());
  const std::int64_t blocks = ceil_div(args.heads() * args.of_head(), std::int64_t{kThreads});
  join_kernel<way><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args, from, to);
  check_cuda(cudaGetLastError());
}

}  // namespace ssmbench::ssd_walk
