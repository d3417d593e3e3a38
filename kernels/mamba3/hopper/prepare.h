#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"
#include "kernels/common/workspace.h"
#include "kernels/mamba3/args.h"
#include "kernels/ssd_chunk_scan/hopper/packed.h"
#include "model/dtype.h"
#include "model/launch.h"

// What makes a scan of Mamba-3 one of Mamba-2's kind, with B and C of each head: q and k with their biases,
// rotated, and what inputs weigh. Packed sequences are cut into parts of their own (packed.h). The picture of
// the kernels is in prepare.cuh. Sizes are host and device, so that the CPU tests cover them.

namespace ssmbench::mamba3_hopper {

inline constexpr int kSegment = 64;      ///< steps of a block of the rotating kernel
inline constexpr int kSpanSegments = 4;  ///< segments of a block of the kernel that adds angles up
inline constexpr int kSpan = kSegment * kSpanSegments;
inline constexpr int kPrepareThreads = 256;
inline constexpr int kHeadsAtOnce = 8;  ///< of a block, at most
inline constexpr std::int64_t kMaxPreparedStates = 128;

/// One packed sequence is a batch of one.
constexpr bool are_packed(const Mamba3& scan) {
  return scan.has_cu_seqlens && scan.sequences > 1;
}

/// Parts of `each` steps: of a sequence, or of all packed ones.
constexpr std::int64_t prepare_parts(const Mamba3& scan, int each) {
  return are_packed(scan) ? ssd_hopper::packed_slots(scan.seqlen, scan.sequences, each)
                          : ceil_div(scan.seqlen, each);
}

/// How both kernels share a problem out: a block has some heads of some steps of a sequence.
struct PrepareGrid {
  int angles;           ///< rotated pairs
  int row;              ///< those of a step in shared memory: a multiple of 4
  int heads;            ///< of a block
  int slices;           ///< of `heads` heads
  int segments, spans;  ///< prepare_parts()

  /// A head's columns of angles are `row` apart, and a thread has one of them.
  constexpr explicit PrepareGrid(const Mamba3& scan)
      : angles(static_cast<int>(scan.angles)),
        row(static_cast<int>(ceil_div(scan.angles, 4) * 4)),
        heads(row * kHeadsAtOnce <= kPrepareThreads ? kHeadsAtOnce : kPrepareThreads / row),
        slices(static_cast<int>(ceil_div(scan.nheads, heads))),
        segments(static_cast<int>(prepare_parts(scan, kSegment))),
        spans(static_cast<int>(prepare_parts(scan, kSpan))) {}

  /// Of the rotating kernel: angles of all steps and heads, and DT.
  constexpr int shared_bytes() const { return heads * kSegment * (row + 1) * 4; }
};

/// Slice, segment (or span) and batch of a block, slices innermost: neighbours write neighbouring rows.
struct PrepareBlock {
  int slice, part, batch;
};
SSMBENCH_HD constexpr PrepareBlock prepare_block(std::int64_t index, int slices, int parts) {
  const std::int64_t outer = index / slices;
  return {static_cast<int>(index % slices), static_cast<int>(outer % parts), static_cast<int>(outer / parts)};
}

/// The states of four neighbouring pairs 4·quad … 4·quad + 3 of a row of `dstate` states: first ones and
/// second ones of "halves", and of "interleaved" neighbours.
SSMBENCH_HD constexpr int first_of_quad(int quad, bool interleaved) {
  return (interleaved ? 8 : 4) * quad;
}
/// Where the other four states lie.
SSMBENCH_HD constexpr int rest_of_quad(int quad, bool interleaved, int dstate) {
  return interleaved ? 8 * quad + 4 : dstate / 2 + 4 * quad;
}

/// What is prepared, in the device's memory. Rows are (step, rank).
struct PreparedRows {
  void* q;                 ///< (B, L, R, H, N) io dtype
  void* k;                 ///< (B, L, R, H, N) io dtype
  const float* log_decay;  ///< (B, H, L): ADT itself
  float* s;      ///< (B, H, L): γ_t + (1 − λ_{t+1})·DT_{t+1}, what V_t ⊗ k_t weighs for later steps
  float* gamma;  ///< (B, H, L): what it weighs for its own
  /// (M, H, P, N): Input_SSM_State with what the first step adds of the step before; null without input
  /// states.
  float* seed;
  std::int32_t* row_borders;  ///< (M + 1,): cu_seqlens in rows; with ranks, else unset
  /// Angles as 32-bit integers (phase.h). Sums of the increments, for each head and rotated pair: of a span,
  /// and of those segments of its span that come before a segment. Unset where there is one segment.
  std::uint32_t* of_spans;     ///< (B, spans, H, S)
  std::uint32_t* of_segments;  ///< (B, segments, H, S)
};

/// Where they lie in the workspace, in bytes.
struct PreparedLayout {
  std::size_t q, k, s, gamma, seed, row_borders, of_spans, of_segments, bytes;

  /// Without `has_rows` there are no q, k and sums of angles, as launch_weights() needs none.
  constexpr PreparedLayout(const Mamba3& scan, bool has_rows) {
    WorkspaceLayout layout;
    const PrepareGrid grid(scan);
    const std::int64_t rows = has_rows ? scan.batch * scan.seqlen * scan.nheads * scan.rank * scan.dstate : 0;
    const std::int64_t steps = scan.batch * scan.seqlen * scan.nheads;
    const std::int64_t columns = has_rows ? scan.batch * scan.nheads * scan.angles : 0;
    q = layout.take(rows, 2);
    k = layout.take(rows, 2);
    s = layout.take(steps, sizeof(float));
    gamma = layout.take(steps, sizeof(float));
    seed =
        layout.take(scan.has_initial_states ? scan.sequences * scan.nheads * scan.headdim * scan.dstate : 0,
                    sizeof(float));
    row_borders =
        layout.take(are_packed(scan) && scan.is_mimo ? scan.sequences + 1 : 0, sizeof(std::int32_t));
    of_spans = layout.take(columns * grid.spans, sizeof(std::uint32_t));
    of_segments = layout.take(columns * grid.segments, sizeof(std::uint32_t));
    bytes = layout.bytes();
  }

  PreparedRows at(const Mamba3Args& args, void* workspace) const {
    auto* const base = static_cast<unsigned char*>(workspace);
    const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(base + offset); };
    const auto phases = [&](std::size_t offset) { return reinterpret_cast<std::uint32_t*>(base + offset); };
    return {.q = base + q,
            .k = base + k,
            .log_decay = args.adt,
            .s = floats(s),
            .gamma = floats(gamma),
            .seed = args.scan.has_initial_states ? floats(seed) : nullptr,
            .row_borders = reinterpret_cast<std::int32_t*>(base + row_borders),
            .of_spans = phases(of_spans),
            .of_segments = phases(of_segments)};
  }
};

/// Phases (phase.h) for the scan that rotates q and k itself.
struct ChunkPhases {
  std::uint16_t* of_steps;  ///< (B, L, H, S): behind steps, from the begin of their chunks of 64; 2^-16 turns
  std::uint32_t* of_chunks;  ///< (phase_chunks(), H, S): what chunks add; 2^-32 turns
};
constexpr std::int64_t phase_chunks(const Mamba3& scan) {
  return scan.batch * prepare_parts(scan, kSegment);
}

/// The launches that write s, gamma, seed and Final_V_State; phases, too, where S is a multiple of 4 and the form
/// SISO; and all that is prepared with Final_Angle_State and Final_K_State, too. Final states as far as `args`
/// has them; Final_K_State of packed sequences without steps is written with Final_V_State. Tensors of bf16 or
/// f16 that are aligned to 16 bytes, dstate a multiple of 8, at most 128. They throw DeviceError when they
/// cannot be launched.
Launch launch_weights(const Mamba3Args& args, DType dtype, const PreparedRows& to);
Launch launch_phases(const Mamba3Args& args, DType dtype, const PreparedRows& to, const ChunkPhases& phases);
Launch launch_prepare(const Mamba3Args& args, DType dtype, const PreparedRows& to);
/// The launch that writes row_borders.
Launch launch_row_borders(const Mamba3Args& args, const PreparedRows& to);

}  // namespace ssmbench::mamba3_hopper
