// What cuda-chunked and cuda-chunked-f32 share: the choice of passes, and those that do not run their kernel.

#include "base/errors.h"
#include "kernels/ssd_chunk_scan/chunked/launch.h"

#include "base/cuda_attribute.h"
#include "kernels/common/workspace.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked/stops.h"
#include "kernels/ssd_chunk_scan/stored_states.cuh"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench {
namespace {

constexpr int kPassThreads = 256;

ChunkedPlan plan_of(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  const std::int64_t steps = sequences.packed ? ceil_div(scan.seqlen, sequences.count) : scan.seqlen;
  return plan_chunked(sequences.count, scan.nheads, scan.headdim, steps);
}

/// Second pass: from end states of segments that started from nothing to the states that enter the segments
/// after them. One thread per element of a head's state; neighbours are neighbours in memory.
__global__ void __launch_bounds__(kPassThreads)
    pass_states_kernel(const SsdInputs in, const ChunkedPass pass) {
  const std::int64_t per_head = in.headdim * in.dstate;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kPassThreads + threadIdx.x;
  const std::int64_t head = index / per_head;
  if (head >= pass.sequences.count * in.nheads) return;
  const std::int64_t cuts = pass.plan.segments - 1;
  float state = in.initial_states == nullptr ? 0.0F : load_state(in.initial_states, in.state_dtype, index);
  for (std::int64_t cut = head * cuts; cut < (head + 1) * cuts; ++cut) {
    float& here = pass.states[cut * per_head + index % per_head];
    state = pass.decays[cut] * state + here;
    here = state;
  }
}

/// Orders the ends of pieces (stops.h).
__global__ void __launch_bounds__(kPassThreads)
    order_pieces_kernel(const PieceEnds ends, const Pieces pieces) {
  for (std::int64_t i = threadIdx.x; i < ends.count(); i += kPassThreads) pieces.put(ends, i);
}

/// From end states of pieces that started from nothing to the states at stops. One thread per element of a
/// head's state.
__global__ void __launch_bounds__(kPassThreads)
    walk_pieces_kernel(const SsdInputs in, const ChunkedPass pass, const Pieces pieces, void* states) {
  const std::int64_t per_head = in.headdim * in.dstate;
  const std::int64_t of_states = in.nheads * per_head;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kPassThreads + threadIdx.x;
  if (index >= of_states) return;
  const std::int64_t head = index / per_head;
  const auto initial = [&](std::int64_t sequence) {
    return in.initial_states == nullptr
               ? 0.0F
               : load_state(in.initial_states, in.state_dtype, sequence * of_states + index);
  };
  std::int64_t sequence = 0;
  float state = initial(0);
#pragma unroll 4  // loads in flight together
  for (std::int64_t piece = 0; piece < pass.sequences.count; ++piece) {
    const int stop = pieces.stop[piece];
    state = pass.decays[piece * in.nheads + head] * state + pass.states[piece * of_states + index];
    if (stop >= 0)
      store_state(states, in.state_dtype, stop * of_states + index, state);
    else if (piece + 1 < pass.sequences.count)
      state = initial(++sequence);
  }
}

bool aligned(const void* pointer, std::int64_t row_bytes, std::int64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0 && row_bytes % alignment == 0;
}

/// The workspace, in bytes from its begin. Arrays of pieces are there if there are stops.
struct ChunkedRoom {
  std::size_t states, decays, piece_states, piece_decays, piece_ends, piece_stops, bytes;

  explicit ChunkedRoom(const Problem& problem) {
    const SsdChunkScan scan(problem);
    const SsdSequences sequences(problem);
    const std::int64_t heads = sequences.count * scan.nheads * (plan_of(problem).segments - 1);
    const std::int64_t pieces = sequences.stops > 0 ? sequences.count + sequences.stops : 0;
    const std::int64_t piece_heads = pieces * scan.nheads;
    const std::int64_t per_head = scan.headdim * scan.dstate;
    WorkspaceLayout layout;
    states = layout.take(heads * per_head, sizeof(float));
    decays = layout.take(heads, sizeof(float));
    piece_states = layout.take(piece_heads * per_head, sizeof(float));
    piece_decays = layout.take(piece_heads, sizeof(float));
    piece_ends = layout.take(pieces == 0 ? 0 : pieces + 1, sizeof(std::int32_t));
    piece_stops = layout.take(pieces, sizeof(std::int32_t));
    bytes = layout.bytes();
  }
};

template <class T>
T* at_byte(void* workspace, std::size_t byte) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + byte);
}

ChunkedPass pass_for(const Problem& problem, const SsdArgs& args, const SsdSequenceTable& sequences,
                     void* workspace) {
  const SsdChunkScan scan(problem);
  const ChunkedPlan plan = plan_of(problem);
  const auto element_bytes = static_cast<std::int64_t>(size_of(problem.dtype()));
  const std::int64_t row = scan.headdim * element_bytes;
  const std::int64_t projection = scan.dstate * element_bytes;
  const ChunkedRoom room(problem);
  return {.plan = plan,
          .sequences = sequences,
          .segments = plan.segments,
          .states_only = false,
          .states = at_byte<float>(workspace, room.states),
          .decays = at_byte<float>(workspace, room.decays),
          .rows_aligned = aligned(args.in.x, row, 16),
          .projections_aligned = aligned(args.in.B, projection, 16) && aligned(args.in.C, projection, 16),
          .pairs_aligned =
              aligned(args.in.z, row, 2 * element_bytes) && aligned(args.out, row, 2 * element_bytes)};
}

/// The launches that make the states at stops; `whole`: the pass that makes the outputs.
Launch stops_launch(const Problem& problem, const TensorSet& tensors, const SsdArgs& args,
                    const ChunkedPass& whole, const ChunkedVariant& variant, void* workspace) {
  const SsdStops stops = bind_ssd_stops(problem, tensors);
  const ChunkedRoom room(problem);
  const PieceEnds ends{whole.sequences.cu_seqlens, stops.states_at, whole.sequences.count, stops.count};
  const Pieces pieces{at_byte<std::int32_t>(workspace, room.piece_ends),
                      at_byte<std::int32_t>(workspace, room.piece_stops)};
  ChunkedPass pass = whole;
  pass.plan.segments = pass.segments = 1;
  pass.sequences = {ends.count(), whole.sequences.seqlen, pieces.ends};
  pass.states_only = true;
  pass.states = at_byte<float>(workspace, room.piece_states);
  pass.decays = at_byte<float>(workspace, room.piece_decays);
  const auto blocks = static_cast<unsigned>(ends.count() * args.in.nheads * pass.plan.row_tiles);
  const auto walk_blocks =
      static_cast<unsigned>(ceil_div(args.in.nheads * args.in.headdim * args.in.dstate, kPassThreads));
  return [=](void* launch_stream) {
    auto* stream = static_cast<cudaStream_t>(launch_stream);
    order_pieces_kernel<<<1, kPassThreads, 0, stream>>>(ends, pieces);
    check_cuda(cudaGetLastError());
    variant.kernel<<<blocks, variant.threads, variant.shared_bytes, stream>>>(args, pass);
    check_cuda(cudaGetLastError());
    walk_pieces_kernel<<<walk_blocks, kPassThreads, 0, stream>>>(args.in, pass, pieces, stops.states);
    check_cuda(cudaGetLastError());
  };
}

/// Lets blocks have their shared memory. Throws DeviceError where the device has too little, or no tensor
/// cores that the kernel can use.
void prepare(const ChunkedVariant& variant) {
  if (cuda_attribute(cudaDevAttrComputeCapabilityMajor) < 8)
    throw DeviceError("needs compute capability 8.0");
  const int most_shared = cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (variant.shared_bytes > most_shared)
    throw DeviceError("needs " + std::to_string(variant.shared_bytes) +
                      " bytes of shared memory per block; the device has " + std::to_string(most_shared));
  check_cuda(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.shared_bytes));
}

}  // namespace

std::optional<std::string> chunked_unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const ChunkedPlan plan = plan_of(problem);
  const std::int64_t sequences = SsdSequences(problem).count + SsdSequences(problem).stops;
  constexpr std::int64_t kMaxRow = 2147483647;  // strides between steps are 32-bit
  if (scan.nheads > kMaxRow / scan.headdim || scan.groups > kMaxRow / scan.dstate)
    return "needs at most 2147483647 elements per step";
  const std::int64_t per_sequence = scan.nheads * plan.row_tiles * plan.segments;
  if (scan.nheads > kMaxGridX / (plan.row_tiles * plan.segments) || sequences > kMaxGridX / per_sequence)
    return "needs at most 2147483647 blocks: one per sequence, head and 64 of headdim";
  return {};
}

std::size_t chunked_workspace_bytes(const Problem& problem) {
  return ChunkedRoom(problem).bytes;
}

Launch chunked_launch(const Problem& problem, const TensorSet& tensors, void* workspace,
                      const ChunkedVariant& variant) {
  if (auto reason = chunked_unsupported(problem)) throw ContractError(*reason);
  const SsdArgs args = bind_ssd(problem, tensors);
  const SsdChunkScan scan(problem);
  const SsdSequenceTable sequences = bind_ssd_sequences(problem, tensors);
  const ChunkedPass whole = pass_for(problem, args, sequences, workspace);
  ChunkedPass ends = whole;
  ends.states_only = true;
  ends.segments = whole.segments - 1;
  prepare(variant);
  const std::int64_t heads = sequences.count * scan.nheads;
  const auto blocks = [&](std::int64_t segments) {
    return static_cast<unsigned>(heads * whole.plan.row_tiles * segments);
  };
  const auto end_blocks = blocks(ends.segments);
  const auto whole_blocks = blocks(whole.segments);
  const auto pass_blocks = static_cast<unsigned>(ceil_div(heads * scan.headdim * scan.dstate, kPassThreads));
  Launch make_stops;
  if (SsdSequences(problem).stops > 0)
    make_stops = stops_launch(problem, tensors, args, whole, variant, workspace);
  return [=](void* launch_stream) {
    auto* stream = static_cast<cudaStream_t>(launch_stream);
    if (ends.segments > 0) {
      variant.kernel<<<end_blocks, variant.threads, variant.shared_bytes, stream>>>(args, ends);
      check_cuda(cudaGetLastError());
      pass_states_kernel<<<pass_blocks, kPassThreads, 0, stream>>>(args.in, whole);
      check_cuda(cudaGetLastError());
    }
    variant.kernel<<<whole_blocks, variant.threads, variant.shared_bytes, stream>>>(args, whole);
    check_cuda(cudaGetLastError());
    if (make_stops) make_stops(launch_stream);
  };
}

}  // namespace ssmbench
