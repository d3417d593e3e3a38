// The fast kernels of selective_scan_bwd: launches, and the two kernels that go over segments and sums. The
// picture is in kernel.cuh, instantiations are in a file per io dtype.

#include "kernels/selective_scan/fused_bwd/launch.h"

#include "base/cuda_attribute.h"
#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/selective_scan/fused_bwd/kernel.cuh"
#include "kernels/selective_scan/shares.cuh"

namespace ssmbench::fused_bwd {

extern template BackwardKernels backward_kernels<float>(bool vectorized, bool idle_warps, bool small_blocks,
                                                        bool rounds);
extern template BackwardKernels backward_kernels<__half>(bool vectorized, bool idle_warps, bool small_blocks,
                                                         bool rounds);
extern template BackwardKernels backward_kernels<__nv_bfloat16>(bool vectorized, bool idle_warps,
                                                                bool small_blocks, bool rounds);

namespace {

constexpr int kCombineThreads = 256;
constexpr int kMaxCombineRuns = 32;  // blocks then read 32 bytes of each segment
constexpr int kSumSlices = 8;
constexpr int kSumWidth = kCombineThreads / kSumSlices;

/// Runs of combine_kernel: of at least 8 segments, whose loads are in flight together.
struct CombineRuns {
  int count = 1;
  std::int64_t segments, of_run;

  explicit CombineRuns(std::int64_t segments_of_all) : segments(segments_of_all) {
    while (count < kMaxCombineRuns && segments >= 16 * count) count *= 2;
    of_run = ceil_div(segments, std::int64_t{count});
  }
};

/// Where combine_kernel puts what a chain ends with, (B, D, N), and changes nothing else; null: nowhere.
struct ChainEnds {
  bool alone;
  float *states, *carries;
};

/// blockIdx.y + first_chain is 0: `states` from those at the ends of segments to those at their starts; 1:
/// `carries`, the other way. Chains over segments, or, where these are many, over several runs of segments at
/// a time: each run from zero, then the runs, then each run from its true value. With `ends` alone only what
/// they end with.
///
///   block    256 / runs neighbouring states of the grid, in the order of the workspace; a thread each for
///            every run
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const KernelArgs kernel, const CombineRuns runs, const unsigned first_chain,
                   const ChainEnds ends) {
  __shared__ float run_decays[kCombineThreads], run_values[kCombineThreads];
  const ScanArgs& args = kernel.args.scan;
  const BackwardPlan& plan = kernel.plan;
  const int width = kCombineThreads / runs.count;
  const int column = static_cast<int>(threadIdx.x) % width;
  const int run = static_cast<int>(threadIdx.x) / width;
  const StoredState state(kernel, static_cast<std::int64_t>(blockIdx.x) * width + column);
  const bool forward = blockIdx.y + first_chain == 0;
  float* const end_of_chain = forward ? ends.states : ends.carries;
  if (ends.alone && end_of_chain == nullptr) return;
  const float A = state.exists ? kLog2E * args.A[state.in_channels] : 0.0F;
  const std::int64_t first = run * runs.of_run;
  const int count = static_cast<int>(min(runs.of_run, runs.segments - first));  // negative: none
  // From one segment to the next, in the chain's order.
  const std::int64_t state_step = forward ? plan.state_floats() : -plan.state_floats();
  const std::int64_t sum_step = forward ? plan.rows() : -plan.rows();
  float* const own =
      kernel.workspace +
      (forward ? kernel.at.states : kernel.at.carries + (runs.segments - 1) * plan.state_floats()) +
      state.index + first * state_step;
  const float* const sums = kernel.workspace + kernel.at.delta_sums +
                            (forward ? 0 : (runs.segments - 1) * plan.rows()) + state.row + first * sum_step;
  constexpr int kAtOnce = 8;  // loads in flight together
  // Calls call(its own element, e^(A·ΣΔ), what the element is from zero) for the run's segments, in its
  // order.
  const auto for_run = [&](const auto& call) {
    float* element = own;
    const float* sum_at = sums;
    for (int left = count; left > 0; left -= kAtOnce) {
      float local[kAtOnce], sum[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int at = min(k, left - 1);
        local[k] = element[at * state_step];
        sum[k] = sum_at[at * sum_step];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (k < left) call(element[k * state_step], exp2_approximate(sum[k] * A), local[k]);
      element += kAtOnce * state_step;
      sum_at += kAtOnce * sum_step;
    }
  };

  if (runs.count > 1) {
    float product = 1.0F;
    float value = 0.0F;
    for_run([&](float& /*element*/, float decay, float local) {
      product *= decay;
      value = fmaf(decay, value, local);
    });
    run_decays[threadIdx.x] = product;
    run_values[threadIdx.x] = value;
    __syncthreads();
  }
  const float* const before_all = forward ? args.initial_state : kernel.args.dlast_state;
  float value = state.exists && before_all != nullptr ? before_all[state.in_batches] : 0.0F;
  for (int before = column; before < run * width + column; before += width)
    value = fmaf(run_decays[before], value, run_values[before]);
  for_run([&](float& element, float decay, float local) {
    if (!ends.alone) element = value;
    value = fmaf(decay, value, local);
  });
  if (ends.alone && run == runs.count - 1 && state.exists) end_of_chain[state.in_batches] = value;
}

/// Blocks of add_kernel: those of dA, of dD and ddelta_bias, of dB, of dC. And what takes divisions of 64
/// bits.
struct AddGrid {
  unsigned states, rows, shares;
  unsigned runs;                          ///< of a batch, each with a term of the sums over time
  std::int64_t run;                       ///< segments of a run
  std::int64_t batch_states, batch_rows;  ///< state_floats() and rows() of a batch

  AddGrid(const BackwardPlan& plan, const ShareLayout& layout)
      : states(static_cast<unsigned>(plan.state_floats() / plan.batch / kSumWidth)),
        rows(static_cast<unsigned>(plan.rows() / plan.batch / kSumWidth)),
        shares(static_cast<unsigned>(layout.blocks(kLaneStates))),
        runs(static_cast<unsigned>(plan.runs())),
        run(plan.run()),
        batch_states(plan.state_floats() / plan.batch),
        batch_rows(plan.rows() / plan.batch) {}
};

/// dA, dD, ddelta_bias: sums over batches and segments, and of the last over rounds. In order.
///
///   block    32 neighbouring states of the channels, in the order of the workspace; 32 channels in the last
///            blocks. Times 8 slices: every eighth run of all batches
__device__ void add_over_time(const KernelArgs& kernel, unsigned block, const AddGrid& grid) {
  __shared__ float partial[kSumSlices][kSumWidth];
  const BackwardPlan& plan = kernel.plan;
  const ScanGradientArgs& args = kernel.args;
  const int column = static_cast<int>(threadIdx.x) % kSumWidth;
  const unsigned slice = threadIdx.x / kSumWidth;
  // Complete in slice 0; all threads of a block have to call it.
  const auto sum = [&](std::int64_t from, std::int64_t of_run, std::int64_t of_batch) {
    // Every kSumSlices-th term, of batch after batch, without a division each.
    const unsigned runs = grid.runs;
    const unsigned terms = static_cast<unsigned>(plan.batch) * runs;
    const unsigned batches_on = kSumSlices / runs;
    const unsigned runs_on = kSumSlices - batches_on * runs;
    const std::int64_t step = batches_on * of_batch + runs_on * of_run;
    const std::int64_t into_next_batch = of_batch - runs * of_run;
    const unsigned first_batch = slice / runs;
    unsigned run = slice - first_batch * runs;
    const float* term = kernel.workspace + from + first_batch * of_batch + run * of_run;
    constexpr int kAtOnce = 8;  // loads in flight together
    float total = 0.0F;
    for (unsigned i = slice; i < terms; i += kAtOnce * kSumSlices) {
      float values[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        values[k] = i + k * kSumSlices < terms ? *term : 0.0F;
        term += step;
        run += runs_on;
        if (run >= runs) {
          run -= runs;
          term += into_next_batch;
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) total += values[k];
    }
    __syncthreads();
    partial[slice][column] = total;
    __syncthreads();
    for (int other = 1; slice == 0 && other < kSumSlices; ++other) total += partial[other][column];
    return total;
  };
  if (block < grid.states) {
    const StoredState state(kernel, static_cast<std::int64_t>(block) * kSumWidth + column);
    const float dA = sum(kernel.at.states + state.index, grid.run * plan.state_floats(), grid.batch_states);
    if (slice == 0 && state.exists) args.dA[state.in_channels] = dA;
    return;
  }
  const StoredRow row(plan, (block - grid.states) * kSumWidth + column);
  const float dD = sum(kernel.at.dD + row.index, plan.rows(), grid.batch_rows);
  const float ddelta_bias = sum(kernel.at.ddelta_bias + row.index, plan.rows(), grid.batch_rows);
  if (slice != 0 || !row.exists) return;
  if (args.dD != nullptr) args.dD[row.d] = dD;
  if (args.ddelta_bias != nullptr)
    args.ddelta_bias[row.d] = kernel.round.first ? ddelta_bias : args.ddelta_bias[row.d] + ddelta_bias;
}

ShareLayout shares_of(const BackwardPlan& plan) {
  return {plan.batch * plan.groups, plan.blocks_per_group, plan.span, ceil_log2(kPaddedStates)};
}

/// What a round leaves in the workspace: dB and dC of some steps; and, where `grid` has blocks of them, sums
/// over time. All in one launch, since each alone leaves most of the memory's bandwidth.
template <class Io>
__global__ void __launch_bounds__(kCombineThreads)
    add_kernel(const KernelArgs kernel, const ShareLayout layout, const SegmentRange steps,
               const AddGrid grid) {
  static_assert(kCombineThreads == kShareThreads);
  hopper::wait_for_prerequisites();
  const unsigned over_time = grid.states + grid.rows;
  if (blockIdx.x < over_time) {
    add_over_time(kernel, blockIdx.x, grid);
    return;
  }
  const unsigned block = blockIdx.x - over_time;
  const bool is_B = block < grid.shares;
  const ScanArgs& scan = kernel.args.scan;
  add_shares<Io, float, kLaneStates>(
      {kernel.workspace + (is_B ? kernel.at.shares_B : kernel.at.shares_C),
       is_B ? kernel.args.dB : kernel.args.dC, is_B ? scan.b_strides : scan.c_strides, steps, scan.groups,
       kernel.round.states, layout},
      is_B ? block : block - grid.shares);
}

unsigned grid_of(std::int64_t blocks) {
  return static_cast<unsigned>(blocks);
}

/// Chains [first, end): 0 is that of states, 1 that of carries.
void combine(const KernelArgs& kernel, unsigned first, unsigned end, const ChainEnds& ends,
             cudaStream_t stream) {
  const CombineRuns runs(kernel.plan.segments());
  combine_kernel<<<dim3(grid_of(kernel.plan.state_floats() / (kCombineThreads / runs.count)), end - first),
                   kCombineThreads, 0, stream>>>(kernel, runs, first, ends);
  check_cuda(cudaGetLastError());
}

BackwardKernels kernels_of(const ScanGradientArgs& args, DType io, const BackwardPlan& plan) {
  return with_io_type(io, [&]<class Io>(std::type_identity<Io>) {
    return backward_kernels<Io>(in_vectors(args, io), plan.idle_warps(), plan.small_blocks(),
                                plan.rounds() > 1);
  });
}

/// What leaves the carries.
BackwardKernels::Segment carries_of(const BackwardKernels& kernels, const BackwardPlan& plan) {
  return plan.given_states ? kernels.segment_of_carry : kernels.segment_with_carry;
}
const BackwardKernels::Gradients& gradients_of(const BackwardKernels& kernels, const BackwardPlan& plan) {
  return plan.given_states ? kernels.gradients_with_x : kernels.gradients;
}

/// A tensor from a later element on; null where there is none.
template <class Tensor>
Tensor* moved(Tensor* tensor, std::int64_t bytes) {
  return tensor == nullptr ? nullptr
                           : reinterpret_cast<Tensor*>(reinterpret_cast<std::uintptr_t>(tensor) +
                                                       static_cast<std::uintptr_t>(bytes));
}

}  // namespace

bool takes_x(const ScanGradientArgs& args, DType io) {
  return in_vectors(args, io) && reinterpret_cast<std::uintptr_t>(args.scan.x) % 16 == 0;
}

std::int64_t add_blocks(const BackwardPlan& plan) {
  const std::int64_t sums = (plan.state_floats() + plan.rows()) / plan.batch / kSumWidth;
  return sums + 2 * shares_of(plan).blocks(kLaneStates);
}

bool fits(DType io) {
  const auto bytes = with_io_type(io, []<class Io>(std::type_identity<Io>) {
    return backward_kernels<Io>(true, false, false, false).gradients.bytes;
  });
  return static_cast<int>(bytes) <= cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

Backward::Backward(const ScanGradientArgs& args, DType io, const BackwardPlan& plan, float* workspace)
    : args_(args), io_(io), plan_(plan), workspace_(workspace) {
  const auto allow = [](auto* kernel, std::size_t bytes) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  };
  const BackwardKernels kernels = kernels_of(args, io, plan);
  allow(kernels.segment, kernels.segment_bytes);
  allow(carries_of(kernels, plan), kernels.segment_with_carry_bytes);
  const BackwardKernels::Gradients& gradients = gradients_of(kernels, plan);
  allow(gradients.kernel, gradients.bytes);
}

KernelArgs Backward::of_round(std::int64_t round) const {
  const std::int64_t first = round * kPaddedStates;
  ScanGradientArgs args = args_;
  ScanArgs& scan = args.scan;
  const auto states = static_cast<std::int64_t>(sizeof(float)) * first;
  const auto projections = static_cast<std::int64_t>(size_of(io_)) * first;
  scan.A = moved(scan.A, states);
  scan.B = moved(scan.B, projections * scan.b_strides.state);
  scan.C = moved(scan.C, projections * scan.c_strides.state);
  scan.initial_state = moved(scan.initial_state, states);
  args.dlast_state = moved(args.dlast_state, states);
  args.dA = moved(args.dA, states);
  args.dB = moved(args.dB, projections * scan.b_strides.state);
  args.dC = moved(args.dC, projections * scan.c_strides.state);
  args.dinitial_state = moved(args.dinitial_state, states);
  if (round > 0) {
    scan.D = nullptr;
    args.dD = nullptr;
  }
  return {args,
          plan_,
          backward_workspace(plan_).of_round(round),
          workspace_,
          {static_cast<int>(std::min<std::int64_t>(plan_.dstate - first, kPaddedStates)), round == 0,
           round + 1 == plan_.rounds()}};
}

/// All segments of a round from zero.
void Backward::run_segments(const BackwardKernels& kernels, const KernelArgs& kernel,
                            cudaStream_t stream) const {
  const auto segment = plan_.in_turn ? kernels.segment : carries_of(kernels, plan_);
  segment<<<grid_of(plan_.segments() * plan_.blocks() * plan_.segment_blocks()), kSegmentThreads,
            plan_.in_turn ? kernels.segment_bytes : kernels.segment_with_carry_bytes, stream>>>(
      kernel, 0, plan_.spans() == 1, true);
  check_cuda(cudaGetLastError());
}

/// The true states and carries between a round's segments. What blocks go through in turn needs no carries
/// beforehand.
void Backward::connect_segments(const KernelArgs& kernel, cudaStream_t stream) const {
  combine(kernel, plan_.given_states ? 1 : 0, plan_.in_turn ? 1 : 2, {}, stream);
}

SegmentRange Backward::segments_of(std::int64_t span) const {
  const std::int64_t first = span * plan_.span_segments();
  return {first, std::min(first + plan_.span_segments(), plan_.segments())};
}

/// The gradients of a span's steps by a round. With several spans its states are made again, to be kept.
void Backward::run_span(const BackwardKernels& kernels, const KernelArgs& kernel, std::int64_t span,
                        cudaStream_t stream) const {
  const SegmentRange segments = segments_of(span);
  const std::int64_t count = segments.end - segments.begin;
  if (plan_.spans() > 1 && !plan_.given_states) {
    kernels.segment<<<grid_of(count * plan_.blocks() * plan_.segment_blocks()), kSegmentThreads,
                      kernels.segment_bytes, stream>>>(kernel, segments.begin, true, false);
    check_cuda(cudaGetLastError());
  }
  const BackwardKernels::Gradients& gradients = gradients_of(kernels, plan_);
  gradients.kernel<<<grid_of(ceil_div(count, plan_.run()) * plan_.blocks()),
                     gradient_threads(gradients.warps), gradients.bytes, stream>>>(kernel, segments.begin);
  check_cuda(cudaGetLastError());
  add(kernel, {span * plan_.span, std::min((span + 1) * plan_.span, plan_.seqlen)}, stream);
}

/// dB and dC of a span; behind the first, which is the last to be done, the round's sums over time.
void Backward::add(const KernelArgs& kernel, const SegmentRange& steps, cudaStream_t stream) const {
  const ShareLayout layout = shares_of(plan_);
  AddGrid grid(plan_, layout);
  if (steps.begin > 0) grid.states = grid.rows = 0;
  with_io_type(io_, [&]<class Io>(std::type_identity<Io>) {
    hopper::launch_kernel(hopper::Begin::early, stream, add_kernel<Io>,
                          std::int64_t{grid.states} + grid.rows + 2 * grid.shares, dim3(kCombineThreads), 0,
                          kernel, layout, steps, grid);
  });
}

void Backward::launch(cudaStream_t stream) const {
  const BackwardKernels kernels = kernels_of(args_, io_, plan_);
  const auto begin_round = [&](const KernelArgs& kernel) {
    if (plan_.given_states && plan_.in_turn) return;
    run_segments(kernels, kernel, stream);
    connect_segments(kernel, stream);
  };
  const bool one_span = plan_.spans() == 1;
  for (std::int64_t round = 0; !one_span && round < plan_.rounds(); ++round) begin_round(of_round(round));
  for (std::int64_t span = plan_.spans() - 1; span >= 0; --span)
    for (std::int64_t round = 0; round < plan_.rounds(); ++round) {
      const KernelArgs kernel = of_round(round);
      if (one_span) begin_round(kernel);  // kept states are of one round at a time
      run_span(kernels, kernel, span, stream);
    }
}

void Backward::launch_segments(cudaStream_t stream) const {
  run_segments(kernels_of(args_, io_, plan_), of_round(0), stream);
}

void Backward::launch_ends(const ProblemEnds& ends, cudaStream_t stream) const {
  KernelArgs kernel = of_round(0);
  kernel.args.scan.initial_state = ends.state;
  kernel.args.dlast_state = ends.gradient;
  combine(kernel, 0, 2, {.alone = true, .states = ends.leaving, .carries = ends.entering}, stream);
}

void Backward::launch_gradients(cudaStream_t stream) const {
  const BackwardKernels kernels = kernels_of(args_, io_, plan_);
  const KernelArgs kernel = of_round(0);
  connect_segments(kernel, stream);
  for (std::int64_t span = plan_.spans() - 1; span >= 0; --span) run_span(kernels, kernel, span, stream);
}

}  // namespace ssmbench::fused_bwd
