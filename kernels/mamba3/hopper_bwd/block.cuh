#pragma once

#include "kernels/common/hardware.h"
#include "kernels/mamba3/hopper_bwd/sequences.cuh"
#include "kernels/mamba3/tensor_bwd/plan.h"
#include "kernels/mamba3/tensor_bwd/prepare.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/block.cuh"

// What the roles of a block of the Hopper gradient kernel share: arguments, shared memory, rings. Parts, places and
// fragments are those of SSD's (ssd_chunk_scan/hopper_bwd/block.cuh).

namespace ssmbench::mamba3_bwd {

using ssd::kTile;
using ssd::kWarpsOfGroup;

template <class FormOfRows, int kStates, bool kGated>
struct HopperTraits : ssd::Traits<__nv_bfloat16, kStates, kGated> {
  using Form = FormOfRows;
  static constexpr int kRanks = Form::kRanks;
  static constexpr bool kIsMimo = Form::kIsMimo;
};

/// Arguments of the kernel. In those of SSD Q and K are C and B (with MIMO q and k), dQ and dK are dC and dB.
struct HopperArgs : ssd::GradientArgs {
  Workspace work;
  int angles, angle_tiles;
  int sums;                      ///< of a row
  bool halves;                   ///< Plan's
  const float* final_k;          ///< dFinal_K_State or null
  const void* final_v;           ///< dFinal_V_State or null
  const float *q_bias, *k_bias;  ///< (H, N)
};

/// Where a block works, whose sequences may be packed. Steps are rows (step, rank).
template <int kRanks>
struct RankedSequencePlace : ssd::BlockPlace {
  int sequence;
  int last;  ///< the sequence's last row, from the chunk's first on; behind the chunk where that has it not

  __device__ explicit RankedSequencePlace(const HopperArgs& args) : BlockPlace(args), sequence(b) {
    if (args.work.table.spans == nullptr) {
      last = static_cast<int>(args.bwd.in.seqlen - 1) - start;
      return;
    }
    const SequenceSpan of =
        chunk_of_span(load_span(args.work.table.spans + chunk / kRanks), chunk % kRanks, kSteps / kRanks);
    start = of.start * kRanks;
    steps_valid = of.steps * kRanks;
    sequence = of.sequence;
    last = (of.ends & SequenceSpan::kCloses) != 0 ? steps_valid - 1 : kSteps;
  }
  /// Of the tensors that are loaded, for the thread that loads, and of those that are stored.
  __device__ const ssd::GradientMaps& loaded_maps(const HopperArgs& args) const {
    const ssd::GradientMaps* const all = sequence_maps(args.work);
    if (all == nullptr) return args;
    const ssd::GradientMaps& maps = all[sequence];
    for (const CUtensorMap* map : {&maps.x, &maps.z, &maps.dout, &maps.B, &maps.C}) hopper::acquire_map(*map);
    return maps;
  }
  __device__ const ssd::GradientMaps& stored_maps(const HopperArgs& args) const {
    const ssd::GradientMaps* const all = sequence_maps(args.work);
    if (all == nullptr) return args;
    const ssd::GradientMaps& maps = all[sequence];
    for (const CUtensorMap* map : {&maps.dx, &maps.dz}) hopper::acquire_map(*map);
    return maps;
  }
};
using SequencePlace = RankedSequencePlace<1>;

/// What a head leaves for write_flows, of each row.
template <int kStates>
struct alignas(128) HeadFlows {
  float out[kSteps];   ///< terms that end at the row, but for the column sums
  float into[kSteps];  ///< V·(S'·k)·leave
  float column[kWarpsOfGroup]
              [kSteps];    ///< column sums of M ∘ X over w, without the diagonal, of 16 rows each
  float diagonal[kSteps];  ///< of the same, row sums of blocks on the diagonal
  float biases[2][kWarpsOfGroup][kStates];  ///< dq, dk, turned back: sums of 16 rows each
  float turns[kWarpsOfGroup][kStates / 2];  ///< dθ: the same
  float skipped[kSteps];                    ///< dy·V
};

/// A thread's pairs of an angle tile.
inline constexpr int kOwnPairs = 16;
inline constexpr int kOwnVectors = kOwnPairs / kAngleVector;
/// Vectors of an angle tile between those of a thread, and its first one. The rows of a step share them.
template <int kRanks>
inline constexpr int kVectorsApart = ssd::kGroupThreads / kRanks;
template <int kRanks>
__device__ __forceinline__ int own_vector(int thread) {
  if constexpr (kRanks == 1) return thread;
  return thread / 32 * (32 / kRanks) + thread % 32 / 4 / kRanks * 4 + thread % 4;
}

/// Offsets in bytes; tiles are aligned to 1024.
template <class T>
struct HopperLayout {
  static constexpr int kHalves = T::kStates / 64;
  static constexpr int kStages = 2;  ///< of V, dout, Z, q, k, S, S' and the steps
  static constexpr int kDepth = 2;   ///< of flows
  static constexpr int kVectors = kHalves * kTile;
  static constexpr int kInputs = 3 * kTile;  ///< of V, dout and Z
  static constexpr int kStage = kInputs + 4 * kVectors;
  static constexpr int kOwnsBytes = 4 * kSteps;
  /// What is loaded, but for Q, K and their biases.
  static constexpr int kStageBytes = (2 + T::kGated) * kTile + 2 * kVectors + ssd::kStepsBytes + kOwnsBytes;

  static constexpr int kSquares = kStages * kStage;  ///< dy, then M and X
  static constexpr int kMixing = kSquares + kTile;
  static constexpr int kStepRows = kMixing + 2 * kTile;
  static constexpr int kOwns = kStepRows + kStages * ssd::kStepsBytes;
  static constexpr int kTurned = kOwns + kStages * kOwnsBytes;  ///< dθ of q
  static constexpr int kFlows = kTurned + ssd::kGroupThreads * kOwnPairs * 4;
  static constexpr int kBiases = kFlows + kDepth * static_cast<int>(sizeof(HeadFlows<T::kStates>));
  static constexpr int kBarriers = kBiases + 2 * T::kStates * 4;  ///< of Q, of K; a head's
  static constexpr int kBytes = kBarriers + 256 + 1024;           // the start is not aligned to 1024
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
};

template <class T>
struct HopperShared {
  using Traits = T;
  using Layout = HopperLayout<T>;
  /// Filled with what is loaded; done once dV lies over dout, dZ over Z and nobody reads any more; empty once they
  /// are stored.
  using Inputs = hopper::RelayRing<Layout::kStages>;
  /// Filled with Q and K; done once they are q and k. In step with Inputs.
  using Vectors = hopper::RelayRing<Layout::kStages>;
  using Squares = hopper::Ring<1>;  ///< dy, M and X: full by queries, empty by both
  using Flows = hopper::Ring<Layout::kDepth>;
  using Turned = hopper::Ring<1>;

  std::uint32_t base = (shared_address(ssd::dynamic_shared) + 1023) & ~1023U;

  __device__ Inputs inputs() const { return {{base + Layout::kBarriers}}; }
  __device__ Squares squares() const { return {base + Layout::kBarriers + Inputs::kBytes}; }
  __device__ Flows flows() const { return {squares().barriers + Squares::kBytes}; }
  __device__ Turned turned() const { return {flows().barriers + Flows::kBytes}; }
  __device__ Vectors vectors() const { return {{turned().barriers + Turned::kBytes}}; }
  __device__ std::uint32_t x_tile(typename Inputs::Position at) const {
    return base + at.slot * Layout::kStage;
  }
  __device__ std::uint32_t dout_tile(typename Inputs::Position at) const { return x_tile(at) + kTile; }
  __device__ std::uint32_t z_tile(typename Inputs::Position at) const { return x_tile(at) + 2 * kTile; }
  __device__ std::uint32_t dx_tile(typename Inputs::Position at) const { return dout_tile(at); }  ///< of dV
  __device__ std::uint32_t q_tile(typename Inputs::Position at) const { return x_tile(at) + Layout::kInputs; }
  __device__ std::uint32_t k_tile(typename Inputs::Position at) const {
    return q_tile(at) + Layout::kVectors;
  }
  __device__ std::uint32_t state_tile(typename Inputs::Position at) const {
    return k_tile(at) + Layout::kVectors;
  }
  __device__ std::uint32_t dstate_tile(typename Inputs::Position at) const {
    return state_tile(at) + Layout::kVectors;
  }
  __device__ std::uint32_t dy_tile(typename Inputs::Position at) const { return base + Layout::kSquares; }
  __device__ std::uint32_t mixing_tile() const { return base + Layout::kMixing; }
  __device__ std::uint32_t crosses_tile() const { return mixing_tile() + kTile; }
  __device__ std::uint32_t steps_address(typename Inputs::Position at) const {
    return base + Layout::kStepRows + at.slot * ssd::kStepsBytes;
  }
  __device__ const float (&steps(typename Inputs::Position at) const)[kStepFloats][kSteps] {
    return *reinterpret_cast<const float(*)[kStepFloats][kSteps]>(pointer(Layout::kStepRows) +
                                                                  at.slot * ssd::kStepsBytes);
  }
  __device__ std::uint32_t owns_address(typename Inputs::Position at) const {
    return base + Layout::kOwns + at.slot * Layout::kOwnsBytes;
  }
  /// γ
  __device__ const float* owns(typename Inputs::Position at) const {
    return reinterpret_cast<const float*>(pointer(Layout::kOwns)) + at.slot * kSteps;
  }
  __device__ std::uint32_t biases_address() const { return base + Layout::kBiases; }
  /// Of Q, then of K.
  __device__ float* biases() const { return reinterpret_cast<float*>(pointer(Layout::kBiases)); }
  /// [vector][thread of the warpgroup]
  __device__ float4* turned_of_q() const { return reinterpret_cast<float4*>(pointer(Layout::kTurned)); }
  __device__ HeadFlows<T::kStates>& flows_of(typename Flows::Position at) const {
    return reinterpret_cast<HeadFlows<T::kStates>*>(pointer(Layout::kFlows))[at.slot];
  }

  /// By one thread.
  __device__ void init_barriers() const {
    inputs().init(1, 2 * kWarpsOfGroup + 1, 1);
    squares().init(kWarpsOfGroup, 2 * kWarpsOfGroup);
    flows().init(2 * ssd::kGroupThreads, 32);
    turned().init(ssd::kGroupThreads, ssd::kGroupThreads);
    vectors().init(1, kWarpsOfGroup, 2 * kWarpsOfGroup);
    hopper::barrier_init_fence();
  }

 private:
  /// From the array's own address, so that the compiler knows the address space.
  __device__ unsigned char* pointer(int offset) const {
    return ssd::dynamic_shared + (base - shared_address(ssd::dynamic_shared)) + offset;
  }
};

/// The head that a warpgroup is at, and where that is in the rings. Those of Vectors are those of Inputs.
template <class Shared>
struct RolePositions {
  int row, head;  ///< of the chunk and the head, and of the head in all
  int left;       ///< heads, with this one
  typename Shared::Inputs::Position inputs;
  typename Shared::Squares::Position squares;
  typename Shared::Flows::Position flows;
  typename Shared::Turned::Position turned;  ///< advances with each tile of angles

  __device__ explicit RolePositions(const HopperArgs& args) {
    const ssd::BlockPlace place(args);
    row = static_cast<int>(place.row(args, 0));
    head = place.first_head;
    left = place.heads;
  }
  __device__ __forceinline__ void next_head() {
    ++row;
    ++head;
    --left;
    inputs.advance();
    squares.advance();
    flows.advance();
  }
};

/// A barrier of a warpgroup's threads; `name` from 1 on.
template <int kName>
__device__ __forceinline__ void group_barrier() {
  asm volatile("bar.sync %0, 128;\n" ::"n"(kName) : "memory");
}

}  // namespace ssmbench::mamba3_bwd
