// Shards of selective_scan_fwd on a GPU: cuda-fused's scan of ranges of steps, and what states become as they
// pass shards. The scan has no pass for states alone of all its shapes: where no outputs are wanted they are
// written all the same, since a pass that follows writes them again.

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <tuple>

#include "kernels/common/activations.h"
#include "kernels/common/discretize.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/distributed/device_scan.h"
#include "kernels/distributed/passing_registrations.h"
#include "kernels/distributed/state_passing.h"
#include "kernels/distributed/time_fold.cuh"
#include "kernels/distributed/workspace_parts.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/distributed/cuda_shard.h"
#include "kernels/selective_scan/distributed/host_shard.h"
#include "kernels/selective_scan/distributed/passed_states.h"
#include "kernels/selective_scan/distributed/steps_of.h"
#include "kernels/selective_scan/fused/launch.h"

namespace ssmbench::cuda_scan_shards {
namespace {

using scan_shards::is_bilinear;
using scan_shards::narrow;
using scan_shards::PassedStates;
using scan_shards::Wide;
using scan_shards::widen;

constexpr int kThreads = 256;

/// Δ of a row, which counts (batch, channel).
template <class Io>
__device__ float step_of(const ScanArgs& args, std::int64_t row, std::int64_t t) {
  const std::int64_t d = row % args.dim;
  float step = to_float(static_cast<const Io*>(
      args.delta)[row / args.dim * args.sequence.batch + d * args.sequence.dim + t * args.sequence.time]);
  if (args.delta_bias != nullptr) step += args.delta_bias[d];
  return args.delta_softplus ? fast_softplus(step) : step;
}

/// ΣΔ of each row, as two floats.
template <class Io, class State>
struct StepSums {
  using Value = double;
  static constexpr bool kMayBeEnough = true;
  ScanArgs args;
  float* summary;

  __device__ static double identity() { return 0; }
  __device__ static double join(double a, double b) { return a + b; }
  __device__ double term(std::int64_t row, std::int64_t t) const { return step_of<Io>(args, row, t); }
  /// Whether the row's decays have made 0 in f32 of any state. Steps that follow are not negative.
  __device__ bool is_enough(std::int64_t row, double sum) const {
    constexpr double kNothingIsLeft = -200;  // the largest float times e^-193 is under half of the smallest
    if (!args.delta_softplus || sum <= 0) return false;
    const auto* A = reinterpret_cast<const State*>(args.A) + row % args.dim * args.dstate;
    float slowest = real_part(A[0]);
    for (std::int64_t n = 1; n < args.dstate; ++n) slowest = fmaxf(slowest, real_part(A[n]));
    return sum * slowest < kNothingIsLeft;
  }
  __device__ void store(std::int64_t row, double total) const {
    summary[2 * row] = static_cast<float>(total);
    summary[2 * row + 1] = static_cast<float>(total - summary[2 * row]);
  }
};

/// The product of the decays of each state, of the bilinear methods.
template <class Io, class State>
struct DecayProducts {
  using Value = Wide<State>;
  static constexpr bool kMayBeEnough = false;
  ScanArgs args;
  MethodParameters method;
  State* summary;

  __device__ static Value identity() { return widen(State{} + 1.0F); }
  __device__ static Value join(Value a, Value b) { return scan_shards::product(a, b); }
  __device__ Value term(std::int64_t i, std::int64_t t) const {
    const std::int64_t row = i / args.dstate;
    const auto* A = reinterpret_cast<const State*>(args.A);
    const StateA<State> state(A[row % args.dim * args.dstate + i % args.dstate]);
    return widen(Step<Family::bilinear>(method, step_of<Io>(args, row, t), 0.0F)(state).decay);
  }
  __device__ void store(std::int64_t i, Value total) const { narrow(total, summary[i]); }
};

template <class State>
__global__ void enter_kernel(const PassedStates<State> passed, std::int64_t states, int rank, float* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < states) passed.enter(rank, i, to);
}

template <class State>
__global__ void enter_from_after_kernel(const PassedStates<State> passed, std::int64_t states,
                                        std::int64_t carries, int rank, int ranks, float* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < states) passed.enter_from_after(carries, rank, ranks, i, to);
}

/// A range of the part as a problem of its own.
Problem range_problem(const Problem& part, std::int64_t steps) {
  return part.with({{"seqlen", steps}});
}

TimeSlices slices_of(const SelectiveScan& scan) {
  const std::int64_t rows = scan.batch * scan.dim;
  return {is_bilinear(scan.method) ? rows * scan.dstate : rows, scan.seqlen};
}

/// Of the sums or products over time.
std::int64_t partial_floats(const Problem& part) {
  constexpr std::int64_t kFloats = 4;  // of a WideComplex
  return kFloats * slices_of(SelectiveScan(part)).values();
}

/// Where everything of a shard lies.
struct ShardRoom {
  float *partial, *scan;
  std::int64_t floats;

  ShardRoom(const Problem& part, float* workspace) {
    WorkspaceParts parts(workspace);
    partial = parts.take(partial_floats(part));
    std::size_t bytes = 0;
    std::int64_t begin = 0;
    for (const std::int64_t stop : cuda_stops(SelectiveScan(part).seqlen)) {
      bytes = std::max(bytes, fused_workspace_bytes(range_problem(part, stop - begin)));
      begin = stop;
    }
    bytes = std::max(bytes, fused_workspace_bytes(part));
    scan = parts.take(ceil_div(static_cast<std::int64_t>(bytes), std::int64_t{sizeof(float)}));
    floats = parts.floats();
  }
};

/// What becomes of states between shards; nothing runs.
template <class State>
class PassedShard : public DeviceScan {
 public:
  /// `partial` has partial_floats(part) floats.
  PassedShard(const Problem& part, const ScanArgs& args, float* partial)
      : DeviceScan(scan_shards::sizes(part)), part_(part), shape_(part), args_(args), partial_(partial) {}

  const float* initial_state() const override { return args_.initial_state; }
  float* last_state() const override { return args_.last_state; }

  void run(IndexRange /*range*/, const float* /*entering*/, float* /*leaving*/, bool /*outputs*/,
           void* /*stream*/) override {
    throw std::logic_error("states alone are not computed");
  }

  void begin_summary(float* summary, bool decays, void* stream) override {
    if (!decays) return;
    with_io_type(part_.dtype(), [&]<class Io>(std::type_identity<Io>) {
      auto* const cuda = this->fork(stream);
      if (is_bilinear(shape_.method)) {
        const DecayProducts<Io, State> products{args_, method_parameters(shape_.method),
                                                reinterpret_cast<State*>(summary)};
        fold_time(products, slices_of(shape_), reinterpret_cast<Wide<State>*>(partial_), cuda);
      } else {
        const StepSums<Io, State> sums{args_, summary};
        auto* const partial = reinterpret_cast<double*>(partial_);
        if (args_.sequence.time == 1)
          fold_time_along(sums, slices_of(shape_), partial, cuda);
        else
          fold_time(sums, slices_of(shape_), partial, cuda);
      }
    });
  }

  void enter(Payloads payloads, int rank, float* state, void* stream) override {
    launch_of(enter_kernel<State>, blocks(), kThreads, 0, passed_states(payloads), states(), rank,
              state)(stream);
  }

  void enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks, float* gradient,
                        void* stream) override {
    launch_of(enter_from_after_kernel<State>, blocks(), kThreads, 0, passed_states(payloads), states(),
              carries, rank, ranks, gradient)(stream);
  }

 protected:
  const Problem& part() const { return part_; }
  const ScanArgs& args() const { return args_; }

 private:
  std::int64_t states() const { return args_.batch * args_.dim * args_.dstate; }
  std::int64_t blocks() const { return ceil_div(states(), std::int64_t{kThreads}); }
  PassedStates<State> passed_states(Payloads payloads) const {
    return {args_.A, args_.dim, args_.dstate, is_bilinear(shape_.method), sizes().state_floats, payloads};
  }

  Problem part_;
  SelectiveScan shape_;
  ScanArgs args_;
  float* partial_;
};

template <class State>
class CudaScanShard : public PassedShard<State> {
 public:
  CudaScanShard(const Problem& part, const ScanArgs& args, void* workspace)
      : CudaScanShard(part, args, ShardRoom(part, static_cast<float*>(workspace))) {}

  void run(IndexRange range, const float* entering, float* leaving, bool /*outputs*/, void* stream) override {
    const auto [place, is_new] = launches_.try_emplace({range.begin, range.end, entering, leaving});
    if (is_new) {
      const Problem& part = this->part();
      ScanArgs args = scan_shards::steps_of(this->args(), range, part.dtype(), SelectiveScan(part).complex);
      args.initial_state = entering;
      args.last_state = leaving;
      place->second = fused_launch(range_problem(part, range.count()), args, scan_);
    }
    place->second(stream);
  }

 private:
  CudaScanShard(const Problem& part, const ScanArgs& args, const ShardRoom& room)
      : PassedShard<State>(part, args, room.partial), scan_(room.scan) {}

  float* scan_;  ///< workspace of scans
  /// By first step, end, and the states that enter and leave: bound once, launched many times.
  std::map<std::tuple<std::int64_t, std::int64_t, const float*, float*>, Launch> launches_;
};

std::optional<std::string> unsupported(const Problem& whole) {
  if (auto reason = scan_shards::unsupported(whole)) return reason;
  return fused_unsupported(whole);
}

}  // namespace

std::size_t shard_bytes(const Problem& part) {
  return static_cast<std::size_t>(ShardRoom(part, nullptr).floats) * sizeof(float);
}

std::unique_ptr<LocalScan> shard(const Problem& part, const TensorSet& tensors, void* workspace) {
  const ScanArgs args = bind_scan(part, tensors);
  if (SelectiveScan(part).complex) return std::make_unique<CudaScanShard<Complex>>(part, args, workspace);
  return std::make_unique<CudaScanShard<float>>(part, args, workspace);
}

std::size_t passed_bytes(const Problem& part) {
  return static_cast<std::size_t>(partial_floats(part)) * sizeof(float);
}

std::unique_ptr<LocalScan> passed(const Problem& part, const ScanArgs& args, void* workspace) {
  auto* const partial = static_cast<float*>(workspace);
  if (SelectiveScan(part).complex) return std::make_unique<PassedShard<Complex>>(part, args, partial);
  return std::make_unique<PassedShard<float>>(part, args, partial);
}

namespace {

const PassingRegistrations registrations(cuda_ranks(), {.op = "selective_scan_fwd",
                                                        .last_state = "last_state",
                                                        .unsupported = unsupported,
                                                        .sizes = scan_shards::sizes,
                                                        .shard_bytes = shard_bytes,
                                                        .shard = shard,
                                                        .stops = cuda_stops});

}  // namespace
}  // namespace ssmbench::cuda_scan_shards
