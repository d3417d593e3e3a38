#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/workspace.h"
#include "kernels/mamba3/tensor_bwd/sequences.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"
#include "ops/mamba3/mamba3.h"

// How cuda-chunked cuts Mamba-3's gradients up, and where its workspace lies; the picture is in launch.cu. Host
// and device, so that the CPU tests cover it.

namespace ssmbench::mamba3_bwd {

/// Rows (step, rank) of a chunk, head dims, and states of a tile: the tiles are those of SSD's kernels. With one rank
/// rows are steps.
inline constexpr int kSteps = 64;
inline constexpr int kMaxHeaddim = 64;
inline constexpr int kMaxStates = 128;
inline constexpr int kMaxAngles = kMaxStates / 2;
/// Floats of a step in SSD's kernels, chunk_grid.h.
inline constexpr int kStepFloats = 4;

/// What the kernels are instantiated for: the rows of a step, one for each rank. MIMO's have factors of V, Z and out
/// around them, and angles in f32.
struct Siso {
  static constexpr int kRanks = 1;
  static constexpr bool kIsMimo = false;
};
template <int kRanksOfStep>
struct Mimo {
  static constexpr int kRanks = kRanksOfStep;
  static constexpr bool kIsMimo = true;
};
inline constexpr int kMaxRanks = 8;
static_assert(kSequenceSpanSteps == kSteps);

/// Steps of a chunk.
template <class Form>
inline constexpr int kChunkSteps = kSteps / Form::kRanks;

// What the gradient kernel leaves of each step.
inline constexpr int kFlowOut = 0;  ///< what reaches the step from before less what leaves it: for later sums
inline constexpr int kFlowIn = 1;   ///< what leaves it for the state behind the chunk: for earlier sums
inline constexpr int kFlowScale = 2;  ///< ds
inline constexpr int kFlowOwn = 3;    ///< dγ
inline constexpr int kFlowRows = 4;

/// Pairs of an angle tile, [step][pair]: those of 64 states.
inline constexpr int kTilePairs = kSteps / 2;
inline constexpr int kAngleTile = kSteps * kTilePairs;  ///< of one rank
inline constexpr int kAngleVector = 4;                  ///< 16 bytes

/// Element of an angle tile. A thread of the gradient kernels has its pairs of a 64 × 64 product of tensor cores
/// (rows, states) in four vectors, and a warp's vectors are neighbours. Of the rows of a step the first one counts.
template <int kRanks = 1>
SSMBENCH_HD constexpr int angle_offset(int t, int pair) {
  constexpr int kAtom = 16 / kRanks;  // steps of 16 rows
  const int thread = t / kAtom * (2 * kAtom) + t % (kAtom / 2) * 4 + pair % 4;
  const int value = pair / 4 * 2 + t % kAtom / (kAtom / 2);
  return (value / kAngleVector * (2 * kSteps / kRanks) + thread) * kAngleVector + value % kAngleVector;
}
/// The first element of a vector of an angle tile. The others are (t + kApartSteps / kRanks, pair),
/// (t, pair + kApartPairs) and (t + kApartSteps / kRanks, pair + kApartPairs).
struct AngleAt {
  int t, pair;
};
inline constexpr int kApartSteps = 8;
inline constexpr int kApartPairs = 4;
template <int kRanks = 1>
SSMBENCH_HD constexpr AngleAt angle_at(int vector) {
  constexpr int kThreadsOfTile = 2 * kSteps / kRanks;
  constexpr int kAtom = 16 / kRanks;
  const int thread = vector % kThreadsOfTile;
  return {thread / (2 * kAtom) * kAtom + thread % (2 * kAtom) / 4,
          vector / kThreadsOfTile * 2 * kApartPairs + thread % kApartPairs};
}

/// The phases of a chunk and 32 pairs as SISO's gradients of cuda-hopper take them: a thread has its pairs of a 64 × 64
/// product in two vectors of 16-bit elements.
struct alignas(16) PhaseTile {
  std::uint32_t of_steps[kAngleTile / 2];  ///< what the chunk's steps have added, the upper 16 bits, rounded
  std::uint32_t starts[kTilePairs];        ///< the phases before the chunk, at start_slot()
};
inline constexpr int kPhaseElements = 8;  ///< of a vector
inline constexpr int kPhaseVectors = kAngleTile / kPhaseElements;
/// An element of a vector of a phase tile: those of the two angle vectors of the same thread.
SSMBENCH_HD constexpr AngleAt phase_at(int vector, int element) {
  constexpr int kThreadsOfTile = 2 * kSteps;
  const int angle_vector = (vector / kThreadsOfTile * 2 + element / kAngleVector) * kThreadsOfTile;
  const AngleAt first = angle_at(angle_vector + vector % kThreadsOfTile);
  return {first.t + element % 2 * kApartSteps, first.pair + element % kAngleVector / 2 * kApartPairs};
}
/// A thread's pairs are neighbours.
SSMBENCH_HD constexpr int start_slot(int pair) {
  return pair % kApartPairs * (kTilePairs / kApartPairs) + pair / kApartPairs;
}

/// i = of·kLikely + rest: without a division where `width` is what it mostly is.
struct Split {
  int of, rest;
};
template <int kLikely>
SSMBENCH_HD inline Split split(int i, int width) {
  const auto index = static_cast<unsigned>(i);
  const unsigned of = width == kLikely ? index / kLikely : index / static_cast<unsigned>(width);
  return {static_cast<int>(of), i - static_cast<int>(of) * width};
}

/// Tensor maps of a sequence (hopper_bwd/sequences.cuh), and the bytes of one.
inline constexpr int kSequenceMaps = 7;
inline constexpr std::size_t kMapBytes = 128;

/// Where the heads of a group are summed: from the workspace by a kernel, or in a block that walks through them.
enum class HeadSums { kernel, block };

/// Steps of a (batch, head) that a block takes where there are no products: the chunks of a span.
inline constexpr int kSpanSteps = 64;

/// An element of a head's biases.
struct BiasAt {
  int rank, n;
};

/// A (batch, chunk, head) is a row, a ChunkGrid's.
struct Plan : ChunkGrid {
  std::int64_t batch, seqlen, nheads, groups;
  std::int64_t sequences;  ///< those of a batch, or packed ones
  bool packed;             ///< `chunks` and `spans` are then the most that there can be (sequences.h)
  int ranks, chunk_steps;
  int headdim, dstate, angles, angle_tiles;
  bool halves;             ///< pairs are (i, i + dstate / 2): the workspace has them side by side
  std::int64_t slices;     ///< blocks that share a group's heads; only with HeadSums::block
  std::int64_t per_slice;  ///< heads of a slice; the last may have fewer
  int sums;            ///< of a row: dQ_bias and dK_bias, [rank][state]; then dD, which MIMO has elsewhere
  std::int64_t spans;  ///< of a sequence
  int factor_sums;     ///< of a span: dMIMO_V, dMIMO_Z and dMIMO_Out, [rank][head dim]; then dD

  // Byte offsets into the workspace. States are in the order of state_of().
  std::size_t q, k;        ///< [B, L, R, H, N] io dtype: rotated; only with HeadSums::kernel
  std::size_t dq, dk;      ///< [B, L, R, H, N] f32: their gradients, turned back; only with HeadSums::kernel
  std::size_t slice_sums;  ///< [slice][dK, dQ][B, L, R, G, N] f32; only where there are several slices
  std::size_t phases;      ///< [row][angle tile] tiles of u32: of θ; of SISO with HeadSums::block PhaseTiles
  std::size_t dtheta;      ///< [row][angle tile] tiles of f32
  std::size_t starts;      ///< [row][S] u32: phases before the chunk
  std::size_t steps;       ///< [row][kStepFloats][row of the chunk] f32
  std::size_t owns;        ///< [row][row of the chunk] f32: γ
  std::size_t seeds;     ///< [M, H, P, N] f32: the states that sequences start with; only with initial states
  std::size_t states;    ///< [row][dstate tile] tiles: the states entering the chunk
  std::size_t dstates;   ///< the same of the gradients of the states leaving the chunk
  std::size_t turns;     ///< [row][S] f32: Σ dθ of the chunk; then of later chunks
  std::size_t flows;     ///< [row][kFlowRows][kSteps] f32
  std::size_t row_sums;  ///< [row][sums] f32
  std::size_t first_own;  ///< [M, H] f32: ds of the step before the first; only with initial states
  // Only with packed sequences:
  std::size_t sequence_spans, sequence_begins;  ///< SequenceTable
  std::size_t sequence_maps;                    ///< [M][kSequenceMaps]: of tensors that end with a sequence
  // Only with `halves`:
  std::size_t last_adjoint;   ///< [M, H, P, N] f32: dFinal_SSM_State; only with final states
  std::size_t first_adjoint;  ///< [M, H, P, N] f32: dInput_SSM_State; only with initial states
  // Only with MIMO:
  std::size_t paired_q,
      paired_k;        ///< Q and K in that order; with `halves` and HeadSums::block, whose walks turn them
  std::size_t biases;  ///< [H][Q_bias, K_bias] f32, each in the order of bias_at(); only with HeadSums::block
  std::size_t v,
      dy;  ///< io dtype: V·MIMO_V, and the gradients of y. [B, L, R, H, P]; with HeadSums::block tiles
  std::size_t y,
      dv;  ///< [row][kSteps][kMaxHeaddim] io dtype: y and the gradients of v, both without the skip
  std::size_t span_sums;  ///< [B, span, H][factor_sums] f32
  std::size_t first_ups;  ///< [B, H, R, P] f32: dMIMO_V of Input_V_State; only with initial states
  std::size_t bytes;

  /// `element_bytes`: of the io dtype.
  Plan(const Mamba3& scan, HeadSums head_sums, std::size_t element_bytes = 2)
      : ChunkGrid(
            chunk_grid(scan.batch, rows_of_chunks(scan), scan.nheads, scan.headdim, scan.dstate, kSteps)),
        batch(scan.batch),
        seqlen(scan.seqlen),
        nheads(scan.nheads),
        groups(scan.groups),
        sequences(scan.sequences),
        packed(scan.has_cu_seqlens),
        ranks(static_cast<int>(scan.rank)),
        chunk_steps(kSteps / ranks),
        headdim(static_cast<int>(scan.headdim)),
        dstate(static_cast<int>(scan.dstate)),
        angles(static_cast<int>(scan.angles)),
        angle_tiles(static_cast<int>(ceil_div(scan.angles, kTilePairs))),
        halves(!scan.interleaved),
        slices(1),
        per_slice(nheads / groups),
        sums(2 * ranks * dstate + (scan.is_mimo ? 0 : 1)),
        spans(packed ? chunks / ranks : ceil_div(scan.seqlen, kSpanSteps)),
        factor_sums(3 * ranks * headdim + 1) {
    if (head_sums == HeadSums::block) {
      constexpr TileKind kTiles{kSteps, kStepFloats, 2, false};
      const ChunkedBwdPlan cut =
          plan_chunked_bwd(batch, sequence_rows(), nheads, headdim, dstate, groups, 0, kTiles);
      slices = cut.slices;
      per_slice = cut.per_slice;
    }
    lay_out(scan, head_sums, element_bytes);
  }

  /// Rows (step, rank) of a sequence.
  SSMBENCH_HD std::int64_t sequence_rows() const { return seqlen * ranks; }
  /// First element of an angle tile, and how many it has.
  SSMBENCH_HD int angle_elements() const { return chunk_steps * kTilePairs; }
  SSMBENCH_HD std::int64_t angle_tile(std::int64_t row, int tile) const {
    return (row * angle_tiles + tile) * angle_elements();
  }
  /// Rank and state, in the order of the workspace, of element i of a head's biases: a lane of a fragment has its columns
  /// of 16 states as a vector.
  SSMBENCH_HD BiasAt bias_at(int i) const {
    const int of_lane = i % 4;
    const int lane = i / 4 % 4;
    const int rank = i / 16 % ranks;
    return {rank, i / 16 / ranks * 16 + of_lane / 2 * 8 + lane * 2 + of_lane % 2};
  }
  /// The state of the tensors that state n of the workspace is.
  SSMBENCH_HD int state_of(int n) const { return halves ? n / 2 + n % 2 * (dstate / 2) : n; }

 private:
  /// Rows (step, rank) of a sequence, or of all chunks of packed ones.
  static constexpr std::int64_t rows_of_chunks(const Mamba3& scan) {
    return scan.has_cu_seqlens ? most_sequence_spans(scan.seqlen, scan.sequences) * kSteps * scan.rank
                               : scan.seqlen * scan.rank;
  }

  void lay_out(const Mamba3& scan, HeadSums head_sums, std::size_t io) {
    // MIMO's walks leave v and dy for the gradient kernel alone, a chunk of a head in one piece.
    const bool by_chunks = scan.is_mimo && head_sums == HeadSums::block;
    const std::int64_t states_of_all = tiles() * kSteps * kSteps;
    const std::int64_t of_heads =
        head_sums == HeadSums::kernel ? batch * sequence_rows() * nheads * dstate : 0;
    const bool has_tiles = head_sums == HeadSums::block && !scan.is_mimo;  // of phases
    const std::int64_t angle_elements_of_all = rows * angle_tiles * angle_elements();
    const std::int64_t heads = sequences * nheads;
    const std::int64_t starting = scan.has_initial_states ? heads : 0;
    const std::int64_t ending = scan.has_final_states ? heads : 0;
    const std::int64_t state = std::int64_t{headdim} * dstate;
    const std::int64_t paired = scan.is_mimo && halves && head_sums == HeadSums::block
                                    ? batch * sequence_rows() * groups * dstate
                                    : 0;
    const std::int64_t inputs = scan.is_mimo ? batch * sequence_rows() * nheads * headdim : 0;
    const std::int64_t outputs = scan.is_mimo ? rows * kSteps * kMaxHeaddim : 0;
    const std::int64_t raised = by_chunks ? rows * kSteps * kSteps : inputs;
    WorkspaceLayout layout;
    q = layout.take(of_heads, io);
    k = layout.take(of_heads, io);
    dq = layout.take(of_heads, sizeof(float));
    dk = layout.take(of_heads, sizeof(float));
    slice_sums =
        layout.take(slices > 1 ? slices * 2 * batch * sequence_rows() * groups * dstate : 0, sizeof(float));
    phases = has_tiles ? layout.take(rows * angle_tiles, sizeof(PhaseTile))
                       : layout.take(angle_elements_of_all, sizeof(float));
    dtheta = layout.take(angle_elements_of_all, sizeof(float));
    starts = layout.take(has_tiles ? 0 : rows * angles, sizeof(float));
    steps = layout.take(rows * kStepFloats * kSteps, sizeof(float));
    owns = layout.take(rows * kSteps, sizeof(float));
    seeds = layout.take(starting * state, sizeof(float));
    states = layout.take(states_of_all, io);
    dstates = layout.take(states_of_all, io);
    turns = layout.take(rows * angles, sizeof(float));
    flows = layout.take(rows * kFlowRows * kSteps, sizeof(float));
    row_sums = layout.take(rows * sums, sizeof(float));
    first_own = layout.take(starting, sizeof(float));
    sequence_spans = layout.take(packed ? spans : 0, sizeof(SequenceSpan));
    sequence_begins = layout.take(packed ? sequences + 1 : 0, sizeof(std::int32_t));
    sequence_maps = layout.take(packed ? sequences * kSequenceMaps : 0, kMapBytes);
    last_adjoint = layout.take(halves ? ending * state : 0, sizeof(float));
    first_adjoint = layout.take(halves ? starting * state : 0, sizeof(float));
    paired_q = layout.take(paired, io);
    paired_k = layout.take(paired, io);
    biases = layout.take(by_chunks ? nheads * 2 * ranks * dstate_tiles * kSteps : 0, sizeof(float));
    v = layout.take(raised, io);
    dy = layout.take(raised, io);
    y = layout.take(outputs, io);
    dv = layout.take(outputs, io);
    span_sums = layout.take(scan.is_mimo ? batch * nheads * spans * factor_sums : 0, sizeof(float));
    first_ups = layout.take(scan.is_mimo ? starting * ranks * headdim : 0, sizeof(float));
    bytes = layout.bytes();
  }
};

/// The workspace as the kernels take it.
struct Workspace {
  void *q, *k;
  std::uint32_t* phases;
  std::uint32_t* starts;
  float* dtheta;
  float *dq, *dk, *slice_sums;
  float *steps, *owns, *seeds;
  void *states, *dstates;
  float *turns, *flows, *row_sums, *first_own;
  SequenceTable table;  ///< null where sequences are not packed
  void* sequence_maps;
  float *last_adjoint, *first_adjoint;
  void *paired_q, *paired_k;
  float* biases;
  void *v, *dy, *y, *dv;
  float *span_sums, *first_ups;

  Workspace(const Plan& plan, void* memory) {
    auto* const base = static_cast<unsigned char*>(memory);
    const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(base + offset); };
    q = base + plan.q;
    k = base + plan.k;
    dq = floats(plan.dq);
    dk = floats(plan.dk);
    slice_sums = floats(plan.slice_sums);
    phases = reinterpret_cast<std::uint32_t*>(base + plan.phases);
    dtheta = floats(plan.dtheta);
    starts = reinterpret_cast<std::uint32_t*>(base + plan.starts);
    steps = floats(plan.steps);
    owns = floats(plan.owns);
    seeds = floats(plan.seeds);
    states = base + plan.states;
    dstates = base + plan.dstates;
    turns = floats(plan.turns);
    flows = floats(plan.flows);
    row_sums = floats(plan.row_sums);
    first_own = floats(plan.first_own);
    table = {};
    if (plan.packed)
      table = {reinterpret_cast<SequenceSpan*>(base + plan.sequence_spans),
               reinterpret_cast<std::int32_t*>(base + plan.sequence_begins)};
    sequence_maps = base + plan.sequence_maps;
    last_adjoint = floats(plan.last_adjoint);
    first_adjoint = floats(plan.first_adjoint);
    paired_q = base + plan.paired_q;
    paired_k = base + plan.paired_k;
    biases = floats(plan.biases);
    v = base + plan.v;
    dy = base + plan.dy;
    y = base + plan.y;
    dv = base + plan.dv;
    span_sums = floats(plan.span_sums);
    first_ups = floats(plan.first_ups);
  }
};

/// A PhaseTile of a row.
SSMBENCH_HD inline PhaseTile& phase_tile(const Plan& plan, const Workspace& work, std::int64_t row,
                                         int tile) {
  return reinterpret_cast<PhaseTile*>(work.phases)[row * plan.angle_tiles + tile];
}

/// The chunks of a sequence, counted through all batches.
struct ChunkRun {
  std::int64_t first, count;
};
SSMBENCH_HD inline ChunkRun chunks_of(const Plan& plan, const Workspace& work, std::int64_t sequence) {
  if (!plan.packed) return {sequence * plan.chunks, plan.chunks};
  const std::int32_t* const begins = work.table.begins + sequence;
  const std::int64_t spans = begins[1] - begins[0];
  if (plan.ranks == 1 || spans == 0) return {begins[0] * plan.ranks, spans};
  const int of_last = (work.table.spans[begins[1] - 1].steps + plan.chunk_steps - 1) / plan.chunk_steps;
  return {begins[0] * plan.ranks, (spans - 1) * plan.ranks + of_last};
}
/// The spans of all sequences, and their chunks, with those that the last spans of packed ones lack.
SSMBENCH_HD inline std::int64_t all_spans(const Plan& plan, const Workspace& work) {
  return plan.packed ? work.table.begins[plan.sequences] : plan.batch * plan.spans;
}
SSMBENCH_HD inline std::int64_t all_chunks(const Plan& plan, const Workspace& work) {
  return plan.packed ? all_spans(plan, work) * plan.ranks : plan.batch * plan.chunks;
}

/// Where a row is.
struct Row {
  std::int64_t index, b, chunk, head, group;
  std::int64_t sequence;
  std::int64_t start;  ///< first step, of batch b
  int steps;           ///< that exist
  bool opens, closes;  ///< has the sequence's first step, its last one

  /// Rows are blocks of a grid, so that 32 bits will do for the divisions. (Of unsigned numbers that it widens, the
  /// compiler would make 64-bit divisions.) `table`: of packed sequences, or null.
  SSMBENCH_HD Row(const Plan& plan, std::int64_t row, const SequenceSpan* table = nullptr) : index(row) {
    const int nheads = static_cast<int>(plan.nheads);
    const int chunks = static_cast<int>(plan.chunks);
    const int of_heads = static_cast<int>(row) / nheads;
    b = of_heads / chunks;
    chunk = of_heads % chunks;
    const int of_row = static_cast<int>(row) % nheads;
    head = of_row;
    group = of_row / (nheads / static_cast<int>(plan.groups));
    if (table == nullptr)
      place(plan, chunk * plan.chunk_steps, plan.chunk_steps);
    else
      place(chunk_of_span(table[static_cast<int>(chunk) / plan.ranks], static_cast<int>(chunk) % plan.ranks,
                          plan.chunk_steps));
  }

  /// (b, t, head) of [B, L, H] and (b, head, t) of [B, H, L].
  SSMBENCH_HD std::int64_t step(const Plan& plan, int t) const {
    return (b * plan.seqlen + start + t) * plan.nheads + head;
  }
  SSMBENCH_HD std::int64_t scalar(const Plan& plan, int t) const {
    return (b * plan.nheads + head) * plan.seqlen + start + t;
  }
  /// Row i = (t, rank) of the chunk: that of [B, L, R, H], and the first element of that of Q or K.
  SSMBENCH_HD std::int64_t ranked(const Plan& plan, int i) const {
    return ((b * plan.seqlen + start) * plan.ranks + i) * plan.nheads + head;
  }
  SSMBENCH_HD std::int64_t vector(const Plan& plan, int i) const {
    return (((b * plan.seqlen + start) * plan.ranks + i) * plan.groups + group) * plan.dstate;
  }
  /// The first element of row i in y and dv.
  SSMBENCH_HD std::int64_t left(int i) const { return (index * kSteps + i) * kMaxHeaddim; }
  SSMBENCH_HD int rows(const Plan& plan) const { return steps * plan.ranks; }

 protected:
  Row() = default;
  SSMBENCH_HD void place(const SequenceSpan& of) {
    sequence = of.sequence;
    start = of.start;
    steps = of.steps;
    opens = (of.ends & SequenceSpan::kOpens) != 0;
    closes = (of.ends & SequenceSpan::kCloses) != 0;
  }
  /// Of at most `most` steps from `first` on, where there is no table.
  SSMBENCH_HD void place(const Plan& plan, std::int64_t first, int most) {
    sequence = b;
    start = first;
    steps = static_cast<int>(plan.seqlen - start < most ? plan.seqlen - start : most);
    opens = start == 0;
    closes = start + steps == plan.seqlen;
  }
};

/// The chunks of a span as if they were one: the row of the first one, with the steps of all.
struct Span : Row {
  /// With two divisions: a block has few more instructions where there are no products.
  SSMBENCH_HD Span(const Plan& plan, std::int64_t span, const SequenceSpan* table = nullptr) {
    const int nheads = static_cast<int>(plan.nheads);
    const int spans = static_cast<int>(plan.spans);
    const int of_heads = static_cast<int>(span) / nheads;
    const int of_row = static_cast<int>(span) - of_heads * nheads;
    const int of_batches = of_heads / spans;
    const int of_batch = of_heads - of_batches * spans;
    b = of_batches;
    chunk = of_batch * plan.ranks;
    head = of_row;
    group = plan.groups == 1 ? 0 : of_row / (nheads / static_cast<int>(plan.groups));
    index = plan.row(b, chunk, head, nheads);
    if (table == nullptr)
      place(plan, std::int64_t{of_batch} * kSpanSteps, kSpanSteps);
    else
      place(table[of_batch]);
  }
  /// The index of the row of a chunk of the span.
  SSMBENCH_HD std::int64_t row_of(const Plan& plan, int chunk_of_span) const {
    return index + chunk_of_span * plan.nheads;
  }
};

}  // namespace ssmbench::mamba3_bwd
