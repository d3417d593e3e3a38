#pragma once

// Packed sequences in the gradients of cuda-hopper: each sequence has tensor maps of its own, whose steps end
// with it, so that its last chunk is loaded and stored as that of a batch is. A kernel makes them and the
// table of spans.

#include "kernels/common/hopper/bounded_maps.cuh"
#include "kernels/mamba3/tensor_bwd/plan.h"
#include "kernels/mamba3/tensor_bwd/threads.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"

namespace ssmbench::mamba3_bwd {

namespace ssd = ssd_hopper_bwd;

static_assert(sizeof(ssd::GradientMaps) == kSequenceMaps * kMapBytes);

/// Null where sequences are not packed.
__device__ __forceinline__ const ssd::GradientMaps* sequence_maps(const Workspace& work) {
  return work.table.spans == nullptr ? nullptr : static_cast<const ssd::GradientMaps*>(work.sequence_maps);
}

__device__ __forceinline__ SequenceSpan load_span(const SequenceSpan* span) {
  const int4 of = __ldg(reinterpret_cast<const int4*>(span));
  return {of.x, of.y, of.z, of.w};
}

inline constexpr int kSequenceThreads = 256;

/// Sets of maps: a bit for each, by its index in GradientMaps.
enum : unsigned { kMapsOfInputs = 0x0D, kMapsOfGates = 0x12, kMapsOfVectors = 0x60 };

/// The first block makes the table, of at most `spans`; a thread of the others makes a map that `exist`, an OR
/// of sets, contains. `ranks`: rows of a step.
__global__ void __launch_bounds__(kSequenceThreads)
    mamba3_sequences_kernel(const __grid_constant__ ssd::GradientMaps maps, unsigned exist,
                            const std::int32_t* cu_seqlens, std::int64_t sequences, std::int64_t spans,
                            int ranks, const SequenceTable table, void* to) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ std::int32_t runs[kSequenceRuns];
  if (blockIdx.x == 0)
    return make_sequence_table(cu_seqlens, sequences, spans, table, runs, Threads<kSequenceThreads>());
  const std::int64_t i = (std::int64_t{blockIdx.x} - 1) * kSequenceThreads + threadIdx.x;
  if (i >= sequences * kSequenceMaps) return;
  const std::int64_t sequence = i / kSequenceMaps;
  const auto which = static_cast<int>(i - sequence * kSequenceMaps);
  if ((exist >> which & 1) == 0) return;
  constexpr int kTime = 2;
  hopper::store_bounded_map<kTime>(static_cast<CUtensorMap*>(to)[i], (&maps.x)[which],
                                   cu_seqlens[sequence + 1] * ranks);
#else
  __trap();
#endif
}

}  // namespace ssmbench::mamba3_bwd
