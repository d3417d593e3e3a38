#pragma once

// cuda-chunked and cuda-hopper for Mamba-3's gradients: launch. In order:
//
//   sequences            of packed ones: the table of spans (sequences.h), with cuda-hopper tensor maps, too
//                        (hopper_bwd/sequences.cuh)
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

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/errors.h"
#include "kernels/common/f32_copies.h"
#include "kernels/common/hopper/device.h"
#include "kernels/common/launch.cuh"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/hopper_bwd/finish.cuh"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/hopper_bwd/phases.h"
#include "kernels/mamba3/tensor_bwd/device_io.cuh"
#include "kernels/mamba3/tensor_bwd/finish.h"
#include "kernels/mamba3/tensor_bwd/gradients.cuh"
#include "kernels/mamba3/tensor_bwd/threads.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"
#include "kernels/ssd_chunk_scan/shared_memory.h"

namespace ssmbench::ssd_hopper_bwd {
extern template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, void*);
}  // namespace ssmbench::ssd_hopper_bwd

namespace ssmbench::mamba3_bwd {
namespace {

constexpr int kThreads = 256;
using Bf16 = __nv_bfloat16;

using BlockTeam = Threads<kThreads>;

__device__ std::int64_t thread_of_grid() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads)
    sequence_table_kernel(const std::int32_t* cu_seqlens, const Plan plan, const Workspace work) {
  __shared__ std::int32_t runs[kSequenceRuns];
  make_sequence_table(cu_seqlens, plan.sequences, plan.spans, work.table, runs, BlockTeam());
}

template <class Io, class Form>
__global__ void __launch_bounds__(kThreads)
    increments_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ alignas(16) std::uint32_t parts[kIncrementSpans * kSpanParts * kPartPitch];
  add_increments<Io, Form>(args.in, plan, work, std::int64_t{blockIdx.x} * kIncrementSpans, parts,
                           BlockTeam());
}

using ScanTeam = Threads<kScanThreads>;

__global__ void __launch_bounds__(kScanThreads)
    starts_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, int segments) {
  __shared__ std::uint32_t sums[kScanThreads];
  const ScanTeam team;
  add_starts(args.in, work, ChunkScan<std::uint32_t, ScanTeam>{plan, blockIdx.x, segments, sums, team});
}

inline constexpr int kPhaseThreads = 128;

__global__ void __launch_bounds__(kPhaseThreads)
    chunk_phases_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ PhaseMemory memory;
  const Threads<kPhaseThreads> team;
  const Span row(plan, blockIdx.x, work.table.spans);
  if (row.steps == 0) return;
  ChunkPhases<DeviceIo<Bf16>, Threads<kPhaseThreads>>{args.in, plan, work, memory, row, team}.run();
}

__global__ void __launch_bounds__(kScanThreads)
    phase_starts_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, int segments) {
  __shared__ std::uint32_t sums[kScanThreads];
  const ScanTeam team;
  add_phase_starts(args.in, work, ChunkScan<std::uint32_t, ScanTeam>{plan, blockIdx.x, segments, sums, team});
}

template <class Io>
__global__ void seeds_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.sequences * plan.nheads * plan.headdim * plan.dstate) make_seed<Io>(args.in, plan, work, at);
}

__global__ void last_adjoint_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.sequences * plan.nheads * plan.headdim * plan.dstate) copy_last_adjoint(args, plan, work, at);
}

template <class Io>
__global__ void raise_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.seqlen * plan.nheads * plan.headdim / kOctet)
    raise_ranks<Io>(args, plan, work, at);
}

/// Blocks of lower_kernel that a multiprocessor has registers for: 8 ranks have twice the sums, f32 has twice
/// the loads. (With three, loads of the next step have fewer registers.)
template <class Io, class Form>
inline constexpr int kLowerBlocks = Form::kRanks == 8 || Io::kIsF32 ? 1 : 2;

template <class Io, class Form>
__global__ void __launch_bounds__(kThreads, kLowerBlocks<Io, Form>)
    lower_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ FactorMemory<Form> memory;
  const BlockTeam team;
  const Span row(plan, blockIdx.x, work.table.spans);
  if (row.steps == 0) return;
  LowerRanks<Io, Form, BlockTeam>{args, plan, work, memory, row, team}.run();
}

template <class Io, class Form, bool kHalves>
__global__ void __launch_bounds__(kThreads, 4)
    prepare_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, bool rotates) {
  __shared__ PrepareMemory memory;
  const BlockTeam team;
  const Span row(plan, blockIdx.x, work.table.spans);
  if (row.steps == 0) return;
  Preparation<Io, Form, kHalves, BlockTeam>{args.in, plan, work, memory, row, rotates, team}.run();
}

__global__ void pair_states_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.sequence_rows() * plan.groups * plan.dstate / kOctet)
    pair_states<DeviceIo<Bf16>>(args.in, plan, work, at);
}

__global__ void biases_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.nheads * 2 * plan.ranks * plan.dstate_tiles * kSteps) order_biases(args.in, plan, work, at);
}

__global__ void __launch_bounds__(kScanThreads)
    turns_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work, int segments) {
  __shared__ float sums[kScanThreads];
  const ScanTeam team;
  add_turns(args, work, ChunkScan<float, ScanTeam>{plan, blockIdx.x, segments, sums, team});
}

template <class Io>
__global__ void __launch_bounds__(kThreads)
    start_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ float terms[kMaxRanks * kMaxStates];
  store_start<Io>(args, plan, work, blockIdx.x, terms, BlockTeam());
}

/// Blocks of finish_kernel that a multiprocessor has registers for. Before Ampere it has 1024 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kFinishBlocks = 4;
#else
constexpr int kFinishBlocks = 5;
#endif

template <class Io, class Form>
__global__ void __launch_bounds__(kThreads, kFinishBlocks)
    finish_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ FinishMemory memory;
  const BlockTeam team;
  const Span row(plan, blockIdx.x, work.table.spans);
  if (row.steps == 0) return;
  Finish<Io, Form, BlockTeam>{args, plan, work, memory, row, team}.run();
}

__global__ void __launch_bounds__(kFinishThreads, 5)
    chunk_finish_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  __shared__ ChunkFinishMemory memory;
  const Span row(plan, blockIdx.x, work.table.spans);
  if (row.steps == 0) return;
  ChunkFinish<DeviceIo<Bf16>>(args, plan, work, memory, row).run();
}

template <class Io>
__global__ void heads_kernel(const Mamba3BwdArgs args, const Plan plan, const Workspace work) {
  const std::int64_t at = thread_of_grid();
  if (at < plan.batch * plan.sequence_rows() * plan.groups * plan.dstate / kOctet)
    add_heads<Io>(args, plan, work, at);
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

inline Launch sequence_table(const Mamba3BwdArgs& args, const SsdBwdArgs& /*ssd*/, const Plan& plan,
                             const Workspace& work) {
  return launch_of(sequence_table_kernel, 1, dim3(kThreads), 0, args.in.cu_seqlens, plan, work);
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
  /// Of packed sequences: the table of their spans, and what else the products need of them.
  Launch (*sequences)(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                      const Workspace& work) = sequence_table;
};

/// Packed sequences, of which SSD's walks take all.
struct PackedChunks {
  static constexpr bool kPacked = true;
  SequenceTable table;
  std::int64_t sequences;
  int rank_bits;  ///< a span has 2^rank_bits chunks, and a step as many rows

  __device__ std::int64_t count() const { return std::int64_t{table.begins[sequences]} << rank_bits; }
  template <Walk kWalk>
  __device__ WalkChunk at(std::int64_t chunk) const {
    const int of_span = static_cast<int>(chunk) & (1 << rank_bits) - 1;
    const SequenceSpan of = chunk_of_span(table.spans[chunk >> rank_bits], of_span, kSteps >> rank_bits);
    const bool opens = (of.ends & SequenceSpan::kOpens) != 0;
    const bool closes = (of.ends & SequenceSpan::kCloses) != 0;
    constexpr bool kForward = kWalk == Walk::forward;
    return {std::int64_t{of.start} << rank_bits, of.steps << rank_bits, of.sequence,
            kForward ? opens : closes, kForward ? closes : opens};
  }
};

template <class Element>
Launch chunked_states(const Mamba3BwdArgs& /*args*/, const SsdBwdArgs& ssd, const Plan& plan,
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
  const auto walks = [&](const auto& chunks) -> Launch {
    return [=, in = ssd.in](void* on) {
      auto* const stream = static_cast<cudaStream_t>(on);
      launch_states<Element, Element, Walk::forward>(in, forward, grid, stream, chunks);
      launch_states<Element, Element, Walk::backward>(in, backward, grid, stream, chunks);
    };
  };
  const int rank_bits = std::countr_zero(static_cast<unsigned>(plan.ranks));
  return plan.packed ? walks(PackedChunks{work.table, plan.sequences, rank_bits}) : walks(BatchChunks());
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
  ssd_hopper_bwd::Walks of_ssd = ssd_hopper_bwd::make_walks<Bf16>(of_groups, cut, arrays, handed);
  const int parts = walk_parts(plan);
  of_ssd.forward.parts = of_ssd.backward.parts = parts;
  of_ssd.forward.handed = of_ssd.backward.handed = handed_states(handed_of(plan), handed);
  of_ssd.backward.handed.states += plan.batch * plan.nheads * parts * kSteps * kSteps * plan.dstate_tiles;
  of_ssd.backward.handed.decays += plan.batch * plan.nheads * parts;
  return turning_walks(args, of_ssd, plan, work);
}

/// The reason where it is the GPU's.
inline std::optional<std::string> unsupported_device() {
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

/// What neither implementation of either operation supports.
inline std::optional<std::string> unsupported_size(const Problem& problem) {
  const Mamba3 scan(problem);
  if (scan.headdim > kMaxHeaddim) return "needs headdim of at most 64: a chunk's head dims are one tile";
  if (scan.dstate > kMaxStates) return "needs dstate of at most 128: a chunk's q and k are in shared memory";
  if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0)
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  if (scan.nheads > 2147483647 / (kSteps * scan.angles)) return "needs at most 2147483647 angles in 64 steps";
  const Plan plan(scan, HeadSums::kernel);
  if (auto reason = grid_too_large({scan.sequences, scan.nheads, scan.angles}, "angle of a sequence"))
    return reason;
  return grid_too_large({plan.rows, ceil_div(scan.angles + plan.sums, kSumColumns)},
                        "64 rows of a head and 32 sums");
}

template <class Element, class Form, int kTilesN>
Launch gradients_of(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work) {
  constexpr int kBytes = GradientTiles<Element, Form, kTilesN>::kBytes;
  const auto kernel = gradients_kernel<Element, Form, kTilesN>;
  allow_shared_bytes(kernel, kBytes);
  return launch_of(kernel, plan.rows, dim3(kGradientThreads), kBytes, args, plan, work);
}
template <class Element, class Form>
Launch chunked_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& /*ssd*/, const Plan& plan,
                         const Workspace& work) {
  return plan.dstate_tiles == 1 ? gradients_of<Element, Form, 1>(args, plan, work)
                                : gradients_of<Element, Form, 2>(args, plan, work);
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
template <class Element>
std::size_t chunked_workspace_bytes(const Problem& problem) {
  return Plan(Mamba3(problem), HeadSums::kernel, sizeof(Element)).bytes;
}

constexpr Arithmetic kArithmetic{.math = Math::bf16, .state_dtype = DType::bf16};

/// Of cuda-chunked.
inline Arithmetic arithmetic_of(DType io) {
  if (io == DType::bf16) return kArithmetic;
  return {.math = Math::tf32, .state_dtype = DType::f32};
}

/// The reason where a block of f32 tiles does not fit.
template <class Form>
std::optional<std::string> unsupported_tiles(const Mamba3& scan) {
  const int bytes =
      static_cast<int>(sizeof(GradientShared<Form>)) +
      (scan.dstate > kSteps ? GradientTiles<float, Form, 2>::kBytes : GradientTiles<float, Form, 1>::kBytes);
  if (!shared_memory_fits(bytes)) return "needs more shared memory for f32 tiles";
  return {};
}

/// What differs between cuda-chunked in bf16 and in f32.
struct OfElement {
  decltype(Implementation::unsupported) unsupported;
  decltype(Implementation::workspace_bytes) workspace_bytes;
  decltype(Implementation::bind) bind;
};
/// cuda-chunked of all dtypes: f16 by copies in f32.
inline Implementation for_dtypes(const Implementation& in_bf16, const OfElement& f32) {
  Implementation all = in_bf16;
  Implementation of_f32 = in_bf16;
  of_f32.unsupported = f32.unsupported;
  of_f32.workspace_bytes = f32.workspace_bytes;
  of_f32.bind = f32.bind;
  const auto for_dtype =
      [in_bf16, in_tf32 = with_f32_copies(of_f32)](const Problem& problem) -> const Implementation& {
    return problem.dtype() == DType::bf16 ? in_bf16 : in_tf32;
  };
  all.unsupported = [=](const Problem& problem) { return for_dtype(problem).unsupported(problem); };
  all.workspace_bytes = [=](const Problem& problem) { return for_dtype(problem).workspace_bytes(problem); };
  all.bind = [=](const Problem& problem, const TensorSet& tensors, void* workspace) {
    return for_dtype(problem).bind(problem, tensors, workspace);
  };
  return all;
}

template <class Element, class Form>
Launch bind_with(const Mamba3BwdArgs& args, void* workspace, const Products& products) {
  using Io = DeviceIo<Element>;
  const Plan plan(args.in.scan, products.head_sums, sizeof(Element));
  const Workspace work(plan, workspace);
  const std::int64_t heads = plan.sequences * plan.nheads;
  const std::int64_t spans = plan.batch * plan.nheads * plan.spans;
  const auto elementwise = [&](auto kernel, std::int64_t count) {
    return launch_of(kernel, ceil_div(count, kThreads), dim3(kThreads), 0, args, plan, work);
  };
  const auto by_block = [&](auto kernel, std::int64_t blocks) {
    return launch_of(kernel, blocks, dim3(kThreads), 0, args, plan, work);
  };
  const auto over_chunks = [&](auto kernel) {
    const int segments = scan_segments(plan);
    return launch_of(kernel, scan_blocks(plan, segments), dim3(kScanThreads), 0, args, plan, work, segments);
  };
  const bool rotates = !products.walks_make_operands;
  const bool turns_later = !rotates && !Form::kIsMimo;
  const SsdBwdArgs ssd = ssd_args(args, plan, work);
  std::vector<Launch> launches;
  if (plan.packed) launches.push_back(products.sequences(args, ssd, plan, work));
  if (turns_later) {
    launches.push_back(launch_of(chunk_phases_kernel, spans, dim3(kPhaseThreads), 0, args, plan, work));
    launches.push_back(over_chunks(phase_starts_kernel));
  } else {
    launches.push_back(by_block(increments_kernel<Io, Form>, ceil_div(spans, kIncrementSpans)));
    launches.push_back(over_chunks(starts_kernel));
  }
  if (args.in.input_ssm != nullptr)
    launches.push_back(elementwise(seeds_kernel<Io>, heads * plan.headdim * plan.dstate));
  if (plan.halves && args.dfinal_ssm != nullptr)
    launches.push_back(elementwise(last_adjoint_kernel, heads * plan.headdim * plan.dstate));
  if (!turns_later)
    launches.push_back(
        launch_of(plan.halves ? prepare_kernel<Io, Form, true> : prepare_kernel<Io, Form, false>, spans,
                  dim3(kThreads), 0, args, plan, work, rotates));
  const std::int64_t octets_of_group = plan.batch * plan.sequence_rows() * plan.groups * plan.dstate / kOctet;
  if constexpr (Form::kIsMimo) {
    if (rotates)
      launches.push_back(
          elementwise(raise_kernel<Io>, plan.batch * plan.seqlen * plan.nheads * plan.headdim / kOctet));
    else if (plan.halves)
      launches.push_back(elementwise(pair_states_kernel, octets_of_group));
    if (!rotates)
      launches.push_back(
          elementwise(biases_kernel, plan.nheads * 2 * plan.ranks * plan.dstate_tiles * kSteps));
  }
  launches.push_back(
      products.states(args, ssd, plan, work, static_cast<unsigned char*>(workspace) + plan.bytes));
  launches.push_back(products.gradients(args, ssd, plan, work));
  launches.push_back(over_chunks(turns_kernel));
  if (args.dinput_ssm != nullptr) launches.push_back(by_block(start_kernel<Io>, heads));
  launches.push_back(turns_later
                         ? launch_of(chunk_finish_kernel, spans, dim3(kFinishThreads), 0, args, plan, work)
                         : by_block(finish_kernel<Io, Form>, spans));
  if (products.head_sums == HeadSums::kernel)
    launches.push_back(elementwise(heads_kernel<Io>, octets_of_group));
  const auto by_columns = [&](auto kernel, int columns) {
    const int slabs = static_cast<int>(ceil_div(columns, kSumColumns));
    launches.push_back(launch_of(kernel, plan.nheads * slabs, dim3(kThreads), 0, args, plan, work, slabs));
  };
  by_columns(rows_kernel, plan.sums);
  if constexpr (Form::kIsMimo) {
    launches.push_back(by_block(lower_kernel<Io, Form>, spans));
    by_columns(spans_kernel, plan.factor_sums);
  }
  return [launches](void* stream) {
    for (const Launch& launch : launches) launch(stream);
  };
}

}  // namespace
}  // namespace ssmbench::mamba3_bwd
