// cpu-simd: vectors hold channels of one group, threads share out runs of up to 64 channels. Time is cut
// into tiles: a tile's inputs are converted to f32 and laid out [step][channel] once, then every state walks
// over the tile with its h in a register. Channels never mix, so results do not depend on the number of
// threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan/cpu/simd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/cpu/scans.h"
#include "kernels/selective_scan/cpu/simd.h"
#include "kernels/selective_scan/cpu/simd_channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// One state's step: h = e^(Δ·A)·h + (Δ·u)·B. Returns sum + C·h.
template <bool kVariableB, bool kVariableC>
FloatVec advance(FloatVec A, const float* B, const float* C, std::size_t step, FloatVec delta,
                 FloatVec delta_u, FloatVec& h, FloatVec sum) {
  h = hn::MulAdd(exponential(hn::Mul(delta, A)), h, hn::Mul(delta_u, projection<kVariableB>(B, step)));
  return hn::MulAdd(projection<kVariableC>(C, step), h, sum);
}

/// Carries one state, or two that share the loads of Δ, Δ·u and y, of one vector of channels over `steps`
/// steps and adds C·h to y. A, B, C and state start at the (first) state's row.
template <bool kVariableB, bool kVariableC, bool kPair>
void scan_rows(const float* A, const float* B, const float* C, std::size_t steps, const float* delta,
               const float* delta_u, float* state, float* y) {
  const FloatTag tag;
  const std::size_t lanes = hn::Lanes(tag);
  const std::size_t second = kPair ? lanes : 0;
  const float* second_B = B + (kVariableB ? kTile : lanes);
  const float* second_C = C + (kVariableC ? kTile : lanes);
  const auto a0 = hn::Load(tag, A);
  const auto a1 = hn::Load(tag, A + second);
  auto h0 = hn::Load(tag, state);
  auto h1 = hn::Load(tag, state + second);
  for (std::size_t t = 0; t < steps; ++t) {
    const auto step = hn::Load(tag, delta + t * lanes);
    const auto input = hn::Load(tag, delta_u + t * lanes);
    auto sum = hn::Load(tag, y + t * lanes);
    sum = advance<kVariableB, kVariableC>(a0, B, C, t, step, input, h0, sum);
    if constexpr (kPair)
      sum = advance<kVariableB, kVariableC>(a1, second_B, second_C, t, step, input, h1, sum);
    hn::Store(sum, tag, y + t * lanes);
  }
  hn::Store(h0, tag, state);
  if constexpr (kPair) hn::Store(h1, tag, state + lanes);
}

class RunScan {
 public:
  RunScan(const ScanArgs& args, DType io, const ChannelRun& run, Scratch& scratch)
      : args_(args), scratch_(scratch), channels_(args, io, run, scratch.staging) {}

  void run() {
    channels_.load_constants(scratch_.A, scratch_.B, scratch_.C, scratch_.state);
    for (std::int64_t begin = 0; begin < args_.seqlen; begin += kTile) {
      const TileSteps steps = channels_.tile_at(begin, kTile);
      if (args_.variable_b) channels_.load_projection(args_.B, args_.b_strides, steps, scratch_.B, kTile);
      if (args_.variable_c) channels_.load_projection(args_.C, args_.c_strides, steps, scratch_.C, kTile);
      channels_.for_each_vector([&](const ChannelVector& v) { scan_tile(v, steps); });
    }
    channels_.store_states(scratch_.state, args_.last_state);
  }

 private:
  void scan_tile(const ChannelVector& v, const TileSteps& steps) {
    channels_.load_sequence(args_.u, v, steps, scratch_.u);
    channels_.load_sequence(args_.delta, v, steps, scratch_.delta);
    prepare(v, steps.count);
    scan_states(v, steps.count);
    if (args_.out == nullptr) return;
    if (args_.z != nullptr) {
      channels_.load_sequence(args_.z, v, steps, scratch_.z);
      gate(steps.count);
    }
    channels_.store_sequence(scratch_.y, v, steps, args_.out);
  }

  /// Δ, Δ·u, and y = D·u.
  void prepare(const ChannelVector& v, std::size_t steps) {
    const FloatTag tag;
    const std::size_t lanes = channels_.lanes();
    const auto bias = channels_.per_channel(args_.delta_bias, v);
    const auto skip = channels_.per_channel(args_.D, v);
    for (std::size_t i = 0; i < steps * lanes; i += lanes) {
      const auto u = hn::Load(tag, scratch_.u + i);
      auto delta = hn::Add(hn::Load(tag, scratch_.delta + i), bias);
      if (args_.delta_softplus) delta = vector_softplus(delta);
      hn::Store(delta, tag, scratch_.delta + i);
      hn::Store(hn::Mul(delta, u), tag, scratch_.delta_u + i);
      hn::Store(hn::Mul(skip, u), tag, scratch_.y + i);
    }
  }

  void scan_states(const ChannelVector& v, std::size_t steps) {
    if (args_.variable_b && args_.variable_c) return scan_states<true, true>(v, steps);
    if (args_.variable_b) return scan_states<true, false>(v, steps);
    if (args_.variable_c) return scan_states<false, true>(v, steps);
    scan_states<false, false>(v, steps);
  }

  template <bool kVariableB, bool kVariableC>
  void scan_states(const ChannelVector& v, std::size_t steps) {
    const std::size_t states = channels_.states();
    const auto rows = [&](std::size_t n, auto pair) {
      const std::size_t at = channels_.state_rows(v) + n * channels_.lanes();
      scan_rows<kVariableB, kVariableC, decltype(pair)::value>(
          scratch_.A + at, scratch_.B + (kVariableB ? n * kTile : at),
          scratch_.C + (kVariableC ? n * kTile : at), steps, scratch_.delta, scratch_.delta_u,
          scratch_.state + at, scratch_.y);
    };
    std::size_t n = 0;
    for (; n + 2 <= states; n += 2) rows(n, std::true_type());
    if (n < states) rows(n, std::false_type());
  }

  void gate(std::size_t steps) {
    const FloatTag tag;
    const std::size_t lanes = channels_.lanes();
    for (std::size_t i = 0; i < steps * lanes; i += lanes) {
      const auto gated = hn::Mul(hn::Load(tag, scratch_.y + i), vector_silu(hn::Load(tag, scratch_.z + i)));
      hn::Store(gated, tag, scratch_.y + i);
    }
  }

  const ScanArgs& args_;
  Scratch& scratch_;
  Channels channels_;
};

void scan_run(const ScanArgs& args, DType dtype, const ChannelRun& run, Scratch& scratch) {
  RunScan(args, dtype, run, scratch).run();
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>
#include <span>
#include <vector>

#include "inputs/packed_sequences.h"
#include "kernels/selective_scan/sequences.h"

namespace ssmbench::simd::scan_fwd {
namespace {

HWY_EXPORT(scan_run);

/// Cuts the problem into runs: as large as they may be, but small enough that every thread gets one.
std::vector<ChannelRun> runs_of(const ScanArgs& args, std::size_t threads) {
  const std::int64_t rows = args.batch * args.dim;
  const auto share = static_cast<std::int64_t>((static_cast<std::size_t>(rows) + threads - 1) / threads);
  const auto lanes = static_cast<std::int64_t>(kMaxLanes);
  const std::int64_t size =
      std::min<std::int64_t>(kMaxChannels, std::max<std::int64_t>(1, share / lanes) * lanes);
  std::vector<ChannelRun> runs;
  for (std::int64_t b = 0; b < args.batch; ++b)
    for (std::int64_t g = 0; g < args.groups; ++g)
      for (std::int64_t c = 0; c < args.channels_per_group; c += size)
        runs.push_back({b, g, g * args.channels_per_group + c,
                        static_cast<std::size_t>(std::min(size, args.channels_per_group - c))});
  return runs;
}

/// Scans of the same sizes but for the number of steps, at once. Copies share their working memory.
class Scans {
 public:
  Scans(const ScanArgs& sizes, std::size_t count, DType io)
      : io_(io), runs_(runs_of(sizes, static_cast<std::size_t>(omp_get_max_threads()))) {
    const auto threads = static_cast<std::size_t>(omp_get_max_threads());
    scratch_ = std::make_shared<std::vector<Scratch>>(std::min(threads, count * runs_.size()));
  }

  void operator()(std::span<const ScanArgs> scans) const {
    const auto scan_one = HWY_DYNAMIC_DISPATCH(scan_run);
    std::vector<Scratch>& scratch = *scratch_;
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(static_cast <int>(scratch.size()))
    for (const ScanArgs& args : scans)
      for (const ChannelRun& run : runs_) scan_one(args, io_, run, scratch[omp_get_thread_num()]);
  }

 private:
  DType io_;
  std::vector<ChannelRun> runs_;
  std::shared_ptr<std::vector<Scratch>> scratch_;  // one a thread
};

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const ScanArgs args = bind_scan(problem, tensors);
  const auto count = static_cast<std::size_t>(PackedSequences(problem).count);
  return [args, sequences = SequenceScans(problem, tensors),
          scans = Scans(args, count, problem.dtype())](void*) { scans(sequences.of(args)); };
}

const Registration registration{{.name = "cpu-simd",
                                 .op = "selective_scan_fwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "channels across SIMD lanes and threads (Highway)",
                                 .unsupported = not_real_zoh,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd::scan_fwd

namespace ssmbench {

ScanCall simd_scan(const ScanArgs& sizes, DType io) {
  return [scans = simd::scan_fwd::Scans(sizes, 1, io)](const ScanArgs& args) { scans({&args, 1}); };
}

}  // namespace ssmbench

#endif  // HWY_ONCE
