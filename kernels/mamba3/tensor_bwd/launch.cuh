#pragma once

// cuda-chunked and cuda-hopper for Mamba-3's gradients: launch. In order:
//
//   increments, starts   phases before all chunks; with SISO cuda-hopper makes all phases there, and turns q and k in
//                        its walks and its gradient kernel (hopper_bwd/phases.h)
//   prepare              prepare.h: phases, rotated q and k; s, γ and decays of all steps
//   raise                with MIMO, factors.h: V and dy of ranks
//   states               SSD's walks over the states at the borders of chunks, and over their gradients: those of
//                        its cuda-chunked, or of its cuda-hopper; with MIMO cuda-hopper has walks of its own, which
//                        make q, k, V and dy of ranks on their way (hopper_bwd/rank_walks.cuh)
//   gradients            gradients.cuh: a block per chunk of a head; or kernel.cuh of hopper_bwd/, a block per
//                        chunk of the heads of a group
//   turns, finish        finish.h, with SISO cuda-hopper hopper_bwd/finish.cuh: dAngles, dADT, dDT, dTrap; gradients of
//                        the input states
//   lower                with MIMO, factors.h: dV, dZ, and sums for the gradients of the factors
//   heads, rows          sums over the heads of a group, but for cuda-hopper; over sequences and chunks

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/errors.h"
#include "kernels/common/hopper/device.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/hopper_bwd/finish.cuh"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/hopper_bwd/phases.h"
#include "kernels/mamba3/tensor_bwd/finish.h"
#include "kernels/mamba3/tensor_bwd/gradients.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::ssd_hopper_bwd {
extern template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, void*);
}  // namespace ssmbench::ssd_hopper_bwd

namespace ssmbench::mamba3_bwd {
namespace {

constexpr int kThreads = 256;
using Bf16 = __nv_bfloat16;

/// Of two halves, which take turns.
__device__ inline Octet octet_of(float4 first, float4 second) {
  return {{first.x, second.x, first.y, second.y, first.z, second.z, first.w, second.w}};
}

struct DeviceIo {
  static __device__ const void* element(const void* data, std::int64_t at) {
    return static_cast<const Bf16*>(data) + at;
  }
  static __device__ void* element(void* data, std::int64_t at) { return static_cast<Bf16*>(data) + at; }
  static __device__ float load(const void* data, std::int64_t at) {
    return to_float(__ldg(static_cast<const Bf16*>(data) + at));
  }
  static __device__ void store(void* data, std::int64_t at, float value) {
    static_cast<Bf16*>(data)[at] = from_float<Bf16>(value);
  }
  /// Two elements, and their values.
  static __device__ std::uint32_t load_word(const void* data, std::int64_t at) {
    return __ldg(reinterpret_cast<const std::uint32_t*>(static_cast<const Bf16*>(data) + at));
  }
  static __device__ Pair unpack_word(std::uint32_t word) {
    const float2 pair = unpack_pair<Bf16>(word);
    return {{pair.x, pair.y}};
  }
  static __device__ void store_pair(void* data, std::int64_t at, const Pair& pair) {
    *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(data) + at) = pack_pair<Bf16>(pair.x[0], pair.x[1]);
  }
  static __device__ Octet load_octet(const void* data, std::int64_t at) {
    const uint4 bits = __ldg(reinterpret_cast<const uint4*>(static_cast<const Bf16*>(data) + at));
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    Octet octet;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<Bf16>(words[i]);
      octet.state[2 * i] = pair.x;
      octet.state[2 * i + 1] = pair.y;
    }
    return octet;
  }
  static __device__ Octet load_floats(const float* data) {
    const float4 first = __ldg(reinterpret_cast<const float4*>(data));
    const float4 second = __ldg(reinterpret_cast<const float4*>(data) + 1);
    return {{first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w}};
  }
  static __device__ float4 load_four(const void* data, std::int64_t at) {
    const uint2 bits = __ldg(reinterpret_cast<const uint2*>(static_cast<const Bf16*>(data) + at));
    const float2 first = unpack_pair<Bf16>(bits.x);
    const float2 second = unpack_pair<Bf16>(bits.y);
    return make_float4(first.x, first.y, second.x, second.y);
  }
  static __device__ Octet load_halves(const void* data, std::int64_t at, int apart) {
    return octet_of(load_four(data, at), load_four(data, at + apart));
  }
  static __device__ Octet load_float_halves(const float* data, int apart) {
    return octet_of(__ldg(reinterpret_cast<const float4*>(data)),
                    __ldg(reinterpret_cast<const float4*>(data + apart)));
  }
  static __device__ void store_halves(void* data, std::int64_t at, int apart, const Octet& octet) {
    const auto& x = octet.state;
    Bf16* const to = static_cast<Bf16*>(data) + at;
    *reinterpret_cast<uint2*>(to) = make_uint2(pack_pair<Bf16>(x[0], x[2]), pack_pair<Bf16>(x[4], x[6]));
    *reinterpret_cast<uint2*>(to + apart) =
        make_uint2(pack_pair<Bf16>(x[1], x[3]), pack_pair<Bf16>(x[5], x[7]));
  }
  template <bool kIsFloat>
  static __device__ float load_rate(const void* data, std::int64_t at) {
    if constexpr (kIsFloat)
      return __ldg(static_cast<const float*>(data) + at);
    else
      return load(data, at);
  }
  template <bool kIsFloat>
  static __device__ void load_rates(float (&to)[4], const void* data, std::int64_t at) {
    if constexpr (kIsFloat) {
      load_words(to, static_cast<const float*>(data) + at);
    } else {
      const float4 four = load_four(data, at);
      memcpy(to, &four, sizeof four);
    }
  }
  template <bool kIsFloat>
  static __device__ void store_rate(void* data, std::int64_t at, float value) {
    if constexpr (kIsFloat)
      static_cast<float*>(data)[at] = value;
    else
      store(data, at, value);
  }
  static __device__ void store_four(void* data, std::int64_t at, const float (&values)[4]) {
    *reinterpret_cast<uint2*>(static_cast<Bf16*>(data) + at) =
        make_uint2(pack_pair<Bf16>(values[0], values[1]), pack_pair<Bf16>(values[2], values[3]));
  }
  template <class T>
  static __device__ void load_shared(T (&to)[4], const T* data) {
    const uint4 bits = *reinterpret_cast<const uint4*>(data);
    memcpy(to, &bits, sizeof bits);
  }
  static __device__ void prefetch(const void* data) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(__cvta_generic_to_global(data)));
  }
  template <class T>
  static __device__ T fetch(const T* data) {
    return __ldg(data);
  }
  template <class T>
  static __device__ void load_words(T (&to)[4], const T* data) {
    const uint4 bits = __ldg(reinterpret_cast<const uint4*>(data));
    memcpy(to, &bits, sizeof bits);
  }
  template <class T>
  static __device__ void store_words(T* data, const T (&from)[4]) {
    uint4 bits;
    memcpy(&bits, from, sizeof bits);
    *reinterpret_cast<uint4*>(data) = bits;
  }
  static __device__ void store_octet(void* data, std::int64_t at, const Octet& octet) {
    store_vector(static_cast<Bf16*>(data) + at, octet.state);
  }
};

/// A block's threads.
template <int kBlockThreads>
struct Threads {
  template <class Body>
  __device__ void for_all(int count, const Body& body) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlockThreads) body(i);
    __syncthreads();
  }
};
using BlockTeam = Threads<kThreads>;

__device__ std::int64_t thread_of_grid() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

template <class Form>
__global__ void __launch_bounds__(kThreads)
    increments_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ alignas(16) std::uint32_t parts[kIncrementSpans * kSpanParts * kPartPitch];
  add_increments<DeviceIo, Form>(args.in, plan, work, std::int64_t{blockIdx.x} * kIncrementSpans, parts,
                                 BlockTeam());
}

__global__ void starts_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.angles) add_starts(args.in, plan, work, at);
}

inline constexpr int kPhaseThreads = 128;

__global__ void __launch_bounds__(kPhaseThreads)
    chunk_phases_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ PhaseMemory memory;
  const Threads<kPhaseThreads> team;
  ChunkPhases<DeviceIo, Threads<kPhaseThreads>>{args.in, plan, work, memory, Span(plan, blockIdx.x), team}
      .run();
}

__global__ void phase_starts_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.angles) add_phase_starts(args.in, plan, work, at);
}

__global__ void seeds_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.headdim * plan.dstate)
    make_seed<DeviceIo>(args.in, plan, work, at);
}

__global__ void last_adjoint_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.headdim * plan.dstate) copy_last_adjoint(args, plan, work, at);
}

__global__ void raise_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.seqlen * plan.nheads * plan.headdim / kOctet)
    raise_ranks<DeviceIo>(args, plan, work, at);
}

/// Blocks of lower_kernel that a multiprocessor has registers for: 8 ranks have twice the sums. (With three, loads of the
/// next step have fewer registers.)
template <class Form>
inline constexpr int kLowerBlocks = Form::kRanks == 8 ? 1 : 2;

template <class Form>
__global__ void __launch_bounds__(kThreads, kLowerBlocks<Form>)
    lower_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ FactorMemory<Form> memory;
  const BlockTeam team;
  const std::int64_t outer = blockIdx.x / plan.nheads;
  LowerRanks<DeviceIo, Form, BlockTeam>{
      args, plan, work, memory, outer / plan.spans, outer % plan.spans, blockIdx.x % plan.nheads, team}
      .run();
}

template <class Form, bool kHalves>
__global__ void __launch_bounds__(kThreads, 4)
    prepare_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, bool rotates) {
  __shared__ PrepareMemory memory;
  const BlockTeam team;
  Preparation<DeviceIo, Form, kHalves, BlockTeam>{args.in, plan, work, memory, Span(plan, blockIdx.x),
                                                  rotates, team}
      .run();
}

__global__ void pair_states_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.sequence_rows() * plan.groups * plan.dstate / kOctet)
    pair_states<DeviceIo>(args.in, plan, work, at);
}

__global__ void biases_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.nheads * 2 * plan.ranks * plan.dstate_tiles * kSteps) order_biases(args.in, plan, work, at);
}

__global__ void turns_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.angles) add_turns(args, plan, work, at);
}

__global__ void __launch_bounds__(kThreads)
    start_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ float terms[kMaxRanks * kMaxStates];
  store_start<DeviceIo>(args, plan, work, blockIdx.x, terms, BlockTeam());
}

/// Blocks of finish_kernel that a multiprocessor has registers for. Before Ampere it has 1024 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kFinishBlocks = 4;
#else
constexpr int kFinishBlocks = 5;
#endif

template <class Form>
__global__ void __launch_bounds__(kThreads, kFinishBlocks)
    finish_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ FinishMemory memory;
  const BlockTeam team;
  Finish<DeviceIo, Form, BlockTeam>{args, plan, work, memory, Span(plan, blockIdx.x), team}.run();
}

__global__ void __launch_bounds__(kFinishThreads, 6)
    chunk_finish_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ ChunkFinishMemory memory;
  const Span row(plan, blockIdx.x);
  ChunkFinish<DeviceIo>(args, plan, work, memory, row).run();
}

__global__ void heads_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.sequence_rows() * plan.groups * plan.dstate / kOctet)
    add_heads<DeviceIo>(args, plan, work, at);
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, int slabs) {
  __shared__ float parts[kSumParts * kSumColumns];
  add_rows(args, plan, work, blockIdx.x / slabs, static_cast<int>(blockIdx.x) % slabs * kSumColumns, parts,
           BlockTeam());
}

__global__ void __launch_bounds__(kThreads)
    spans_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, int slabs) {
  __shared__ float parts[kSumParts * kSumColumns];
  add_spans(args, plan, work, blockIdx.x / slabs, static_cast<int>(blockIdx.x) % slabs * kSumColumns, parts,
            BlockTeam());
}

/// As SSD's kernels take it: q and k are of each head, and with MIMO steps are rows (step, rank).
inline SsdBwdArgs ssd_args(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work) {
  SsdBwdArgs ssd{};
  SsdInputs& in = ssd.in;
  in.batch = plan.batch;
  in.seqlen = plan.sequence_rows();
  in.nheads = in.groups = plan.nheads;
  in.heads_per_group = 1;
  in.headdim = plan.headdim;
  in.dstate = plan.dstate;
  const bool is_mimo = args.in.scan.is_mimo;
  in.x = is_mimo ? work.v : args.in.V;
  in.z = is_mimo ? nullptr : args.in.Z;
  in.B = work.k;
  in.C = work.q;
  in.initial_states = args.in.input_ssm == nullptr ? nullptr : work.seeds;
  ssd.dout = is_mimo ? work.dy : args.dout;
  ssd.dfinal_states = plan.halves && args.dfinal_ssm != nullptr ? work.last_adjoint : args.dfinal_ssm;
  ssd.dinitial_states = args.dinput_ssm == nullptr ? nullptr : first_adjoint_of(args, plan, work);
  return ssd;
}

/// What differs between implementations: both walks over states, and the gradients. `handed`: behind the workspace of
/// the plan.
struct Products {
  HeadSums head_sums;
  /// V and dy of ranks, and q and k for themselves: the gradient kernel makes its own. With SISO phases are PhaseTiles.
  bool walks_make_operands;
  Launch (*states)(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan, const Workspace& work,
                   void* handed);
  Launch (*gradients)(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                      const Workspace& work);
};

inline Launch chunked_states(const Mamba3BwdArgs& /*args*/, const SsdBwdArgs& ssd, const Plan& plan,
                             const Workspace& work, void* /*handed*/) {
  const WalkTensors forward{.left = ssd.in.x,
                            .gate = nullptr,
                            .right = ssd.in.B,
                            .first = ssd.in.initial_floats(),
                            .last = nullptr,
                            .steps = work.steps,
                            .images = work.states,
                            .unscales = nullptr};
  const WalkTensors backward{.left = ssd.dout,
                             .gate = ssd.in.z,
                             .right = ssd.in.C,
                             .first = ssd.dfinal_states,
                             .last = ssd.dinitial_states,
                             .steps = work.steps,
                             .images = work.dstates,
                             .unscales = nullptr};
  const ChunkGrid grid = plan;
  return [=, in = ssd.in](void* on) {
    auto* const stream = static_cast<cudaStream_t>(on);
    launch_states<Bf16, Bf16, Walk::forward>(in, forward, grid, stream);
    launch_states<Bf16, Bf16, Walk::backward>(in, backward, grid, stream);
  };
}

inline HandedLayout handed_of(const Plan& plan) {
  const std::int64_t heads = plan.batch * plan.nheads;
  return ssd_hopper_bwd::walk_handed_layout(heads, ssd_hopper_bwd::walk_parts(heads, plan.chunks),
                                            kSteps * plan.dstate_tiles);
}

inline Launch hopper_states(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                            const Workspace& work, void* handed) {
  ChunkedBwdPlan cut{};
  static_cast<ChunkGrid&>(cut) = plan;
  ChunkedBwdWorkspace arrays{};
  arrays.steps = work.steps;
  arrays.states = work.states;
  arrays.dstates = work.dstates;
  arrays.unscales = work.flows;  // of f16 alone
  SsdBwdArgs of_groups = ssd;
  of_groups.in.groups = plan.groups;
  of_groups.in.heads_per_group = plan.nheads / plan.groups;
  of_groups.in.B = args.in.K;
  of_groups.in.C = args.in.Q;
  return turning_walks(args, ssd_hopper_bwd::make_walks<Bf16>(of_groups, cut, arrays, handed), plan, work);
}

/// The reason where it is the GPU's.
inline std::optional<std::string> unsupported_device() {
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

/// What neither implementation of either operation supports.
inline std::optional<std::string> unsupported_size(const Problem& problem) {
  const Mamba3 scan(problem);
  if (problem.dtype() != DType::bf16) return "needs bf16 tensors";
  if (scan.has_cu_seqlens) return "does not support cu_seqlens";
  if (scan.headdim > kMaxHeaddim) return "needs headdim of at most 64: a chunk's head dims are one tile";
  if (scan.dstate > kMaxStates) return "needs dstate of at most 128: a chunk's q and k are in shared memory";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0)
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  if (scan.nheads > 2147483647 / (kSteps * scan.angles)) return "needs at most 2147483647 angles in 64 steps";
  const Plan plan(scan, HeadSums::kernel);
  return grid_too_large({plan.rows, ceil_div(scan.angles + plan.sums, kSumColumns)},
                        "64 rows of a head and 32 sums");
}

template <class Form, int kTilesN>
Launch gradients_of(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work) {
  constexpr int kBytes = GradientTiles<Bf16, Form, kTilesN>::kBytes;
  const auto kernel = gradients_kernel<Bf16, Form, kTilesN>;
  allow_shared_bytes(kernel, kBytes);
  return launch_of(kernel, plan.rows, dim3(kGradientThreads), kBytes, args, plan, work);
}
template <class Form>
Launch chunked_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& /*ssd*/, const Plan& plan,
                         const Workspace& work) {
  return plan.dstate_tiles == 1 ? gradients_of<Form, 1>(args, plan, work)
                                : gradients_of<Form, 2>(args, plan, work);
}

inline Mamba3BwdArgs bind_aligned(const Problem& problem, const TensorSet& tensors) {
  const Mamba3BwdArgs args = bind_mamba3_bwd(problem, tensors);
  const Mamba3Args& in = args.in;
  for (const void* tensor : std::array<const void*, 17>{
           in.Q, in.K, in.V, in.Z, in.rates, in.Q_bias, in.K_bias, in.mimo_v, in.mimo_z, in.mimo_out,
           args.dout, args.dfinal_v, args.dQ, args.dK, args.dV, args.dZ, args.drates})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("gradients on tensor cores need tensors that are aligned to 16 bytes");
  return args;
}

inline std::size_t hopper_workspace_bytes(const Problem& problem) {
  const Plan plan(Mamba3(problem), HeadSums::block);
  return plan.bytes + handed_of(plan).bytes;
}
inline std::size_t chunked_workspace_bytes(const Problem& problem) {
  return Plan(Mamba3(problem), HeadSums::kernel).bytes;
}

constexpr Arithmetic kArithmetic{.math = Math::bf16, .state_dtype = DType::bf16};

template <class Form>
Launch bind_with(const Mamba3BwdArgs& args, void* workspace, const Products& products) {
  const Plan plan(args.in.scan, products.head_sums);
  const Workspace work(plan, workspace);
  const std::int64_t heads = plan.batch * plan.nheads;
  const std::int64_t spans = heads * plan.spans;
  const auto elementwise = [&](auto kernel, std::int64_t count) {
    return launch_of(kernel, ceil_div(count, kThreads), dim3(kThreads), 0, args, plan, work);
  };
  const auto by_block = [&](auto kernel, std::int64_t blocks) {
    return launch_of(kernel, blocks, dim3(kThreads), 0, args, plan, work);
  };
  const bool rotates = !products.walks_make_operands;
  const bool turns_later = !rotates && !Form::kIsMimo;
  std::vector<Launch> launches;
  if (turns_later) {
    launches = {launch_of(chunk_phases_kernel, spans, dim3(kPhaseThreads), 0, args, plan, work),
                elementwise(phase_starts_kernel, heads * plan.angles)};
  } else {
    launches = {by_block(increments_kernel<Form>, ceil_div(spans, kIncrementSpans)),
                elementwise(starts_kernel, heads * plan.angles)};
  }
  if (args.in.input_ssm != nullptr)
    launches.push_back(elementwise(seeds_kernel, heads * plan.headdim * plan.dstate));
  if (plan.halves && args.dfinal_ssm != nullptr)
    launches.push_back(elementwise(last_adjoint_kernel, heads * plan.headdim * plan.dstate));
  if (!turns_later)
    launches.push_back(launch_of(plan.halves ? prepare_kernel<Form, true> : prepare_kernel<Form, false>,
                                 spans, dim3(kThreads), 0, args, plan, work, rotates));
  const std::int64_t octets_of_group = plan.batch * plan.sequence_rows() * plan.groups * plan.dstate / kOctet;
  if constexpr (Form::kIsMimo) {
    if (rotates)
      launches.push_back(
          elementwise(raise_kernel, plan.batch * plan.seqlen * plan.nheads * plan.headdim / kOctet));
    else if (plan.halves)
      launches.push_back(elementwise(pair_states_kernel, octets_of_group));
    if (!rotates)
      launches.push_back(
          elementwise(biases_kernel, plan.nheads * 2 * plan.ranks * plan.dstate_tiles * kSteps));
  }
  const SsdBwdArgs ssd = ssd_args(args, plan, work);
  launches.push_back(
      products.states(args, ssd, plan, work, static_cast<unsigned char*>(workspace) + plan.bytes));
  launches.push_back(products.gradients(args, ssd, plan, work));
  launches.push_back(elementwise(turns_kernel, heads * plan.angles));
  if (args.dinput_ssm != nullptr) launches.push_back(by_block(start_kernel, heads));
  launches.push_back(turns_later
                         ? launch_of(chunk_finish_kernel, spans, dim3(kFinishThreads), 0, args, plan, work)
                         : by_block(finish_kernel<Form>, spans));
  if (products.head_sums == HeadSums::kernel) launches.push_back(elementwise(heads_kernel, octets_of_group));
  const auto by_columns = [&](auto kernel, int columns) {
    const int slabs = static_cast<int>(ceil_div(columns, kSumColumns));
    launches.push_back(launch_of(kernel, plan.nheads * slabs, dim3(kThreads), 0, args, plan, work, slabs));
  };
  by_columns(rows_kernel, plan.sums);
  if constexpr (Form::kIsMimo) {
    launches.push_back(by_block(lower_kernel<Form>, spans));
    by_columns(spans_kernel, plan.factor_sums);
  }
  return [launches](void* stream) {
    for (const Launch& launch : launches) launch(stream);
  };
}

}  // namespace
}  // namespace ssmbench::mamba3_bwd
