#pragma once

// cuda-chunked: Mamba-3's SISO scan by chunks of 64 steps, products on tensor cores (mma.sync), in one pass.
//
//   block   64 rows (head dims) of one head of one sequence, which it takes through all chunks
//   warp    8: warp w has steps or rows 16·(w % 4) … + 15 and one half, w / 4, of the other side
//   state   f32, in registers between chunks; 16 rows × half of the states of each warp
//
//   for each chunk, a barrier after each line:
//     angles   increments as wrapping integers, a thread for each (step, pair); V; cumulative sums of ADT
//     prefix   a warp adds up 8 steps; V with the weight that the state behind the chunk gives it; the state
//              as an operand
//     q, k     with biases, rotated: a thread for each pair, one sine and cosine a step
//     scores   q·kᵀ on and below the diagonal, times decay and s (γ on the diagonal);  y = e^a·(q·S)
//     output   y += scores·V, skip and gate, to out;  S ← e^(a of the chunk)·S + weightedᵀ·k
//
// Two blocks share a multiprocessor, so that one computes while the other waits. With s_t = γ_t +
// (1 − λ_{t+1})·DT_{t+1} the state between chunks has the weight that later steps see; after the last step,
// where s = γ, it is S.

#include <cuda_bf16.h>

#include "kernels/common/activations.h"
#include "kernels/common/mma_tile.cuh"
#include "kernels/mamba3/chunked/layout.h"
#include "kernels/mamba3/vectors.cuh"

namespace ssmbench::mamba3_chunked {

using Io = __nv_bfloat16;
using mamba3::HeadAt;
using mamba3::Pair;
using mamba3::StepScalars;

template <int kStates>
struct Memory {
  SharedTile<Io, kStates> q, k, state;
  SharedTile<Io, kRows> v, weighted;
  SharedTile<Io, kSteps> scores;
  float *sums, *own, *later;
  std::uint32_t *phases, *totals, *angles;

  __device__ Memory(unsigned char* memory, const Layout& at)
      : q{memory + at.q},
        k{memory + at.k},
        state{memory + at.state},
        v{memory + at.v},
        weighted{memory + at.weighted},
        scores{memory + at.scores},
        sums(reinterpret_cast<float*>(memory + at.sums)),
        own(reinterpret_cast<float*>(memory + at.own)),
        later(reinterpret_cast<float*>(memory + at.later)),
        phases(reinterpret_cast<std::uint32_t*>(memory + at.phases)),
        totals(reinterpret_cast<std::uint32_t*>(memory + at.totals)),
        angles(reinterpret_cast<std::uint32_t*>(memory + at.angles)) {}
};

/// What a block works on, and where a thread is in it.
struct Block {
  HeadAt at;
  std::int64_t begin, end;
  int first_row, rows;  ///< head dims
  int pairs, angles;    ///< all pairs of states, and those that are rotated
  int heads_per_group;
  int warp, lane;

  __device__ int thread() const { return warp * kWarpThreads + lane; }
  /// The warp's first step or row, and its half of the other side.
  __device__ int tile() const { return warp % 4 * 16; }
  __device__ int half() const { return warp / 4; }
  /// A fragment's first row and column.
  __device__ int row() const { return lane / 4; }
  __device__ int column() const { return lane % 4 * 2; }
};

__device__ __forceinline__ Block block_of(const Mamba3Args& args, int slabs, int heads_per_group) {
  const Mamba3& scan = args.scan;
  const std::int64_t one = blockIdx.x / slabs;
  Block block{};
  block.at.index = one / scan.nheads;
  block.at.head = one % scan.nheads;
  const bool packed = args.cu_seqlens != nullptr;
  block.at.batch = packed ? 0 : block.at.index;
  block.begin = packed ? args.cu_seqlens[block.at.index] : 0;
  block.end = packed ? args.cu_seqlens[block.at.index + 1] : scan.seqlen;
  block.first_row = static_cast<int>(blockIdx.x % slabs) * kRows;
  block.rows = min(kRows, static_cast<int>(scan.headdim) - block.first_row);
  block.pairs = static_cast<int>(scan.dstate) / 2;
  block.angles = static_cast<int>(scan.angles);
  block.heads_per_group = heads_per_group;
  block.warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  block.lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  return block;
}

/// γ, s, and the sums of ADT from the chunk's first step on; 0 and the last sum behind the end.
template <int kStates>
__device__ __forceinline__ void load_scalars(const Mamba3Args& args, const Block& block, std::int64_t start,
                                             int steps, const Memory<kStates>& memory) {
  constexpr int kOfLane = kSteps / kWarpThreads;
  float sums[kOfLane];
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int t = block.lane * kOfLane + i;
    float own = 0.0F;
    float later = 0.0F;
    if (t < steps) {
      const std::int64_t at = block.at.scalar(args.scan, start + t);
      sum += args.adt[at];
      own = mamba3::scalars_of<Io>(args, at).gamma;
      later = own;
      if (start + t + 1 < block.end) later += mamba3::scalars_of<Io>(args, at + 1).previous;
    }
    sums[i] = sum;
    memory.own[t] = own;
    memory.later[t] = later;
  }
  float before = sum;  // of the lanes before, this one included
#pragma unroll
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const float other = __shfl_up_sync(0xFFFFFFFFU, before, distance);
    if (block.lane >= distance) before += other;
  }
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) memory.sums[block.lane * kOfLane + i] = before - sum + sums[i];
}

/// Increments of the angles, and V.
template <int kStates>
__device__ __forceinline__ void load_steps(const Mamba3Args& args, const Block& block, std::int64_t start,
                                           int steps, const Memory<kStates>& memory) {
  const int thread = block.thread();
  constexpr int kVectors = kRows / 8;
#pragma unroll
  for (int i = thread; i < kSteps * kVectors; i += kThreads) {
    const int t = i / kVectors;
    const int row = i % kVectors * 8;
    uint4 vector{};
    if (t < steps && row < block.rows)
      vector = *reinterpret_cast<const uint4*>(static_cast<const Io*>(args.V) +
                                               block.at.step(args.scan, start + t) * args.scan.headdim +
                                               block.first_row + row);
    *reinterpret_cast<uint4*>(memory.v.vector(t, i % kVectors)) = vector;
  }
  for (int i = thread; i < steps * block.angles; i += kThreads) {
    const int t = i / block.angles;
    const float rate =
        mamba3::load<Io>(args.rates, block.at.step(args.scan, start + t) * block.angles + i % block.angles);
    memory.phases[i] = phase_step(args.dt[block.at.scalar(args.scan, start + t)], rate);
  }
}

/// Sums of the angles' increments within each warp's steps, and the weighted V.
template <int kStates>
__device__ __forceinline__ void add_up(const Block& block, int steps, const Memory<kStates>& memory) {
  for (int i = block.lane; i < block.angles; i += kWarpThreads) {
    std::uint32_t sum = 0;
    for (int t = block.warp * kSegment; t < min(steps, (block.warp + 1) * kSegment); ++t) {
      sum += memory.phases[t * block.angles + i];
      memory.phases[t * block.angles + i] = sum;
    }
    memory.totals[block.warp * block.angles + i] = sum;
  }
  const float end = memory.sums[kSteps - 1];
#pragma unroll
  for (int i = block.thread(); i < kSteps * (kRows / 8); i += kThreads) {
    const int t = i / (kRows / 8);
    const float weight = memory.later[t] * exp2_approximate((end - memory.sums[t]) * kLog2E);
    const uint4 vector = *reinterpret_cast<const uint4*>(memory.v.vector(t, i % (kRows / 8)));
    std::uint32_t words[4]{vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (auto& word : words) {
      const float2 two = unpack_pair<Io>(word);
      word = pack_pair<Io>(weight * two.x, weight * two.y);
    }
    *reinterpret_cast<uint4*>(memory.weighted.vector(t, i % (kRows / 8))) =
        uint4{words[0], words[1], words[2], words[3]};
  }
}

/// A pair of a row of Q or K.
__device__ __forceinline__ float2 load_pair(const void* from, std::int64_t row, Pair pair) {
  const Io* const at = static_cast<const Io*>(from) + row;
  if (pair.second == pair.first + 1)
    return unpack_pair<Io>(*reinterpret_cast<const std::uint32_t*>(at + pair.first));
  return {to_float(at[pair.first]), to_float(at[pair.second])};
}
template <int kStates>
__device__ __forceinline__ void store_pair(const SharedTile<Io, kStates>& tile, int t, Pair pair, float first,
                                           float second) {
  if (pair.second == pair.first + 1) {
    *reinterpret_cast<std::uint32_t*>(tile.at(t, pair.first)) = pack_pair<Io>(first, second);
  } else {
    *tile.at(t, pair.first) = from_float<Io>(first);
    *tile.at(t, pair.second) = from_float<Io>(second);
  }
}

/// q and k of the chunk. Sine and cosine are the hardware's, 2^-21 off on [−π, π].
template <int kStates>
__device__ __forceinline__ void rotate(const Mamba3Args& args, const Block& block, std::int64_t start,
                                       int steps, const Memory<kStates>& memory) {
  constexpr int kPairs = kStates / 2;
  constexpr int kStride = kThreads / kPairs;
  const int i = block.thread() % kPairs;
  if (i >= block.pairs) return;
  const Pair pair = mamba3::pair_of(args.scan, i);
  const std::int64_t bias = block.at.head * args.scan.dstate;
  const float2 of_q{args.Q_bias[bias + pair.first], args.Q_bias[bias + pair.second]};
  const float2 of_k{args.K_bias[bias + pair.first], args.K_bias[bias + pair.second]};
  std::uint32_t before = i < block.angles ? memory.angles[i] : 0U;  // the angle before the segment
  int segment = 0;
#pragma unroll 4
  for (int t = block.thread() / kPairs; t < kSteps; t += kStride) {
    if (t >= steps) {
      store_pair(memory.q, t, pair, 0.0F, 0.0F);
      store_pair(memory.k, t, pair, 0.0F, 0.0F);
      continue;
    }
    const std::int64_t row = block.at.row(args.scan, block.heads_per_group, start + t, 0);
    float2 q = load_pair(args.Q, row, pair);
    float2 k = load_pair(args.K, row, pair);
    q = {q.x + of_q.x, q.y + of_q.y};
    k = {k.x + of_k.x, k.y + of_k.y};
    if (i < block.angles) {
      for (; segment < t / kSegment; ++segment) before += memory.totals[segment * block.angles + i];
      const float angle = kTurnInRadians * turns_of_phase(before + memory.phases[t * block.angles + i]);
      const float sine = __sinf(angle);
      const float cosine = __cosf(angle);
      q = {q.x * cosine - q.y * sine, q.x * sine + q.y * cosine};
      k = {k.x * cosine - k.y * sine, k.x * sine + k.y * cosine};
    }
    store_pair(memory.q, t, pair, q.x, q.y);
    store_pair(memory.k, t, pair, k.x, k.y);
  }
}

/// The warp's half of its 16 steps' scores, times what each input weighs at each step.
template <int kStates>
__device__ __forceinline__ void make_scores(const Block& block, const Memory<kStates>& memory) {
  constexpr int kBlocks = kSteps / 2 / 16;
  float sums[kBlocks * 2][4]{};
  const int first = block.half() * (kSteps / 2);
#pragma unroll
  for (int step = 0; step < kStates / 16; ++step) {
    std::uint32_t q[4];
    load_a(q, memory.q, block.tile(), 2 * step, block.lane);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (first + 16 * j > block.tile()) continue;  // above the diagonal
      std::uint32_t k[4];
      load_b(k, memory.k, first + 16 * j, 2 * step, block.lane);
      mma_bf16(sums[2 * j], q, k[0], k[1]);
      mma_bf16(sums[2 * j + 1], q, k[2], k[3]);
    }
  }
#pragma unroll
  for (int j = 0; j < 2 * kBlocks; ++j) {
    if (first + 8 * j > block.tile() + 15) continue;
    const int u = first + 8 * j + block.column();
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int t = block.tile() + block.row() + 8 * upper;
      float weights[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float decay = exp2_approximate((memory.sums[t] - memory.sums[u + i]) * kLog2E);
        weights[i] = u + i < t ? decay * memory.later[u + i] : u + i == t ? memory.own[t] : 0.0F;
      }
      *reinterpret_cast<std::uint32_t*>(memory.scores.at(t, u)) =
          pack_pair<Io>(weights[0] * sums[j][2 * upper], weights[1] * sums[j][2 * upper + 1]);
    }
  }
}

/// What the warp's 16 steps read of the state before the chunk, for half of the rows.
template <int kStates>
__device__ __forceinline__ void read_state(float (&y)[4][4], const Block& block,
                                           const Memory<kStates>& memory) {
#pragma unroll
  for (int step = 0; step < kStates / 16; ++step) {
    std::uint32_t q[4];
    load_a(q, memory.q, block.tile(), 2 * step, block.lane);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      std::uint32_t s[4];
      load_b(s, memory.state, block.half() * 32 + 16 * j, 2 * step, block.lane);
      mma_bf16(y[2 * j], q, s[0], s[1]);
      mma_bf16(y[2 * j + 1], q, s[2], s[3]);
    }
  }
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const float decay = exp2_approximate(memory.sums[block.tile() + block.row() + 8 * upper] * kLog2E);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      y[j][2 * upper] *= decay;
      y[j][2 * upper + 1] *= decay;
    }
  }
}

/// y += scores·V.
template <int kStates>
__device__ __forceinline__ void read_chunk(float (&y)[4][4], const Block& block,
                                           const Memory<kStates>& memory) {
#pragma unroll
  for (int step = 0; step < kSteps / 16; ++step) {
    if (16 * step > block.tile()) break;
    std::uint32_t scores[4];
    load_a(scores, memory.scores, block.tile(), 2 * step, block.lane);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      std::uint32_t v[4];
      load_b_transposed(v, memory.v, 16 * step, block.half() * 4 + 2 * j, block.lane);
      mma_bf16(y[2 * j], scores, v[0], v[1]);
      mma_bf16(y[2 * j + 1], scores, v[2], v[3]);
    }
  }
}

/// Skip and gate.
template <int kStates>
__device__ __forceinline__ void store_output(const float (&y)[4][4], const Mamba3Args& args,
                                             const Block& block, std::int64_t start, int steps,
                                             const Memory<kStates>& memory) {
  const float skip = args.D == nullptr ? 0.0F : args.D[block.at.head];
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const int t = block.tile() + block.row() + 8 * upper;
    if (t >= steps) continue;
    const std::int64_t row = block.at.step(args.scan, start + t) * args.scan.headdim + block.first_row;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int p = block.half() * 32 + 8 * j + block.column();
      if (p >= block.rows) continue;
      const float2 v = unpack_pair<Io>(*reinterpret_cast<const std::uint32_t*>(memory.v.at(t, p)));
      float2 out{y[j][2 * upper] + skip * v.x, y[j][2 * upper + 1] + skip * v.y};
      if (args.Z != nullptr) {
        const float2 z = unpack_pair<Io>(
            *reinterpret_cast<const std::uint32_t*>(static_cast<const Io*>(args.Z) + row + p));
        out = {out.x * fast_silu(z.x), out.y * fast_silu(z.y)};
      }
      *reinterpret_cast<std::uint32_t*>(static_cast<Io*>(args.out) + row + p) = pack_pair<Io>(out.x, out.y);
    }
  }
}

/// The warp's 16 rows and half of the states, as a fragment holds them.
template <int kStates>
struct State {
  static constexpr int kBlocks = kStates / 16;  // of 8 states
  float values[kBlocks][4];

  /// Calls function(value, row, state) for each.
  template <class Function>
  __device__ __forceinline__ void for_each(const Block& block, const Function& function) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        function(values[j][i], block.tile() + block.row() + i / 2 * 8,
                 block.half() * (kStates / 2) + 8 * j + block.column() + i % 2);
  }

  /// The input state with what the first step adds of the step before.
  __device__ __forceinline__ void load(const Mamba3Args& args, const Block& block) {
    const Mamba3& scan = args.scan;
    const bool given = args.input_ssm != nullptr;
    const float weight = given && block.begin < block.end
                             ? mamba3::scalars_of<Io>(args, block.at.scalar(scan, block.begin)).previous
                             : 0.0F;
    for_each(block, [&](float& value, int row, int n) {
      value = 0.0F;
      if (!given || row >= block.rows || n >= scan.dstate) return;
      const std::int64_t p = block.at.state(scan) * scan.headdim + block.first_row + row;
      value = args.input_ssm[p * scan.dstate + n] +
              weight * args.input_v[p] * args.input_k[block.at.k_state(scan, 0) + n];
    });
  }
  __device__ __forceinline__ void store(const Mamba3Args& args, const Block& block) {
    const Mamba3& scan = args.scan;
    for_each(block, [&](float value, int row, int n) {
      const std::int64_t p = block.at.state(scan) * scan.headdim + block.first_row + row;
      if (row < block.rows && n < scan.dstate) args.final_ssm[p * scan.dstate + n] = value;
    });
  }
  __device__ __forceinline__ void store_operand(const Block& block, const Memory<kStates>& memory) const {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper)
        *reinterpret_cast<std::uint32_t*>(memory.state.at(
            block.tile() + block.row() + 8 * upper, block.half() * (kStates / 2) + 8 * j + block.column())) =
            pack_pair<Io>(values[j][2 * upper], values[j][2 * upper + 1]);
  }
  /// S ← e^(a of the chunk)·S + weightedᵀ·k.
  __device__ __forceinline__ void advance(const Block& block, const Memory<kStates>& memory) {
    const float decay = exp2_approximate(memory.sums[kSteps - 1] * kLog2E);
#pragma unroll
    for (auto& block_values : values)
#pragma unroll
      for (float& value : block_values) value *= decay;
#pragma unroll
    for (int step = 0; step < kSteps / 16; ++step) {
      std::uint32_t v[4];
      load_a_transposed(v, memory.weighted, 16 * step, 2 * (block.warp % 4), block.lane);
#pragma unroll
      for (int j = 0; j < kBlocks; j += 2) {
        std::uint32_t k[4];
        load_b_transposed(k, memory.k, 16 * step, block.half() * (kStates / 16) + j, block.lane);
        mma_bf16(values[j], v, k[0], k[1]);
        mma_bf16(values[j + 1], v, k[2], k[3]);
      }
    }
  }
};

/// The other states after the last step; those before it where there was none.
template <int kStates>
__device__ __forceinline__ void store_states(const Mamba3Args& args, const Block& block,
                                             const Memory<kStates>& memory) {
  const Mamba3& scan = args.scan;
  const int thread = block.thread();
  const bool passes = block.begin == block.end;
  const std::int64_t at = block.at.state(scan);
  for (int i = thread; i < block.rows; i += kThreads) {
    const std::int64_t to = at * scan.headdim + block.first_row + i;
    const float before = args.input_v == nullptr ? 0.0F : args.input_v[to];
    const std::int64_t last = block.at.step(scan, block.end - 1) * scan.headdim + block.first_row + i;
    mamba3::store<Io>(args.final_v, to, passes ? before : mamba3::load<Io>(args.V, last));
  }
  if (block.first_row != 0) return;
  for (int i = thread; i < block.angles; i += kThreads) {
    const float before = args.input_angle == nullptr ? 0.0F : args.input_angle[at * scan.angles + i];
    args.final_angle[at * scan.angles + i] = passes ? before : radians_of_phase(memory.angles[i]);
  }
  float* const to = args.final_k + block.at.k_state(scan, 0);
  for (int i = thread; i < block.pairs; i += kThreads) {
    const Pair pair = mamba3::pair_of(scan, i);
    if (passes) {
      for (const int n : {pair.first, pair.second})
        to[n] = args.input_k == nullptr ? 0.0F : args.input_k[block.at.k_state(scan, 0) + n];
      continue;
    }
    float sine = 0.0F;
    float cosine = 1.0F;
    if (i < block.angles) sincospif(2.0F * turns_of_phase(memory.angles[i]), &sine, &cosine);
    mamba3::store_rotated<Io>(args.K, block.at.row(scan, block.heads_per_group, block.end - 1, 0),
                              args.K_bias + block.at.head * scan.dstate, pair, sine, cosine, to);
  }
}

/// Zeros where no state is, and the angles before the first step.
template <int kStates>
__device__ __forceinline__ void start(const Mamba3Args& args, const Block& block,
                                      const Memory<kStates>& memory) {
  const int thread = block.thread();
  for (int i = thread; i < kSteps * kStates / 8; i += kThreads)
    for (const auto* tile : {&memory.q, &memory.k})
      *reinterpret_cast<uint4*>(tile->memory + 16 * i) = uint4{};
  for (int i = thread; i < block.angles; i += kThreads)
    memory.angles[i] =
        args.input_angle == nullptr
            ? 0U
            : phase_of_radians(args.input_angle[block.at.state(args.scan) * args.scan.angles + i]);
}

/// A barrier. What follows from the thread's place is computed anew behind it: kept in registers through all
/// chunks, the addresses of all phases would spill.
__device__ __forceinline__ void next_phase(Block& block) {
  __syncthreads();
  asm volatile("" : "+r"(block.warp), "+r"(block.lane));
}

template <int kStates>
__device__ __forceinline__ void do_chunk(State<kStates>& state, const Mamba3Args& args, Block& block,
                                         std::int64_t start, const Memory<kStates>& memory) {
  const int steps = steps_within(start, kSteps, block.end);
  if (block.warp == 0) load_scalars(args, block, start, steps, memory);
  load_steps(args, block, start, steps, memory);
  next_phase(block);
  add_up(block, steps, memory);
  state.store_operand(block, memory);
  next_phase(block);
  rotate(args, block, start, steps, memory);
  next_phase(block);
  make_scores(block, memory);
  float y[4][4]{};
  read_state(y, block, memory);
  next_phase(block);
  for (int i = block.thread(); i < block.angles; i += kThreads)
    for (int segment = 0; segment < kWarps; ++segment)
      memory.angles[i] += memory.totals[segment * block.angles + i];
  read_chunk(y, block, memory);
  store_output(y, args, block, start, steps, memory);
  state.advance(block, memory);
  next_phase(block);
}

template <int kStates>
__global__ void __launch_bounds__(kThreads, 2)
    chunked_kernel(const Mamba3Args args, const Layout layout, const int slabs, const int heads_per_group) {
  extern __shared__ uint4 shared[];
  const Memory<kStates> memory(reinterpret_cast<unsigned char*>(shared), layout);
  Block block = block_of(args, slabs, heads_per_group);
  State<kStates> state;
  state.load(args, block);
  start(args, block, memory);
  __syncthreads();
  for (std::int64_t begin = block.begin; begin < block.end; begin += kSteps)
    do_chunk(state, args, block, begin, memory);
  if (args.final_ssm == nullptr) return;
  state.store(args, block);
  store_states(args, block, memory);
}

}  // namespace ssmbench::mamba3_chunked
