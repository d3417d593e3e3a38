// cuda-recurrent backward: the recurrence and its adjoint, step by step, in f32; the simple comparison point,
// and independent of how cuda-chunked gets its gradients.
//
//   grid    one block per (batch, group, slice of the group's heads); it takes its heads, and the tiles of P
//           of a head, one after the other, so that sums over them have one order
//   block   8 warps. A thread holds rows × columns states:
//
//     n      lane, lane + 32, ...           p      warp, warp + 8, ...
//
//   time    forward: h; y and dC, and h to a checkpoint every √L steps. Then backward, segment by segment:
//           h again from the checkpoint, each h kept in the workspace (every thread reads its own states
//           only), and G = ∂loss/∂h backward over the segment:
//
//             G_t = decay_{t+1}·G_{t+1} + dy_t ⊗ C_t      dx_t = Δ_t·G_t·B_t + D·dy_t   dB_t = Δ_t·x_tᵀ·G_t
//             dΔ_t = A·⟨G_t, decay_t·h_{t-1}⟩ + x_t·(G_t·B_t)                           dC_t = dy_tᵀ·h_t
//
// Sums over n are sums over a warp's lanes; sums over p go through shared memory, one barrier per step, with
// two buffers in turn. dB and dC are added up in the workspace, as f32, by the thread that has column n.
// Registers: h and G are 64; shared memory: 16 KB.

#include <string>

#include "kernels/ssd_chunk_scan/bwd_step.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/sums.cuh"
#include "kernels/ssd_chunk_scan/recurrent_bwd_map.h"

namespace ssmbench {
namespace {

__device__ float sum_warp(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, distance);
  return x;
}

/// Sum over the block's threads, in every thread.
__device__ float sum_block(float x) {
  __shared__ float parts[kRecurrentWarps];
  x = sum_warp(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0.0F;
  for (const float part : parts) x += part;
  return x;
}

/// Stores the first term of a sum in memory, adds the others.
__device__ void accumulate(float& sum, float term, bool first) {
  sum = first ? term : sum + term;
}

/// What a step needs besides its tensors.
struct Step {
  float delta, decay;  ///< decay 0 at a reset
};

/// One head and tile of P in one batch, as a thread sees it.
template <class T, int kRows, int kColumns>
struct HeadTile {
  using States = float[kRows][kColumns];

  const SsdBwdArgs& args;
  std::int64_t b, head, group;
  int tile;

  __device__ int row(int k) const {
    return (tile * kRows + k) * kRecurrentWarps + static_cast<int>(threadIdx.x) / 32;
  }
  __device__ int column(int j) const { return j * 32 + static_cast<int>(threadIdx.x) % 32; }
  __device__ std::int64_t step_head(std::int64_t t) const {
    return (b * args.in.seqlen + t) * args.in.nheads + head;
  }

  __device__ Step step(std::int64_t t) const {
    const float dt = to_float(static_cast<const T*>(args.in.dt)[step_head(t)]);
    const float delta = ssd_delta(args.in, head, dt).value;
    bool same = true;
    if (args.in.seq_idx != nullptr) {
      const std::int32_t* sequence = args.in.seq_idx + b * args.in.seqlen;
      same = sequence[t] == (t > 0 ? sequence[t - 1] : 0);
    }
    return {delta, same ? expf(delta * args.in.A[head]) : 0.0F};
  }

  /// Elements p of a (B, L, H, P) tensor at step t.
  __device__ void load_rows(const void* tensor, std::int64_t t, float (&values)[kRows]) const {
    const T* data = static_cast<const T*>(tensor) + step_head(t) * args.in.headdim;
#pragma unroll
    for (int k = 0; k < kRows; ++k) values[k] = row(k) < args.in.headdim ? to_float(data[row(k)]) : 0.0F;
  }
  /// One lane stores what all lanes of a warp have.
  __device__ void store_rows(void* tensor, std::int64_t t, const float (&values)[kRows]) const {
    T* data = static_cast<T*>(tensor) + step_head(t) * args.in.headdim;
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (row(k) < args.in.headdim && threadIdx.x % 32 == 0) data[row(k)] = from_float<T>(values[k]);
  }
  /// Elements n of B or C at step t.
  __device__ void load_columns(const void* tensor, std::int64_t t, float (&values)[kColumns]) const {
    const T* data =
        static_cast<const T*>(tensor) + ((b * args.in.seqlen + t) * args.in.groups + group) * args.in.dstate;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      values[j] = column(j) < args.in.dstate ? to_float(data[column(j)]) : 0.0F;
  }

  /// Elements (p, n) of a (B, H, P, N) tensor; zeros if it is null.
  __device__ void load_states(const float* tensor, States& states) const {
    const std::int64_t base = (b * args.in.nheads + head) * args.in.headdim * args.in.dstate;
#pragma unroll
    for (int k = 0; k < kRows; ++k)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const bool exists = tensor != nullptr && row(k) < args.in.headdim && column(j) < args.in.dstate;
        states[k][j] = exists ? tensor[base + row(k) * args.in.dstate + column(j)] : 0.0F;
      }
  }
  __device__ void store_states(float* tensor, const States& states) const {
    const std::int64_t base = (b * args.in.nheads + head) * args.in.headdim * args.in.dstate;
#pragma unroll
    for (int k = 0; k < kRows; ++k)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        if (row(k) < args.in.headdim && column(j) < args.in.dstate)
          tensor[base + row(k) * args.in.dstate + column(j)] = states[k][j];
  }

  /// h_{t-1} to h_t.
  __device__ void advance(States& h, std::int64_t t, const Step& step, const float (&x)[kRows]) const {
    float B[kColumns];
    load_columns(args.in.B, t, B);
#pragma unroll
    for (int k = 0; k < kRows; ++k)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) h[k][j] = step.decay * h[k][j] + step.delta * x[k] * B[j];
  }

  /// dy = dout·silu(z); dout as it is without z.
  __device__ void load_dy(std::int64_t t, float (&dy)[kRows]) const {
    load_rows(args.dout, t, dy);
    if (args.in.z == nullptr) return;
    float z[kRows];
    load_rows(args.in.z, t, z);
#pragma unroll
    for (int k = 0; k < kRows; ++k) dy[k] *= silu_with_slope(z[k]).value;
  }

  __device__ float skip(int k) const {
    if (args.in.D == nullptr || row(k) >= args.in.headdim) return 0.0F;
    return args.in.D[args.in.skip_per_headdim ? head * args.in.headdim + row(k) : head];
  }
};

template <int kStates>
__device__ void save(float* place, const float* states) {
#pragma unroll
  for (int i = 0; i < kStates; ++i) place[i * kRecurrentThreads + threadIdx.x] = states[i];
}
template <int kStates>
__device__ void restore(float* states, const float* place) {
#pragma unroll
  for (int i = 0; i < kStates; ++i) states[i] = place[i * kRecurrentThreads + threadIdx.x];
}

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kRecurrentThreads)
    ssd_recurrent_bwd_kernel(const SsdBwdArgs args, const RecurrentBwdPlan plan, float* workspace) {
  constexpr int kStates = kRows * kColumns;
  constexpr std::int64_t kSaved = kStates * kRecurrentThreads;
  // Parts of the warps of a sum over p: dB or dC per n, then da and the direct part of dΔ.
  __shared__ float by_column[2][kRecurrentWarps][32 * kColumns];
  __shared__ float by_step[2][kRecurrentWarps][2];

  const SsdInputs& in = args.in;
  const std::int64_t slice = blockIdx.x % plan.slices;
  const std::int64_t group = blockIdx.x / plan.slices % in.groups;
  const std::int64_t b = blockIdx.x / plan.slices / in.groups;
  const std::int64_t first_head = group * in.heads_per_group + slice * plan.per_slice;
  const std::int64_t end_head = min(first_head + plan.per_slice, (group + 1) * in.heads_per_group);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;

  float* const checkpoints = workspace + plan.checkpoints + blockIdx.x * plan.segments * kSaved;
  float* const history = workspace + plan.history + blockIdx.x * plan.segment * kSaved;
  float* const flow = workspace + plan.steps + blockIdx.x * 2 * in.seqlen;  // da of each step
  float* const direct = flow + in.seqlen;
  const std::int64_t all = in.batch * in.seqlen * in.groups * in.dstate;
  float* const dB_sum = workspace + plan.projections + slice * 2 * all;
  float* const dC_sum = dB_sum + all;
  /// After a barrier: the warps' parts, added to row t of a projection's gradient.
  const auto add_columns = [&](float* gradient, std::int64_t t, bool first) {
    if (thread >= in.dstate) return;
    float sum = 0.0F;
    for (int w = 0; w < kRecurrentWarps; ++w) sum += by_column[t % 2][w][thread];
    accumulate(gradient[((b * in.seqlen + t) * in.groups + group) * in.dstate + thread], sum, first);
  };

  for (std::int64_t head = first_head; head < end_head; ++head) {
    float* const head_sums = workspace + plan.head_sums + (b * in.nheads + head) * plan.sums;
    float skip_sum = 0.0F;
    for (int tile = 0; tile < plan.tiles; ++tile) {
      const HeadTile<T, kRows, kColumns> at{args, b, head, group, tile};
      const bool first = head == first_head && tile == 0;
      float h[kRows][kColumns], dskip[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k) dskip[k] = 0.0F;

      // Forward: dz, dC, dD.
      at.load_states(in.initial_states, h);
      for (std::int64_t t = 0; t < in.seqlen; ++t) {
        if (t % plan.segment == 0) save<kStates>(checkpoints + t / plan.segment * kSaved, &h[0][0]);
        float x[kRows], dy[kRows], C[kColumns];
        at.load_rows(in.x, t, x);
        at.load_dy(t, dy);
        at.load_columns(in.C, t, C);
        at.advance(h, t, at.step(t), x);
        if (in.z != nullptr) {
          float dz[kRows], z[kRows];
          at.load_rows(in.z, t, z);
          at.load_rows(args.dout, t, dz);
#pragma unroll
          for (int k = 0; k < kRows; ++k) {
            float y = 0.0F;
#pragma unroll
            for (int j = 0; j < kColumns; ++j) y += h[k][j] * C[j];
            dz[k] *= (sum_warp(y) + at.skip(k) * x[k]) * silu_with_slope(z[k]).slope;
          }
          at.store_rows(args.dz, t, dz);
        }
#pragma unroll
        for (int k = 0; k < kRows; ++k) dskip[k] += dy[k] * x[k];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          float dC = 0.0F;
#pragma unroll
          for (int k = 0; k < kRows; ++k) dC += dy[k] * h[k][j];
          by_column[t % 2][warp][at.column(j)] = dC;
        }
        __syncthreads();
        add_columns(dC_sum, t, first);
      }
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (lane != 0 || at.row(k) >= in.headdim) continue;
        skip_sum += dskip[k];
        if (in.D != nullptr && in.skip_per_headdim) head_sums[2 + at.row(k)] = dskip[k];
      }
      __syncthreads();

      // Backward: dx, dB and dΔ.
      float G[kRows][kColumns];
      at.load_states(args.dfinal_states, G);
      for (std::int64_t segment = plan.segments - 1; segment >= 0; --segment) {
        const std::int64_t start = segment * plan.segment;
        const std::int64_t end = min(start + plan.segment, in.seqlen);
        restore<kStates>(&h[0][0], checkpoints + segment * kSaved);
        for (std::int64_t t = start; t < end; ++t) {
          save<kStates>(history + (t - start) * kSaved, &h[0][0]);
          float x[kRows];
          at.load_rows(in.x, t, x);
          at.advance(h, t, at.step(t), x);
        }
        for (std::int64_t t = end - 1; t >= start; --t) {
          const Step step = at.step(t);
          float x[kRows], dy[kRows], dx[kRows], B[kColumns], C[kColumns];
          at.load_rows(in.x, t, x);
          at.load_dy(t, dy);
          at.load_columns(in.B, t, B);
          at.load_columns(in.C, t, C);
          float direct_part = 0.0F;
#pragma unroll
          for (int k = 0; k < kRows; ++k) {
            float along = 0.0F;
#pragma unroll
            for (int j = 0; j < kColumns; ++j) {
              G[k][j] += dy[k] * C[j];
              along += G[k][j] * B[j];
            }
            along = sum_warp(along);
            direct_part += x[k] * along;
            dx[k] = step.delta * along + at.skip(k) * dy[k];
          }
          at.store_rows(args.dx, t, dx);
          restore<kStates>(&h[0][0], history + (t - start) * kSaved);
          float flow_part = 0.0F;
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
            float dB = 0.0F;
#pragma unroll
            for (int k = 0; k < kRows; ++k) {
              dB += step.delta * x[k] * G[k][j];
              G[k][j] *= step.decay;
              flow_part += G[k][j] * h[k][j];
            }
            by_column[t % 2][warp][at.column(j)] = dB;
          }
          flow_part = sum_warp(flow_part);
          if (lane == 0) {
            by_step[t % 2][warp][0] = flow_part;
            by_step[t % 2][warp][1] = direct_part;
          }
          __syncthreads();
          add_columns(dB_sum, t, first);
          if (thread < 2) {
            float sum = 0.0F;
            for (int w = 0; w < kRecurrentWarps; ++w) sum += by_step[t % 2][w][thread];
            accumulate((thread == 0 ? flow : direct)[t], sum, tile == 0);
          }
        }
      }
      if (args.dinitial_states != nullptr) at.store_states(args.dinitial_states, G);
      __syncthreads();
    }

    const HeadTile<T, kRows, kColumns> at{args, b, head, group, 0};
    float dA = 0.0F, dbias = 0.0F;
    for (std::int64_t t = thread; t < in.seqlen; t += kRecurrentThreads) {
      const std::int64_t place = at.step_head(t);
      const SsdDelta delta = ssd_delta(in, head, to_float(static_cast<const T*>(in.dt)[place]));
      const float ddt = (in.A[head] * flow[t] + direct[t]) * delta.slope;
      static_cast<T*>(args.ddt)[place] = from_float<T>(ddt);
      dA += delta.value * flow[t];
      dbias += ddt;
    }
    dA = sum_block(dA);
    dbias = sum_block(dbias);
    skip_sum = sum_block(skip_sum);
    if (thread != 0) continue;
    head_sums[0] = dA;
    head_sums[1] = dbias;
    if (in.D != nullptr && !in.skip_per_headdim) head_sums[2] = skip_sum;
  }
}

using Kernel = void (*)(SsdBwdArgs, RecurrentBwdPlan, float*);

template <class T>
Kernel kernel_for(const RecurrentBwdPlan& plan) {
  switch (plan.columns) {
    case 1:
      return ssd_recurrent_bwd_kernel<T, 8, 1>;
    case 2:
      return ssd_recurrent_bwd_kernel<T, 8, 2>;
    case 4:
      return ssd_recurrent_bwd_kernel<T, 8, 4>;
    default:
      return ssd_recurrent_bwd_kernel<T, 4, 8>;
  }
}

RecurrentBwdPlan plan_of(const Problem& problem) {
  const SsdChunkScan scan(problem);
  int skip_sums = 0;
  if (scan.skip == SsdSkip::head) skip_sums = 1;
  if (scan.skip == SsdSkip::headdim) skip_sums = static_cast<int>(scan.headdim);
  return plan_recurrent_bwd(scan.batch, scan.seqlen, scan.nheads, scan.headdim, scan.dstate, scan.groups,
                            skip_sums);
}

std::optional<std::string> unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  if (plan_of(problem).blocks > kMaxGridX ||
      projections_blocks(scan.batch, scan.seqlen, scan.groups, scan.dstate) > kMaxGridX)
    return "needs at most 2147483647 blocks";
  return std::nullopt;
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* memory) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-recurrent " + *reason);
  const SsdBwdArgs args = bind_ssd_bwd(problem, tensors);
  const RecurrentBwdPlan plan = plan_of(problem);
  auto* const workspace = static_cast<float*>(memory);
  return with_io_type(problem.dtype(), [&]<class T>(std::type_identity<T>) -> Launch {
    const Kernel kernel = kernel_for<T>(plan);
    return [=](void* queue) {
      auto* const stream = static_cast<cudaStream_t>(queue);
      kernel<<<static_cast<unsigned>(plan.blocks), kRecurrentThreads, 0, stream>>>(args, plan, workspace);
      check_cuda(cudaGetLastError());
      launch_head_sums<T>(args, args.in.batch, plan.sums, workspace + plan.head_sums, stream);
      launch_projections<T>(args, plan.slices, workspace + plan.projections, stream);
    };
  });
}

const Registration registration{{.name = "cuda-recurrent",
                                 .op = "ssd_chunk_scan_bwd",
                                 .device = DeviceKind::cuda,
                                 .summary = "the recurrence and its adjoint step by step, from checkpoints",
                                 .unsupported = unsupported,
                                 .workspace_bytes =
                                     [](const Problem& problem) {
                                       return static_cast<std::size_t>(plan_of(problem).floats) *
                                              sizeof(float);
                                     },
                                 .work = ssd_bwd_work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
