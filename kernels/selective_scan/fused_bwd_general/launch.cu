// cuda-fused for selective_scan_bwd: registration, launches, and the kernels that only add. The common
// case from Hopper on is in fused_bwd/. The general kernels for everything else, with the picture of their
// threads, are in kernel.cuh; their instantiations are in real.cu and complex.cu.

#include <string>

#include "base/cuda_check.h"
#include "base/errors.h"
#include "kernels/common/hopper/device.h"
#include "kernels/common/launch.cuh"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/fused_bwd/launch.h"
#include "kernels/selective_scan/fused_bwd_general/halves.h"
#include "kernels/selective_scan/fused_bwd_general/kernel.cuh"
#include "kernels/selective_scan/segments.cuh"
#include "kernels/selective_scan/shares.cuh"
#include "ops/selective_scan/x.h"

namespace ssmbench::fused_bwd_general {

extern template GeneralBackwardKernels general_backward_kernels<float>(MethodId method,
                                                                       const GeneralBackwardPlan& plan);
extern template GeneralBackwardKernels general_backward_kernels<Complex>(MethodId method,
                                                                         const GeneralBackwardPlan& plan);

namespace {

constexpr int kAddThreads = 256;
constexpr int kOfShareThread = 1;  // values; there may be one state

/// Adds the shares of dB and dC, of which blockIdx.y names one, over the blocks of a group.
struct ProjectionShares {
  Shares of[2];
  int count;

  void add(const Shares& shares) { of[count++] = shares; }
};

template <class Io, class Value>
__global__ void __launch_bounds__(kShareThreads) share_kernel(const ProjectionShares all) {
  add_shares<Io, Value, kOfShareThread>(all.of[blockIdx.y], blockIdx.x);
}

void add_projections(DType io, bool complex, const ProjectionShares& shares, cudaStream_t stream) {
  if (shares.count == 0) return;
  const dim3 grid(static_cast<unsigned>(shares.of[0].layout.blocks(kOfShareThread)),
                  static_cast<unsigned>(shares.count));
  if (complex)
    share_kernel<float, Complex><<<grid, kShareThreads, 0, stream>>>(shares);
  else
    with_io_type(io, [&]<class Io>(std::type_identity<Io>) {
      share_kernel<Io, float><<<grid, kShareThreads, 0, stream>>>(shares);
    });
  check_cuda(cudaGetLastError());
}

/// to[i] = Σ_k from[k·count + i], k < terms, in order.
struct RowSum {
  const float* from;
  float* to;
  std::int64_t count, terms;
};

/// dA, constant dB and dC, dD, ddelta_bias from the sums of each batch, and of each segment side by side.
struct RowSums {
  RowSum sums[5];
  int count;

  void add(const RowSum& sum) { sums[count++] = sum; }
};

///   block    256 neighbouring elements of one of the sums, which blockIdx.y names; a thread each
__global__ void __launch_bounds__(kAddThreads) row_sum_kernel(const RowSums all) {
  const RowSum one = all.sums[blockIdx.y];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kAddThreads + threadIdx.x;
  if (i >= one.count) return;
  float sum = one.from[i];
#pragma unroll 8
  for (std::int64_t k = 1; k < one.terms; ++k) sum += one.from[k * one.count + i];
  one.to[i] = sum;
}

GeneralBackwardPlan plan_of(const Problem& problem) {
  const SelectiveScan scan(problem);
  const bool two = with_family(scan.method, [](auto family) { return two_samples(family); });
  return plan_general_backward(scan, two, tensor_bytes(problem));
}

ShareLayout shares_of(const GeneralBackwardPlan& plan) {
  return {plan.blocks / plan.tile.blocks_per_group, plan.tile.blocks_per_group, plan.span(),
          plan.tile.states_log2()};
}

fused_bwd::BackwardPlan fast_plan_of(const Problem& problem, bool in_two_halves = false) {
  return fused_bwd::plan_backward(SelectiveScan(problem), tensor_bytes(problem),
                                  problem.dtype() != DType::f32, in_two_halves, has_x(problem));
}

/// The largest grid of the fast kernels.
std::int64_t blocks_of(const fused_bwd::BackwardPlan& plan) {
  return std::max(plan.blocks() * plan.segments() * plan.segment_blocks(), fused_bwd::add_blocks(plan));
}

std::optional<std::string> too_many(std::int64_t blocks) {
  if (blocks > kMaxGridX)
    return "needs at most 2147483647 blocks, and not " + std::to_string(blocks) +
           ": one per some channels of a batch, and one per batch, group and " +
           std::to_string(kShareThreads) + " states of a segment of time";
  return std::nullopt;
}

std::optional<std::string> unsupported(const Problem& problem) {
  if (has_x(problem)) {
    if (auto reason = not_in_vectors_of_x(problem)) return reason;
    if (!fused_bwd::applies(SelectiveScan(problem), tensor_bytes(problem)))
      return "has x for groups of 16 channels or a few smaller ones";
    if (hopper::wrong_device()) return "has x on GPUs of compute capability 9.0";
  }
  const GeneralBackwardPlan general = plan_of(problem);
  std::int64_t blocks = std::max(general.blocks, shares_of(general).blocks(kOfShareThread));
  if (fused_bwd::applies(SelectiveScan(problem), tensor_bytes(problem)))
    blocks = std::max(blocks, blocks_of(fast_plan_of(problem)));
  return too_many(blocks);
}

/// Enough for whichever kernels the device takes.
std::size_t workspace_bytes(const Problem& problem) {
  std::int64_t floats = general_backward_workspace(plan_of(problem)).floats;
  if (fused_bwd::applies(SelectiveScan(problem), tensor_bytes(problem)))
    floats = std::max(floats, fused_bwd::backward_workspace(fast_plan_of(problem)).floats);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

/// Everything that is launched for one problem, last segment first.
class Backward {
 public:
  Backward(const Problem& problem, const TensorSet& tensors, void* workspace)
      : args_(bind_scan_gradients(problem, tensors)),
        io_(problem.dtype()),
        complex_(SelectiveScan(problem).complex),
        plan_(plan_of(problem)),
        at_(general_backward_workspace(plan_)),
        workspace_(static_cast<float*>(workspace)),
        method_(method_parameters(SelectiveScan(problem).method)),
        kernels_(complex_ ? general_backward_kernels<Complex>(SelectiveScan(problem).method, plan_)
                          : general_backward_kernels<float>(SelectiveScan(problem).method, plan_)) {
    // The limit and not what this problem needs: other problems use the same kernel.
    const auto allow = [](auto* kernel) {
      check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      kGeneralBackwardMaxSharedBytes));
    };
    allow(kernels_.gradient);
    if (plan_.cut()) allow(kernels_.segment);
  }

  void launch(cudaStream_t stream) const {
    if (plan_.cut())
      run_side_by_side(stream);
    else
      walk_segments(
          plan_, at_, workspace_, plan_.levels - 1, {0, args_.scan.seqlen}, nullptr,
          [&](const StateRun& run) { run_forward(run, 1, nullptr, stream); },
          [&](const SegmentRange& segment, const float* from) { run_segment(segment, from, stream); });
    add_batches(stream);
  }

 private:
  /// `from`: the states before it, or null where it is the first.
  void run_segment(const SegmentRange& range, const float* from, cudaStream_t stream) const {
    const std::int64_t whole_tiles = (range.end - range.begin - 1) >> plan_.tile.steps_log2;
    run_forward({from, workspace_ + at_.tile_states, range.begin,
                 range.begin + (whole_tiles << plan_.tile.steps_log2), plan_.tile.steps()},
                1, nullptr, stream);
    run_gradient(range, 1, stream);
  }

  /// All segments from zero; the states at their starts and the carries at their ends, each a scan over
  /// segments; then all segments, a span after the other.
  void run_side_by_side(cudaStream_t stream) const {
    kernels_.segment<<<grid(plan_.segments()), static_cast<unsigned>(plan_.tile.threads()),
                       static_cast<std::size_t>(plan_.shared_bytes()), stream>>>(args_, io_, plan_, method_,
                                                                                 workspace_, at_);
    check_cuda(cudaGetLastError());
    combine(at_.start_decays, at_.starts, args_.scan.initial_state, stream);
    combine(at_.carry_decays, at_.carry, args_.dlast_state, stream);
    const std::int64_t seqlen = args_.scan.seqlen;
    for (std::int64_t begin = (seqlen - 1) / plan_.span() * plan_.span(); begin >= 0; begin -= plan_.span()) {
      const SegmentRange span{begin, std::min(begin + plan_.span(), seqlen)};
      const std::int64_t segments = ceil_div(span.end - span.begin, plan_.segment());
      run_forward({nullptr, workspace_ + at_.tile_states, span.begin, span.end, plan_.tile.steps()}, segments,
                  workspace_ + at_.starts, stream);
      run_gradient(span, segments, stream);
    }
  }

  /// `decays` and `ends` of all borders between segments, in floats of the workspace, in the order in which
  /// values follow from `first`, (B, D, N) or null for zeros.
  void combine(std::int64_t decays, std::int64_t ends, const float* first, cudaStream_t stream) const {
    const SegmentStates segments{
        {plan_.segment(), plan_.segments()}, plan_.states(), workspace_ + decays, workspace_ + ends};
    (complex_ ? combine_launch<Complex>(segments, first, false)
              : combine_launch<float>(segments, first, false))(stream);
  }

  dim3 grid(std::int64_t segments) const {
    return {static_cast<unsigned>(plan_.blocks), static_cast<unsigned>(segments)};
  }

  void run_forward(const StateRun& run, std::int64_t segments, const float* starts,
                   cudaStream_t stream) const {
    kernels_.forward<<<grid(segments), static_cast<unsigned>(plan_.tile.threads()),
                       static_cast<std::size_t>(plan_.forward_shared_bytes()), stream>>>(
        args_.scan, io_, plan_, method_, run, starts);
    check_cuda(cudaGetLastError());
  }

  /// The gradients of a span of so many segments, and its dB and dC.
  void run_gradient(const SegmentRange& span, std::int64_t segments, cudaStream_t stream) const {
    kernels_.gradient<<<grid(segments), static_cast<unsigned>(plan_.tile.threads()),
                        static_cast<std::size_t>(plan_.shared_bytes()), stream>>>(args_, io_, plan_, method_,
                                                                                  span, workspace_, at_);
    check_cuda(cudaGetLastError());
    ProjectionShares shares{};
    const auto add = [&](std::int64_t from, void* gradient, const ProjectionStrides& strides) {
      shares.add(
          {workspace_ + from, gradient, strides, span, args_.scan.groups, plan_.dstate, shares_of(plan_)});
    };
    if (args_.scan.variable_b) add(at_.shares_B, args_.dB, args_.scan.b_strides);
    if (args_.scan.variable_c) add(at_.shares_C, args_.dC, args_.scan.c_strides);
    add_projections(io_, complex_, shares, stream);
  }

  void add_batches(cudaStream_t stream) const {
    const ScanArgs& scan = args_.scan;
    const std::int64_t states = scan.dim * scan.dstate * plan_.tile.value_floats;
    const std::int64_t terms = plan_.sums() * scan.batch;
    RowSums all{};
    all.add({workspace_ + at_.dA, args_.dA, states, terms});
    if (!scan.variable_b) all.add({workspace_ + at_.dB, static_cast<float*>(args_.dB), states, terms});
    if (!scan.variable_c) all.add({workspace_ + at_.dC, static_cast<float*>(args_.dC), states, terms});
    if (args_.dD != nullptr) all.add({workspace_ + at_.dD, args_.dD, scan.dim, terms});
    if (args_.ddelta_bias != nullptr)
      all.add({workspace_ + at_.ddelta_bias, args_.ddelta_bias, scan.dim, terms * plan_.tile.partials()});
    const dim3 grid(static_cast<unsigned>(ceil_div(states, kAddThreads)), static_cast<unsigned>(all.count));
    row_sum_kernel<<<grid, kAddThreads, 0, stream>>>(all);
    check_cuda(cudaGetLastError());
  }

  ScanGradientArgs args_;
  DType io_;
  bool complex_;
  GeneralBackwardPlan plan_;
  GeneralBackwardWorkspace at_;
  float* workspace_;
  MethodParameters method_;
  GeneralBackwardKernels kernels_;
};

/// A problem that the fast kernels do.
fused_bwd::Backward fast_backward(const Problem& problem, const TensorSet& tensors,
                                  const fused_bwd::BackwardPlan& plan, void* workspace) {
  return {bind_scan_gradients(problem, tensors), problem.dtype(), plan, static_cast<float*>(workspace)};
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-fused " + *reason);
  const bool fast_fits =
      fused_bwd::applies(SelectiveScan(problem), tensor_bytes(problem)) && fused_bwd::fits(problem.dtype());
  if (has_x(problem) &&
      !(fast_fits && fused_bwd::takes_x(bind_scan_gradients(problem, tensors), problem.dtype())))
    throw ContractError("cuda-fused takes x of tensors that are aligned to 16 bytes");
  if (fast_fits)
    return [fast = fast_backward(problem, tensors, fast_plan_of(problem), workspace)](void* stream) {
      fast.launch(static_cast<cudaStream_t>(stream));
    };
  return [backward = Backward(problem, tensors, workspace)](void* stream) {
    backward.launch(static_cast<cudaStream_t>(stream));
  };
}

const Registration registration{
    {.name = "cuda-fused",
     .op = "selective_scan_bwd",
     .device = DeviceKind::cuda,
     .summary = "every method, real and complex; states computed again tile by tile",
     .unsupported = unsupported,
     .workspace_bytes = workspace_bytes,
     .bind = bind}};

}  // namespace

std::optional<std::string> halves_unsupported(const Problem& problem) {
  const SelectiveScan scan(problem);
  if (scan.dstate > fused_bwd::kPaddedStates || !fused_bwd::applies(scan, tensor_bytes(problem)))
    return "passes gradients of states on GPUs for real A, zoh, variable B and C, at most 16 states, and "
           "groups of 16 channels or a few smaller ones";
  if (auto reason = too_many(blocks_of(fast_plan_of(problem, true)))) return reason;
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

std::size_t halves_bytes(const Problem& problem) {
  return static_cast<std::size_t>(fused_bwd::backward_workspace(fast_plan_of(problem, true)).floats) *
         sizeof(float);
}

GradientHalves halves(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = halves_unsupported(problem)) throw ContractError("cuda-fused " + *reason);
  const fused_bwd::Backward fast = fast_backward(problem, tensors, fast_plan_of(problem, true), workspace);
  return {.pass =
              [fast](const ThroughShard& through, void* stream_of_launch) {
                auto* stream = static_cast<cudaStream_t>(stream_of_launch);
                fast.launch_segments(stream);
                fast.launch_ends({.state = through.state,
                                  .gradient = through.gradient,
                                  .leaving = through.leaving,
                                  .entering = through.entering},
                                 stream);
              },
          .compute = [fast](void* stream) { fast.launch_gradients(static_cast<cudaStream_t>(stream)); }};
}

}  // namespace ssmbench::fused_bwd_general
