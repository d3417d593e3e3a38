// cuda-chunked and cuda-hopper for Mamba-3's gradients: registration and launch. In order:
//
//   increments, starts   phases before all chunks
//   prepare              prepare.h: phases, rotated q and k; s, γ and decays of all steps
//   states               SSD's walks over the states at the borders of chunks, and over their gradients: those of
//                        its cuda-chunked, or of its cuda-hopper
//   gradients            gradients.cuh: a block per chunk of a head; or kernel.cuh of hopper_bwd/, a block per chunk of
//                        the heads of a group
//   turns, finish        finish.h: dAngles, dADT, dDT, dTrap; gradients of the input states
//   heads, rows          sums over the heads of a group, but for cuda-hopper; over sequences and chunks

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/errors.h"
#include "kernels/common/hopper/device.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/tensor_bwd/finish.h"
#include "kernels/mamba3/tensor_bwd/gradients.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"

namespace ssmbench::ssd_hopper_bwd {
extern template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, void*);
extern template void launch_walks_alone<__nv_bfloat16>(const Walks&, cudaStream_t);
}  // namespace ssmbench::ssd_hopper_bwd

namespace ssmbench::mamba3_bwd {
namespace {

constexpr int kThreads = 256;
using Bf16 = __nv_bfloat16;

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
struct BlockTeam {
  template <class Body>
  __device__ void for_all(int count, const Body& body) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) body(i);
    __syncthreads();
  }
};

__device__ std::int64_t thread_of_grid() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads)
    increments_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ std::uint32_t parts[kParts * kMaxAngles];
  add_increments<DeviceIo>(args.in, plan, work, Row(plan, blockIdx.x), parts, BlockTeam());
}

__global__ void starts_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.angles) add_starts(args.in, plan, work, at);
}

__global__ void seeds_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.headdim * plan.dstate)
    make_seed<DeviceIo>(args.in, plan, work, at);
}

__global__ void __launch_bounds__(kThreads, 4)
    prepare_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ PrepareMemory memory;
  const BlockTeam team;
  Preparation<DeviceIo, BlockTeam>{args.in, plan, work, memory, Row(plan, blockIdx.x), team}.run();
}

__global__ void turns_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.nheads * plan.angles) add_turns(args, plan, work, at);
}

__global__ void __launch_bounds__(kThreads)
    start_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ float terms[kMaxStates];
  store_start<DeviceIo>(args, plan, work, blockIdx.x, terms, BlockTeam());
}

__global__ void __launch_bounds__(kThreads)
    finish_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ FinishMemory memory;
  const BlockTeam team;
  Finish<DeviceIo, BlockTeam>{args, plan, work, memory, Row(plan, blockIdx.x), team}.run();
}

__global__ void heads_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.seqlen * plan.groups * plan.dstate / kOctet)
    add_heads<DeviceIo>(args, plan, work, at);
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, int slabs) {
  __shared__ float parts[kSumParts * kSumColumns];
  add_rows(args, plan, work, blockIdx.x / slabs, static_cast<int>(blockIdx.x) % slabs * kSumColumns, parts,
           BlockTeam());
}

/// As SSD's kernels take it: q and k are of each head.
SsdBwdArgs ssd_args(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work) {
  SsdBwdArgs ssd{};
  SsdInputs& in = ssd.in;
  in.batch = plan.batch;
  in.seqlen = plan.seqlen;
  in.nheads = in.groups = plan.nheads;
  in.heads_per_group = 1;
  in.headdim = plan.headdim;
  in.dstate = plan.dstate;
  in.x = args.in.V;
  in.z = args.in.Z;
  in.B = work.k;
  in.C = work.q;
  in.initial_states = args.in.input_ssm == nullptr ? nullptr : work.seeds;
  ssd.dout = args.dout;
  ssd.dfinal_states = args.dfinal_ssm;
  ssd.dinitial_states = args.dinput_ssm;
  return ssd;
}

/// What differs between cuda-chunked and cuda-hopper: both walks over states, and the gradients. `handed`: behind the
/// workspace of the plan.
struct Products {
  HeadSums head_sums;
  Launch (*states)(const SsdBwdArgs& ssd, const Plan& plan, const Workspace& work, void* handed);
  Launch (*gradients)(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                      const Workspace& work);
};

Launch chunked_states(const SsdBwdArgs& ssd, const Plan& plan, const Workspace& work, void* /*handed*/) {
  const WalkTensors forward{.left = ssd.in.x,
                            .gate = nullptr,
                            .right = ssd.in.B,
                            .first = ssd.in.initial_states,
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

HandedLayout handed_of(const Plan& plan) {
  const std::int64_t heads = plan.batch * plan.nheads;
  return ssd_hopper_bwd::walk_handed_layout(heads, ssd_hopper_bwd::walk_parts(heads, plan.chunks),
                                            kSteps * plan.dstate_tiles);
}

Launch hopper_states(const SsdBwdArgs& ssd, const Plan& plan, const Workspace& work, void* handed) {
  ChunkedBwdPlan cut{};
  static_cast<ChunkGrid&>(cut) = plan;
  ChunkedBwdWorkspace arrays{};
  arrays.steps = work.steps;
  arrays.states = work.states;
  arrays.dstates = work.dstates;
  arrays.unscales = work.flows;  // of f16 alone
  const auto walks = ssd_hopper_bwd::make_walks<Bf16>(ssd, cut, arrays, handed);
  return [=](void* stream) {
    ssd_hopper_bwd::launch_walks_alone<Bf16>(walks, static_cast<cudaStream_t>(stream));
  };
}

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  if (problem.dtype() != DType::bf16) return "needs bf16 tensors";
  if (scan.has_cu_seqlens) return "does not support cu_seqlens";
  if (!scan.interleaved) return "needs rotary_pairing interleaved: a thread turns neighbouring states";
  if (scan.headdim > kMaxHeaddim) return "needs headdim of at most 64: a chunk's head dims are one tile";
  if (scan.dstate > kMaxStates) return "needs dstate of at most 128: a chunk's q and k are in shared memory";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0)
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  if (scan.nheads > 2147483647 / (kSteps * scan.angles)) return "needs at most 2147483647 angles in 64 steps";
  const Plan plan(scan, HeadSums::kernel);
  return grid_too_large({plan.rows, ceil_div(scan.angles + 2 * scan.dstate, kSumColumns)},
                        "64 steps of a head and 32 states");
}

template <int kTilesN>
Launch gradients_of(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work) {
  constexpr int kBytes = gradients_shared_bytes<Bf16, kTilesN>();
  const auto kernel = gradients_kernel<Bf16, kTilesN>;
  allow_shared_bytes(kernel, kBytes);
  return launch_of(kernel, plan.rows, dim3(kGradientThreads), kBytes, args, plan, work);
}
Launch chunked_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& /*ssd*/, const Plan& plan,
                         const Workspace& work) {
  return plan.dstate_tiles == 1 ? gradients_of<1>(args, plan, work) : gradients_of<2>(args, plan, work);
}

std::optional<std::string> unsupported_by_hopper(const Problem& problem) {
  if (auto reason = unsupported(problem)) return reason;
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

Mamba3BwdArgs bind_aligned(const Problem& problem, const TensorSet& tensors) {
  const Mamba3BwdArgs args = bind_mamba3_bwd(problem, tensors);
  for (const void* tensor : std::array{args.in.Q, args.in.K, args.in.V, args.in.Z, args.dout,
                                       static_cast<const void*>(args.dQ), static_cast<const void*>(args.dK),
                                       static_cast<const void*>(args.dV), static_cast<const void*>(args.dZ)})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("gradients on tensor cores need tensors that are aligned to 16 bytes");
  return args;
}

Launch bind_with(const Mamba3BwdArgs& args, void* workspace, const Products& products) {
  const Plan plan(args.in.scan, products.head_sums);
  const Workspace work(plan, workspace);
  const std::int64_t heads = plan.batch * plan.nheads;
  const auto elementwise = [&](auto kernel, std::int64_t count) {
    return launch_of(kernel, ceil_div(count, kThreads), dim3(kThreads), 0, args, plan, work);
  };
  const auto by_block = [&](auto kernel, std::int64_t blocks) {
    return launch_of(kernel, blocks, dim3(kThreads), 0, args, plan, work);
  };
  std::vector<Launch> launches{by_block(increments_kernel, plan.rows),
                               elementwise(starts_kernel, heads * plan.angles)};
  if (args.in.input_ssm != nullptr)
    launches.push_back(elementwise(seeds_kernel, heads * plan.headdim * plan.dstate));
  launches.push_back(by_block(prepare_kernel, plan.rows));
  const SsdBwdArgs ssd = ssd_args(args, plan, work);
  launches.push_back(products.states(ssd, plan, work, static_cast<unsigned char*>(workspace) + plan.bytes));
  launches.push_back(products.gradients(args, ssd, plan, work));
  launches.push_back(elementwise(turns_kernel, heads * plan.angles));
  if (args.dinput_ssm != nullptr) launches.push_back(by_block(start_kernel, heads));
  launches.push_back(by_block(finish_kernel, plan.rows));
  if (products.head_sums == HeadSums::kernel)
    launches.push_back(
        elementwise(heads_kernel, plan.batch * plan.seqlen * plan.groups * plan.dstate / kOctet));
  const int slabs = static_cast<int>(ceil_div(plan.sums, kSumColumns));
  launches.push_back(launch_of(rows_kernel, plan.nheads * slabs, dim3(kThreads), 0, args, plan, work, slabs));
  return [launches](void* stream) {
    for (const Launch& launch : launches) launch(stream);
  };
}

constexpr Products kChunked{HeadSums::kernel, chunked_states, chunked_gradients};
constexpr Products kHopper{HeadSums::block, hopper_states, hopper_gradients};
constexpr Arithmetic kArithmetic{.math = Math::bf16, .state_dtype = DType::bf16};

Launch bind_chunked(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-chunked " + *reason);
  return bind_with(bind_aligned(problem, tensors), workspace, kChunked);
}

Launch bind_hopper(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported_by_hopper(problem)) throw ContractError("cuda-hopper " + *reason);
  return bind_with(bind_aligned(problem, tensors), workspace, kHopper);
}

const Registration chunked{
    {.name = "cuda-chunked",
     .op = "mamba3_siso_bwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 steps by SSD's products on tensor cores, q and k rotated beforehand",
     .arithmetic = [](DType) { return kArithmetic; },
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem& problem) { return Plan(Mamba3(problem), HeadSums::kernel).bytes; },
     .bind = bind_chunked}};

const Registration on_hopper{
    {.name = "cuda-hopper",
     .op = "mamba3_siso_bwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 steps, products by wgmma, fed by TMA; heads of a group summed in registers",
     .arithmetic = [](DType) { return kArithmetic; },
     .unsupported = unsupported_by_hopper,
     .workspace_bytes =
         [](const Problem& problem) {
           const Plan plan(Mamba3(problem), HeadSums::block);
           return plan.bytes + handed_of(plan).bytes;
         },
     .bind = bind_hopper}};

}  // namespace
}  // namespace ssmbench::mamba3_bwd
