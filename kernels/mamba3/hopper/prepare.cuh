#pragma once

// Preparation of Mamba-3's scans for the kernels of compute capability 9.0 (prepare.h): three kernels.
//
//   sums    block: up to 8 heads of 256 steps of a sequence. A thread adds the increments of a rotated pair's
//           angle up over 64 steps, for the second kernel, which so begins anywhere. Not of one segment.
//
//   rotate  block: the same heads of 64 steps, a segment
//             angles  a thread for each (head, pair): the angle before the segment, from the sums of all spans
//                     before; then those of its steps, one after the other, to shared memory
//             rows    8 or 16 lanes a row, 4 pairs each. A thread loads its pairs of Q and K of 2 or 4 steps
//                     once, and for each head adds biases, turns both by one sine and cosine, rounds, stores
//
//   ends    a thread for 4 states: the state that the first step reads; Final_V_State
//
// Bytes: Angles twice, Q and K once for 8 heads; q and k of all heads, which is nearly all of it.

#include "kernels/common/vector.cuh"
#include "kernels/mamba3/hopper/prepare.h"
#include "kernels/mamba3/hopper/quads.cuh"
#include "kernels/mamba3/vectors.cuh"
#include "kernels/ssd_chunk_scan/hopper/packed.h"

namespace ssmbench::mamba3_hopper {

using mamba3::HeadAt;

inline constexpr int kRatesAhead = 8;  ///< that a thread loads before it adds them up

/// Some steps of a sequence, the first one in all of its batch.
struct PreparePart {
  std::int64_t batch, sequence;
  int slot, index;  ///< of its batch's parts, and of its sequence's
  std::int64_t first;
  int steps;  ///< none where packed sequences have no such part
  bool ends;  ///< the sequence
};
/// Part `slot` of `each` steps of a batch.
template <bool kPacked>
__device__ __forceinline__ PreparePart part_at(const Mamba3Args& args, std::int64_t batch, int slot,
                                               int each) {
  const Mamba3& scan = args.scan;
  if constexpr (kPacked) {
    const ssd_hopper::PackedPart part =
        ssd_hopper::packed_part_at(args.cu_seqlens, static_cast<int>(scan.sequences), slot, each);
    return {batch, part.sequence, slot, part.index, part.first, part.steps, part.ends};
  } else {
    const std::int64_t first = std::int64_t{slot} * each;
    const int steps = steps_within(first, each, scan.seqlen);
    return {batch, batch, slot, slot, first, steps, first + steps == scan.seqlen};
  }
}
/// The slot of the first part of `each` steps in the sequence of a part of `own` steps.
template <bool kPacked>
__device__ __forceinline__ int first_slot(const PreparePart& part, int own, int each) {
  if constexpr (!kPacked) return 0;
  return ssd_hopper::packed_slot(static_cast<int>(part.first - std::int64_t{part.index} * own),
                                 static_cast<int>(part.sequence), each);
}

/// A thread's column of angles: pair `pair` of head `head` of the block's.
struct Column {
  int head, pair;
  bool exists;
};
__device__ inline Column column_of(const PrepareGrid& grid, int index, int heads) {
  const Column column{index / grid.row, index % grid.row, false};
  return {column.head, column.pair, column.head < heads && column.pair < grid.angles};
}

/// The heads of a slice.
__device__ inline int heads_of(const Mamba3& scan, const PrepareGrid& grid, int first) {
  return min(grid.heads, static_cast<int>(scan.nheads) - first);
}

/// Adds the increments of `steps` steps to `phase`, and calls visit(step, phase behind it) for each, up to
/// the next multiple of kRatesAhead (without branches they overlap). `rates`: those of the first step, a row
/// of `stride` apart; dt: one a step.
template <class Rate, class Visit>
__device__ __forceinline__ void add_rates(std::uint32_t& phase, const Rate* rates, std::int64_t stride,
                                          const float* dt, int steps, const Visit& visit) {
  for (int t = 0; t < steps; t += kRatesAhead) {
    std::uint32_t increments[kRatesAhead];
    Rate ahead[kRatesAhead];
#pragma unroll
    for (int i = 0; i < kRatesAhead; ++i)
      if (t + i < steps) ahead[i] = rates[(t + i) * stride];
#pragma unroll
    for (int i = 0; i < kRatesAhead; ++i) {
      const bool exists = t + i < steps;
      increments[i] = phase_step(exists ? dt[t + i] : 0.0F, exists ? to_float(ahead[i]) : 0.0F);
    }
#pragma unroll
    for (int i = 0; i < kRatesAhead; ++i) visit(t + i, phase += increments[i]);
  }
}
/// The same of a head's pair from step `first` on.
template <class Io, class Visit>
__device__ __forceinline__ void add_angles(std::uint32_t& phase, const Mamba3Args& args, const HeadAt& at,
                                           int pair, std::int64_t first, const float* dt, int steps,
                                           const Visit& visit) {
  const std::int64_t begin = at.step(args.scan, first) * args.scan.angles + pair;
  const std::int64_t stride = args.scan.nheads * args.scan.angles;
  if (args.scan.is_mimo)
    add_rates(phase, static_cast<const float*>(args.rates) + begin, stride, dt, steps, visit);
  else
    add_rates(phase, static_cast<const Io*>(args.rates) + begin, stride, dt, steps, visit);
}

/// DT of the block's heads and steps, [head][step], by all threads. `row`: steps at most.
__device__ inline void load_dt(float* to, const Mamba3Args& args, const PreparePart& part, int first_head,
                               int heads, int row) {
  for (int i = threadIdx.x; i < heads * row; i += kPrepareThreads) {
    const HeadAt at{part.sequence, part.batch, first_head + i / row};
    if (i % row < part.steps) to[i] = args.dt[at.scalar(args.scan, part.first + i % row)];
  }
}

template <class Io, bool kPacked>
__global__ void __launch_bounds__(kPrepareThreads)
    sum_angles_kernel(const Mamba3Args args, const PrepareGrid grid, const PreparedRows to) {
  __shared__ float dt[kHeadsAtOnce * kSpan];
  __shared__ std::uint32_t sums[kSpanSegments][kPrepareThreads];
  const Mamba3& scan = args.scan;
  const PrepareBlock block = prepare_block(blockIdx.x, grid.slices, grid.spans);
  const PreparePart span = part_at<kPacked>(args, block.batch, block.part, kSpan);
  const int first_head = block.slice * grid.heads;
  const int heads = heads_of(scan, grid, first_head);
  load_dt(dt, args, span, first_head, heads, kSpan);
  __syncthreads();

  constexpr int kTeam = kPrepareThreads / kSpanSegments;
  const int segment = static_cast<int>(threadIdx.x) / kTeam;
  const int begin = segment * kSegment;
  for (int i = static_cast<int>(threadIdx.x) % kTeam; i < heads * grid.row; i += kTeam) {
    const Column column = column_of(grid, i, heads);
    std::uint32_t sum = 0;
    if (column.exists && begin < span.steps)
      add_angles<Io>(sum, args, {span.sequence, span.batch, first_head + column.head}, column.pair,
                     span.first + begin, dt + column.head * kSpan + begin, min(span.steps - begin, kSegment),
                     [](int, std::uint32_t) {});
    sums[segment][i] = sum;
  }
  __syncthreads();

  const Column column = column_of(grid, threadIdx.x, heads);
  if (!column.exists) return;
  const auto place = [&](int slot, int slots) {
    return ((span.batch * slots + slot) * scan.nheads + first_head + column.head) * grid.angles + column.pair;
  };
  const int segments = first_slot<kPacked>(span, kSpan, kSegment) + span.index * kSpanSegments;
  std::uint32_t before = 0;
  for (int i = 0; i < kSpanSegments; ++i) {
    if (i * kSegment < span.steps) to.of_segments[place(segments + i, grid.segments)] = before;
    before += sums[i][threadIdx.x];
  }
  to.of_spans[place(span.slot, grid.spans)] = before;
}

/// The angle of a head's pair before a segment.
template <bool kPacked>
__device__ inline std::uint32_t phase_before(const Mamba3Args& args, const PrepareGrid& grid,
                                             const PreparedRows& from, const HeadAt& at, int pair,
                                             const PreparePart& segment) {
  const Mamba3& scan = args.scan;
  std::uint32_t phase = args.input_angle == nullptr
                            ? 0U
                            : phase_of_radians(args.input_angle[at.state(scan) * scan.angles + pair]);
  if (segment.index == 0) return phase;
  const std::int64_t row = scan.nheads * scan.angles;
  const std::int64_t column = at.head * scan.angles + pair;
  const std::uint32_t* const spans =
      from.of_spans + (at.batch * grid.spans + first_slot<kPacked>(segment, kSegment, kSpan)) * row + column;
#pragma unroll 8
  for (int i = 0; i < segment.index / kSpanSegments; ++i) phase += spans[i * row];
  return phase + from.of_segments[(at.batch * grid.segments + segment.slot) * row + column];
}

/// Angles behind each step of a segment, [head][step][pair], by all threads; 0 where no pair is. `dt`:
/// [head][step].
template <class Io, bool kPacked>
__device__ __forceinline__ void segment_angles(std::uint32_t* to, const Mamba3Args& args,
                                               const PrepareGrid& grid, const PreparedRows& prepared,
                                               const PreparePart& segment, int first_head, int heads,
                                               const float* dt) {
  const Mamba3& scan = args.scan;
  const Column column = column_of(grid, threadIdx.x, heads);
  if (!column.exists) return;
  const HeadAt at{segment.sequence, segment.batch, first_head + column.head};
  std::uint32_t phase = phase_before<kPacked>(args, grid, prepared, at, column.pair, segment);
  std::uint32_t* const column_of_steps = to + column.head * kSegment * grid.row + column.pair;
  add_angles<Io>(phase, args, at, column.pair, segment.first, dt + column.head * kSegment, segment.steps,
                 [&](int t, std::uint32_t now) { column_of_steps[t * grid.row] = now; });
  if (args.final_angle != nullptr && segment.ends)
    args.final_angle[at.state(scan) * scan.angles + column.pair] = radians_of_phase(phase);
}

/// s and γ of step `at` of the `steps` of all heads and sequences.
template <class Io, bool kPacked>
__device__ __forceinline__ void weigh_step(const Mamba3Args& args, const PreparedRows& to, std::int64_t steps,
                                           std::int64_t at) {
  if (at >= steps) return;
  const float gamma = mamba3::scalars_of<Io>(args, at).gamma;
  const auto is_border = [&] {
    if constexpr (!kPacked) return (at + 1) % args.scan.seqlen == 0;
    return ssd_hopper::ends_packed(args.cu_seqlens, static_cast<int>(args.scan.sequences),
                                   at % args.scan.seqlen);
  };
  const bool is_last = is_border();
  to.gamma[at] = gamma;
  to.s[at] = is_last ? gamma : gamma + mamba3::scalars_of<Io>(args, at + 1).previous;
}
template <class Io, bool kPacked>
__global__ void __launch_bounds__(kPrepareThreads)
    weigh_kernel(const Mamba3Args args, const PreparedRows to, const std::int64_t steps) {
  weigh_step<Io, kPacked>(args, to, steps, std::int64_t{blockIdx.x} * kPrepareThreads + threadIdx.x);
}

/// Turns the first `rotated` of q's and k's pairs. Sine and cosine are the hardware's, 2^-21 off on [−π, π].
template <bool kInterleaved>
__device__ __forceinline__ void turn(QuadValues<kInterleaved>& q, QuadValues<kInterleaved>& k,
                                     const std::uint32_t* phases, int rotated) {
  if (rotated <= 0) return;
  const uint4 all = *reinterpret_cast<const uint4*>(phases);
  const std::uint32_t of_pairs[]{all.x, all.y, all.z, all.w};
  const auto turn_pair = [&](int pair) {
    const float angle = kTurnInRadians * turns_of_phase(of_pairs[pair]);
    const float sine = __sinf(angle);
    const float cosine = __cosf(angle);
    q.turn(pair, sine, cosine);
    k.turn(pair, sine, cosine);
  };
  if (rotated >= 4) {  // without branches between them they overlap
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) turn_pair(pair);
    return;
  }
#pragma unroll
  for (int pair = 0; pair < 3; ++pair)
    if (pair < rotated) turn_pair(pair);
}

/// Lanes 0 … kLanes − 1 have a row of at most 8·kLanes states, and a thread some steps at a time.
template <class Io, int kLanes, bool kInterleaved>
struct RowThread {
  static constexpr int kRowsAtOnce = kPrepareThreads / kLanes;
  static constexpr int kSteps = 2;
  static constexpr int kPassSteps = kSteps * kRowsAtOnce;

  int quad, row;

  /// Q and K of the thread's steps, as they are stored.
  struct Loaded {
    Quad<kInterleaved> q[kSteps], k[kSteps];
  };

  __device__ int step(int i) const { return row + i * kRowsAtOnce; }

  /// `steps`: those that there are from `first` on.
  __device__ __forceinline__ void load(Loaded& to, const Mamba3Args& args, const HeadAt& at,
                                       int heads_per_group, int rank, std::int64_t first, int steps) const {
    const int dstate = static_cast<int>(args.scan.dstate);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (step(i) >= steps) break;
      const std::int64_t from = at.row(args.scan, heads_per_group, first + step(i), rank);
      to.q[i] = Quad<kInterleaved>::load(static_cast<const Io*>(args.Q) + from, quad, dstate);
      to.k[i] = Quad<kInterleaved>::load(static_cast<const Io*>(args.K) + from, quad, dstate);
    }
  }

  /// Where a head's rows lie: that of the thread's first step, and from there to its next.
  struct Rows {
    std::int64_t first, stride;
  };

  /// `phases`: of the head and the thread's first step.
  __device__ __forceinline__ void rotate(const Loaded& from, const Mamba3Args& args, const PreparedRows& to,
                                         const Rows& rows, std::int64_t bias, int steps,
                                         const std::uint32_t* phases, const PrepareGrid& grid,
                                         float* final_k) const {
    const int dstate = static_cast<int>(args.scan.dstate);
    const auto of_q = QuadValues<kInterleaved>::load(args.Q_bias + bias, quad, dstate);
    const auto of_k = QuadValues<kInterleaved>::load(args.K_bias + bias, quad, dstate);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (step(i) >= steps) break;
      auto q = of_q.template plus<Io>(from.q[i]);
      auto k = of_k.template plus<Io>(from.k[i]);
      turn(q, k, phases + i * kRowsAtOnce * grid.row, grid.angles - 4 * quad);
      const std::int64_t at = rows.first + i * rows.stride;
      q.template rounded<Io>().store(static_cast<Io*>(to.q) + at, quad, dstate);
      k.template rounded<Io>().store(static_cast<Io*>(to.k) + at, quad, dstate);
      if (final_k != nullptr && step(i) + 1 == steps) k.store(final_k, quad, dstate);
    }
  }

  /// q and k of all heads of a slice at the steps of a segment from its step `done` on. `phases`: [head]
  /// [step of the segment][row].
  __device__ __forceinline__ void do_steps(const Mamba3Args& args, const PreparedRows& to,
                                           const PrepareGrid& grid, const PreparePart& segment, int slice,
                                           int heads_per_group, int rank, int done,
                                           const std::uint32_t* phases) const {
    const Mamba3& scan = args.scan;
    const int first_head = slice * grid.heads;
    const int heads = heads_of(scan, grid, first_head);
    const HeadAt at{segment.sequence, segment.batch, first_head};
    const std::int64_t first = segment.first + done;
    const int steps = segment.steps - done;
    const std::int64_t rank_row = scan.nheads * scan.dstate;
    Rows rows{((segment.batch * scan.seqlen + first + row) * scan.rank + rank) * rank_row +
                  first_head * scan.dstate,
              kRowsAtOnce * scan.rank * rank_row};
    std::int64_t bias = at.factor(scan, rank, scan.dstate);
    const bool ends = args.final_k != nullptr && segment.ends;
    float* final_k = ends ? args.final_k + at.k_state(scan, rank) : nullptr;
    phases += (done + row) * grid.row + 4 * quad;
    Loaded loaded;
    int group = -1;
#pragma unroll 1
    for (int head = 0; head < heads; ++head) {
      if ((first_head + head) / heads_per_group != group) {
        group = (first_head + head) / heads_per_group;
        load(loaded, args, {segment.sequence, segment.batch, first_head + head}, heads_per_group, rank, first,
             steps);
      }
      rotate(loaded, args, to, rows, bias, steps, phases, grid, final_k);
      rows.first += scan.dstate;
      bias += scan.rank * scan.dstate;
      phases += kSegment * grid.row;
      if (ends) final_k += scan.dstate;
    }
  }
};

template <class Io, int kLanes, bool kInterleaved, bool kPacked>
__global__ void __launch_bounds__(kPrepareThreads, 2)
    rotate_kernel(const Mamba3Args args, const PrepareGrid grid, const PreparedRows to,
                  const int heads_per_group) {
  extern __shared__ uint4 angles_and_dt[];
  auto* const phases = reinterpret_cast<std::uint32_t*>(angles_and_dt);
  auto* const dt = reinterpret_cast<float*>(phases + grid.heads * kSegment * grid.row);
  const Mamba3& scan = args.scan;
  const PrepareBlock block = prepare_block(blockIdx.x, grid.slices, grid.segments);
  const PreparePart segment = part_at<kPacked>(args, block.batch, block.part, kSegment);
  const int first_head = block.slice * grid.heads;
  const int heads = heads_of(scan, grid, first_head);
  load_dt(dt, args, segment, first_head, heads, kSegment);
  __syncthreads();
  segment_angles<Io, kPacked>(phases, args, grid, to, segment, first_head, heads, dt);
  __syncthreads();

  using Thread = RowThread<Io, kLanes, kInterleaved>;
  const Thread thread{static_cast<int>(threadIdx.x) % kLanes, static_cast<int>(threadIdx.x) / kLanes};
  if (8 * thread.quad >= scan.dstate) return;
  for (int rank = 0; rank < scan.rank; ++rank)
    for (int done = 0; done < segment.steps; done += Thread::kPassSteps)
      thread.do_steps(args, to, grid, segment, block.slice, heads_per_group, rank, done, phases);
}

__global__ void __launch_bounds__(kPrepareThreads)
    row_borders_kernel(const Mamba3Args args, const PreparedRows to) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kPrepareThreads + threadIdx.x;
  if (at <= args.scan.sequences)
    to.row_borders[at] = args.cu_seqlens[at] * static_cast<std::int32_t>(args.scan.rank);
}

/// The state that the first step reads, and Final_V_State. A thread has 4 states of a row of a head. Of a
/// packed sequence without steps, which passes its states through, Final_K_State as well.
template <class Io, bool kPacked>
__global__ void __launch_bounds__(kPrepareThreads) ends_kernel(const Mamba3Args args, const PreparedRows to) {
  const Mamba3& scan = args.scan;
  const int vectors = static_cast<int>(scan.dstate) / 4;
  const std::int64_t index = std::int64_t{blockIdx.x} * kPrepareThreads + threadIdx.x;
  const std::int64_t row = index / vectors;  // (sequence, head, head dim)
  if (row >= scan.sequences * scan.nheads * scan.headdim) return;
  const int n = static_cast<int>(index - row * vectors) * 4;
  const std::int64_t head = row / scan.headdim;
  const std::int64_t p = row - head * scan.headdim;
  const std::int64_t sequence = head / scan.nheads;
  const HeadAt at{sequence, kPacked ? 0 : sequence, head % scan.nheads};
  const std::int64_t first = kPacked ? args.cu_seqlens[sequence] : 0;
  const std::int64_t end = kPacked ? args.cu_seqlens[sequence + 1] : scan.seqlen;
  const bool is_empty = kPacked && first == end;
  if (args.final_v != nullptr && n == 0) {
    const float input = args.input_v == nullptr ? 0.0F : args.input_v[row];
    mamba3::store<Io>(args.final_v, row,
                      is_empty ? input : mamba3::load<Io>(args.V, at.step(scan, end - 1) * scan.headdim + p));
  }
  if (args.final_k != nullptr && is_empty && p == 0)
    for (int rank = 0; rank < scan.rank; ++rank) {
      float k[4]{};
      if (args.input_k != nullptr) load_vector(k, args.input_k + at.k_state(scan, rank) + n);
      store_vector(args.final_k + at.k_state(scan, rank) + n, k[0], k[1], k[2], k[3]);
    }
  if (to.seed == nullptr) return;
  const float weight = is_empty ? 0.0F : mamba3::scalars_of<Io>(args, at.scalar(scan, first)).previous;
  float state[4];
  load_vector(state, args.input_ssm + row * scan.dstate + n);
  for (int rank = 0; rank < scan.rank; ++rank) {
    float k[4];
    load_vector(k, args.input_k + at.k_state(scan, rank) + n);
    const float v =
        args.input_v[row] * mamba3::factor_at(args.mimo_v, at.factor(scan, rank, scan.headdim), p);
#pragma unroll
    for (int i = 0; i < 4; ++i) state[i] += weight * v * k[i];
  }
  store_vector(to.seed + row * scan.dstate + n, state[0], state[1], state[2], state[3]);
}

}  // namespace ssmbench::mamba3_hopper
