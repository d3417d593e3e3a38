#pragma once

#include <cuda.h>

#include "kernels/common/hardware.h"
#include "kernels/common/hopper/fragments.cuh"
#include "kernels/common/hopper/mbarrier.cuh"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/map.h"
#include "kernels/ssd_chunk_scan/scaled.cuh"
#include "kernels/ssd_chunk_scan/states.cuh"

// What the roles of a block of the Hopper gradient kernel share: arguments, shared memory, rings.

namespace ssmbench::ssd_hopper_bwd {

inline constexpr int kSteps = 64;                   ///< of a chunk
inline constexpr int kTile = kSteps * kSteps * 2;   ///< bytes of 64 × 64 elements
inline constexpr int kStepsBytes = 4 * kSteps * 4;  ///< the four step rows of a chunk
inline constexpr int kSkipBytes = kSteps * 4;
inline constexpr int kUnscaleBytes = kUnscales * 4;
inline constexpr int kWarpsOfGroup = 4;
inline constexpr int kGroupThreads = 32 * kWarpsOfGroup;
inline constexpr int kThreads = 3 * kGroupThreads;          ///< of a block with two consumer warpgroups
inline constexpr int kGradientThreads = 4 * kGroupThreads;  ///< of one of ssd_hopper_gradients_kernel

/// (B, L, H, P) and (B, L, G, N); z and dz only where they exist.
struct GradientMaps {
  CUtensorMap x, z, dout, dx, dz, B, C;
};

/// Arguments of the kernel.
struct GradientArgs : GradientMaps {
  SsdBwdArgs bwd;
  ChunkedBwdPlan plan;
  ChunkedBwdWorkspace workspace;
};

template <class Element, int kPaddedStates, bool kHasGates>
struct Traits {
  using Io = Element;
  static constexpr int kStates = kPaddedStates;  ///< N, padded to 64 or 128
  static constexpr bool kGated = kHasGates;      ///< z exists
  /// In f16 operands that hold decays or Δ are scaled by powers of two, and products unscaled: S and S' by one
  /// for a head and chunk, M by one of a head and chunk, Q by one.
  static constexpr bool kScaled = kNarrowRange<Io>;
};

/// What a head leaves for ddt, dA and dD (write_flows).
struct alignas(16) HeadFlows {
  float out[kSteps];                    ///< dy·y of what y has from the state
  float rows[kSteps];                   ///< row sums of W
  float into[kSteps];                   ///< x·(S'·B)·leave
  float column[kWarpsOfGroup][kSteps];  ///< column sums of W, without the diagonal, of 16 rows each
  float direct[kSteps];                 ///< dy·x
  float skip[kWarpsOfGroup][kSteps];    ///< per column p, dy·x of 16 steps; where D has one for each
};

/// Decays between steps of different squares of 16 × 16, as products: of row t in square k, and of column s
/// before it, row[t]·column[k − 1][s] = Δ_s·L[t][s]. Both are relative to the step before the square: neither
/// grows.
struct DecayFactors {
  float row[kSteps];
  float column[3][kSteps];
  float skip[4];  ///< D, where the head has one; one vector, of which the first is used
};

/// Δ of a step as W has it. Not 0, since dΔ is a sum of W divided by it.
__device__ inline float step_weight(float delta) {
  constexpr float kLeast = 0x1p-100F;
  return delta == 0.0F ? kLeast : delta;
}

/// A thread's elements of a 64 × 64 product, in groups of 16 bytes.
using OwnVectors = float4[8][kGroupThreads];

/// The same of a lower triangle: warp w has fragments up to 2w + 1.
struct OwnTriangle {
  float4 vectors[20][32];
  __device__ float4& at(int warp, int fragment, int lane) {
    return vectors[warp * (warp + 1) + fragment][lane];
  }
};

/// Offsets in bytes; tiles are aligned to 1024.
template <class T>
struct Layout {
  static constexpr int kHalves = T::kStates / 64;
  static constexpr int kStages = 2;  ///< of x, z, dout, S, S' and the steps
  static constexpr int kDepth = 2;   ///< of dy and M, and of flows
  static constexpr int kStage = (3 + 2 * kHalves) * kTile;
  /// What is loaded, but for S and S'.
  static constexpr int kStageBytes = (2 + T::kGated) * kTile + kStepsBytes + (T::kScaled ? kUnscaleBytes : 0);
  static constexpr int kStatesBytes = 2 * kHalves * kTile;  ///< of S and S'

  static constexpr int kProjections = 0;  ///< B, then C
  static constexpr int kInputs = kProjections + 2 * kHalves * kTile;
  static constexpr int kPairs = kInputs + kStages * kStage;  ///< dy, then M
  static constexpr int kStepRows = kPairs + kDepth * 2 * kTile;
  static constexpr int kFactors = kStepRows + kStages * kStepsBytes;
  static constexpr int kSkip =
      kFactors + kStages * static_cast<int>(sizeof(DecayFactors));                 ///< D of the columns
  static constexpr int kStateUnscales = kSkip + kStages * kSkipBytes;              ///< of S and S'
  static constexpr int kProductScales = kStateUnscales + kStages * kUnscaleBytes;  ///< of Q, by warp
  static constexpr int kLargestMixing = kProductScales + 4 * kWarpsOfGroup;        ///< of M, by warp
  static constexpr int kProducts = kLargestMixing + kDepth * 4 * kWarpsOfGroup;    ///< C·Bᵀ, then Q
  static constexpr int kGradients = kProducts + 2 * static_cast<int>(sizeof(OwnTriangle));  ///< dy in f32
  static constexpr int kDiagonal =
      kGradients + (T::kGated ? static_cast<int>(sizeof(OwnVectors)) : 0);  ///< of C·Bᵀ
  static constexpr int kFlows = kDiagonal + kSteps * 4;
  static constexpr int kBarriers = kFlows + kDepth * static_cast<int>(sizeof(HeadFlows));
  static constexpr int kBytes = kBarriers + 256 + 1024;  // the start is not aligned to 1024
  static_assert(kBytes <= h200::shared_bytes_of_each(1));
};

/// D of the columns that a lane has of a head's tile: of fragment e, the pair.
class SkipWeights {
 public:
  /// `row`: D of the head's columns, where it has one for each; `one`: that of all columns, where not.
  __device__ SkipWeights(bool of_columns, const float* row, float one, int lane)
      : of_columns_(of_columns), row_(row + lane % 4 * 2), one_(one) {}
  __device__ float2 of(int fragment) const {
    if (!of_columns_) return make_float2(one_, one_);
    return *reinterpret_cast<const float2*>(row_ + 8 * fragment);
  }
  /// visit(weight) with weight(fragment, row): D and what each of a fragment's two rows adds to it.
  template <class Visit>
  __device__ __forceinline__ void with_diagonal(const float (&rows)[2], const Visit& visit) const {
    if (!of_columns_) {
      const float both[2] = {one_ + rows[0], one_ + rows[1]};
      visit([&](int, int row) { return make_float2(both[row], both[row]); });
    } else {
      visit([&](int fragment, int row) {
        const float2 of_columns = *reinterpret_cast<const float2*>(row_ + 8 * fragment);
        return make_float2(of_columns.x + rows[row], of_columns.y + rows[row]);
      });
    }
  }

 private:
  bool of_columns_;
  const float* row_;
  float one_;
};

extern __shared__ unsigned char dynamic_shared[];

template <class T>
struct SharedMemory {
  using Layout = ssd_hopper_bwd::Layout<T>;
  /// Filled with x, z, dout and the steps; done once dx lies over dout, dz over z and nobody reads any more;
  /// empty once they are stored.
  using Inputs = hopper::RelayRing<Layout::kStages>;
  using States = hopper::Ring<Layout::kStages>;  ///< S and S'
  using Pairs = hopper::Ring<Layout::kDepth>;    ///< of dy, and of M
  using Flows = hopper::Ring<Layout::kDepth>;
  using Gradients = hopper::Ring<1>;

  std::uint32_t base = (shared_address(dynamic_shared) + 1023) & ~1023U;

  __device__ std::uint32_t projections_full() const { return base + Layout::kBarriers; }
  __device__ Inputs inputs() const { return {{base + Layout::kBarriers + 8}}; }
  /// M.
  __device__ Pairs mixing() const { return {base + Layout::kBarriers + 8 + Inputs::kBytes}; }
  /// dy, rounded; there is none without z, where it is dout.
  __device__ Pairs rounded() const { return {mixing().barriers + Pairs::kBytes}; }
  __device__ Flows flows() const { return {rounded().barriers + Pairs::kBytes}; }
  __device__ States states() const { return {diagonal_full() + hopper::kBarrierBytes}; }

  /// dy in f32, which the query warpgroup hands on: empty once the key warpgroup has it in registers.
  __device__ Gradients gradients() const { return {flows().barriers + Flows::kBytes}; }
  /// Says that the factors of a slot of the inputs are there.
  __device__ std::uint32_t factors_full(typename Inputs::Position at) const {
    return gradients().barriers + Gradients::kBytes + at.slot * hopper::kBarrierBytes;
  }
  /// Says that the diagonal of C·Bᵀ is there.
  __device__ std::uint32_t diagonal_full() const {
    return gradients().barriers + Gradients::kBytes + Layout::kStages * hopper::kBarrierBytes;
  }

  __device__ std::uint32_t b_tile() const { return base + Layout::kProjections; }
  __device__ std::uint32_t c_tile() const { return b_tile() + Layout::kHalves * kTile; }
  __device__ std::uint32_t x_tile(typename Inputs::Position at) const {
    return base + Layout::kInputs + at.slot * Layout::kStage;
  }
  __device__ std::uint32_t dout_tile(typename Inputs::Position at) const { return x_tile(at) + kTile; }
  __device__ std::uint32_t z_tile(typename Inputs::Position at) const { return x_tile(at) + 2 * kTile; }
  __device__ std::uint32_t state_tile(typename Inputs::Position at) const { return x_tile(at) + 3 * kTile; }
  __device__ std::uint32_t dstate_tile(typename Inputs::Position at) const {
    return state_tile(at) + Layout::kHalves * kTile;
  }
  /// Where dx goes: over dout. Without z others read that until the head is done.
  __device__ std::uint32_t dx_tile(typename Inputs::Position at) const {
    return T::kGated ? dout_tile(at) : z_tile(at);
  }
  /// dout where there is no z.
  __device__ std::uint32_t dy_tile(typename Pairs::Position at, typename Inputs::Position input_at) const {
    return T::kGated ? base + Layout::kPairs + at.slot * 2 * kTile : dout_tile(input_at);
  }
  __device__ std::uint32_t mixing_tile(typename Pairs::Position at) const {
    return base + Layout::kPairs + (at.slot * 2 + 1) * kTile;
  }
  __device__ std::uint32_t steps_address(typename Inputs::Position at) const {
    return base + Layout::kStepRows + at.slot * kStepsBytes;
  }
  /// Rows kStepDelta … kStepLeave.
  __device__ const float (&steps(typename Inputs::Position at) const)[4][kSteps] {
    return *reinterpret_cast<const float(*)[4][kSteps]>(pointer(Layout::kStepRows) + at.slot * kStepsBytes);
  }
  __device__ DecayFactors& factors(typename Inputs::Position at) const {
    return reinterpret_cast<DecayFactors*>(pointer(Layout::kFactors))[at.slot];
  }
  __device__ std::uint32_t skip_address(typename Inputs::Position at) const {
    return base + Layout::kSkip + at.slot * kSkipBytes;
  }
  __device__ const float* skip(typename Inputs::Position at) const {
    return reinterpret_cast<const float*>(pointer(Layout::kSkip)) + at.slot * kSteps;
  }
  __device__ SkipWeights skip_weights(const SsdInputs& in, typename Inputs::Position at, int lane) const {
    return {in.skip_per_headdim, skip(at), factors(at).skip[0], lane};
  }
  __device__ std::uint32_t unscales_address(typename Inputs::Position at) const {
    return base + Layout::kStateUnscales + at.slot * kUnscaleBytes;
  }
  /// In f16: of S (kUnscaleState) and of S' (kUnscaleGradient). 1 otherwise.
  __device__ float unscale(typename Inputs::Position at, int which) const {
    if constexpr (!T::kScaled) return 1.0F;
    return reinterpret_cast<const float*>(pointer(Layout::kStateUnscales))[at.slot * kUnscales + which];
  }
  /// Per warp of the query warpgroup: the largest of its rows of Q.
  __device__ float* product_scales() const {
    return reinterpret_cast<float*>(pointer(Layout::kProductScales));
  }
  /// The same of M, unscaled.
  __device__ float* largest_mixing(typename Pairs::Position at) const {
    return reinterpret_cast<float*>(pointer(Layout::kLargestMixing)) + at.slot * kWarpsOfGroup;
  }
  __device__ OwnTriangle& cb() const { return *reinterpret_cast<OwnTriangle*>(pointer(Layout::kProducts)); }
  __device__ OwnTriangle& q() const {
    return *reinterpret_cast<OwnTriangle*>(
        pointer(Layout::kProducts + static_cast<int>(sizeof(OwnTriangle))));
  }
  __device__ OwnVectors& dy() const { return *reinterpret_cast<OwnVectors*>(pointer(Layout::kGradients)); }
  __device__ float* diagonal() const { return reinterpret_cast<float*>(pointer(Layout::kDiagonal)); }
  __device__ HeadFlows& flows_of(typename Flows::Position at) const {
    return reinterpret_cast<HeadFlows*>(pointer(Layout::kFlows))[at.slot];
  }

  /// By one thread.
  __device__ void init_barriers() const {
    hopper::barrier_init(projections_full(), 1);
    hopper::barrier_init(diagonal_full(), kGroupThreads);
    inputs().init(1, 3 * kWarpsOfGroup + 2 * 32, 1);
    states().init(1, 2 * kWarpsOfGroup + 32);
    mixing().init(kWarpsOfGroup, (1 + T::kGated) * kWarpsOfGroup);
    rounded().init(kWarpsOfGroup, 2 * kWarpsOfGroup);
    flows().init(3 * kGroupThreads, 32);
    gradients().init(kGroupThreads, kGroupThreads);  // each lane for its own
    for (typename Inputs::Position at; at.parity == 0; at.advance())
      hopper::barrier_init(factors_full(at), 32);
    hopper::barrier_init_fence();
  }

 private:
  /// From the array's own address, so that the compiler knows the address space.
  __device__ unsigned char* pointer(int offset) const {
    return dynamic_shared + (base - shared_address(dynamic_shared)) + offset;
  }
};

/// Where a block works: a chunk, and the heads of a slice of a group.
struct BlockPlace {
  int b, chunk, group, slice;
  int start;        ///< first step
  int steps_valid;  ///< of the chunk
  int first_head, heads;

  __device__ explicit BlockPlace(const GradientArgs& args) {
    const ChunkedBwdPlan& plan = args.plan;
    const SsdInputs& in = args.bwd.in;
    const auto slices = static_cast<int>(plan.slices);
    const auto groups = static_cast<int>(in.groups);
    const auto chunks = static_cast<int>(plan.chunks);
    int index = 0;  // volatile, so that it is computed again where that takes fewer registers
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    slice = index % slices;
    index /= slices;
    group = index % groups;
    index /= groups;
    chunk = index % chunks;
    b = index / chunks;
    start = chunk * kSteps;
    steps_valid = steps_within(start, kSteps, in.seqlen);
    const auto before = static_cast<int>(slice * plan.per_slice);
    first_head = group * static_cast<int>(in.heads_per_group) + before;
    heads = min(static_cast<int>(plan.per_slice), static_cast<int>(in.heads_per_group) - before);
  }
  /// The row of the chunk and a head.
  __device__ std::int64_t row(const GradientArgs& args, int head) const {
    return args.plan.row(b, chunk, first_head + head, args.bwd.in.nheads);
  }
  /// Of the tensors that are stored, for the thread that stores.
  __device__ static const GradientMaps& stored_maps(const GradientArgs& args) { return args; }
};

/// Index of a thread in its warpgroup. Volatile, so that each role takes its own.
__device__ inline int group_thread() {
  int thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread % kGroupThreads;
}

/// Arrives for the warp, once all its lanes are here.
__device__ inline void warp_arrive(std::uint32_t barrier, int lane) {
  __syncwarp();
  if (lane == 0) hopper::barrier_arrive(barrier);
}

/// dy of the head at `slot`, in f32: of a pair of fragments, j. `fragment`: fragment_offset() of the thread.
template <class T>
__device__ __forceinline__ void load_gradients(float (&dy)[8], const SharedMemory<T>& shared,
                                               typename SharedMemory<T>::Inputs::Position slot,
                                               [[maybe_unused]] std::uint32_t fragment, int j) {
  using Io = typename T::Io;
  if constexpr (T::kGated) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 four = shared.dy()[2 * j + half][group_thread()];
      dy[4 * half] = four.x;
      dy[4 * half + 1] = four.y;
      dy[4 * half + 2] = four.z;
      dy[4 * half + 3] = four.w;
    }
  } else {
    std::uint32_t dout[4];
    load_matrices(dout, (shared.dout_tile(slot) + fragment) ^ j * 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<Io>(dout[i]);
      dy[2 * i] = pair.x;
      dy[2 * i + 1] = pair.y;
    }
  }
}

/// A warp's 16 rows of a tile, as pairs; `tile` is the lane's address in it.
__device__ __forceinline__ void load_tile_pairs(std::uint32_t (&to)[16], std::uint32_t tile) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    load_matrices(*reinterpret_cast<std::uint32_t(*)[4]>(to + 4 * j), tile ^ j * 32);
}
__device__ __forceinline__ void store_tile_pairs(std::uint32_t tile, const std::uint32_t (&from)[16]) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    hopper::store_matrices(tile ^ j * 32, from[4 * j], from[4 * j + 1], from[4 * j + 2], from[4 * j + 3]);
}

/// One exchange of store_column_sums: halves what a lane holds, and the lanes that hold the same columns. With the
/// lane whose number differs in kBit.
template <int kHalf, int kBit = 2 * kHalf>
__device__ __forceinline__ void exchange_sums(float (&of)[16], int lane) {
  const bool upper = (lane & kBit) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float given = upper ? of[i] : of[i + kHalf];
    const float kept = upper ? of[i + kHalf] : of[i];
    of[i] = kept + __shfl_xor_sync(0xFFFFFFFFU, given, kBit);
  }
}
/// The fragment whose sums a lane has after three exchanges.
__device__ __forceinline__ int fragment_of_sums(int lane) {
  return (lane >> 4 & 1) * 4 + (lane >> 3 & 1) * 2 + (lane >> 2 & 1);
}

/// A warp's sums of 16 rows: `of` has a lane's sums in the two columns of each of the 8 fragments. To the 64
/// columns of `to`.
__device__ __forceinline__ void store_column_sums(float (&of)[16], float* to, int lane) {
  exchange_sums<8>(of, lane);
  exchange_sums<4>(of, lane);
  exchange_sums<2>(of, lane);
  *reinterpret_cast<float2*>(to + 8 * fragment_of_sums(lane) + lane % 4 * 2) = make_float2(of[0], of[1]);
}

/// The power of two that moves the largest of four warps' numbers to `target`; as much as leaves room in f32 for
/// sums that are scaled with it.
__device__ inline float scale_of_warps(const float* largest, int target) {
  constexpr float kLeast = 0x1p-60F;
  const float4 of = *reinterpret_cast<const float4*>(largest);
  return scale_to(fmaxf(kLeast, fmaxf(fmaxf(of.x, of.y), fmaxf(of.z, of.w))), target).up;
}

/// silu and its derivative by approximate exponential and reciprocal.
__device__ inline ValueSlope silu_approximate(float z) {
  const float sigma = reciprocal_approximate(1.0F + exp2_approximate(-kLog2E * z));
  const float value = z * sigma;
  return {value, value * (1.0F - sigma) + sigma};
}

}  // namespace ssmbench::ssd_hopper_bwd
