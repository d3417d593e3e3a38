// cpu-simd for Mamba-2: chunks of kSsdTile steps as products of small matrices (chunked/kernel.cuh has the
// formulas), in f32 with vectors along rows. A task takes some heads of a (sequence, group) through time
// together: a chunk's B, C and C·Bᵀ are made once for all of them, and their states stay in a second-level
// cache.
//
//   C·Bᵀ             rows of steps, vectors of steps; C·Bᵀ times decays and Δ is M
//   C·S, M·x         rows of steps, vectors of head dims: y = enter·(C·S) + M·x
//   Bᵀ·(Δ·leave·x)   rows of states, vectors of head dims, added to the state
//
// A chunk whose y is not finite is done step by step. A head is computed by one thread, so results do not
// depend on the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd_chunk_scan/cpu/simd.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/cpu/simd_product-inl.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/cpu/scans.h"
#include "kernels/ssd_chunk_scan/cpu/simd.h"
#include "kernels/ssd_chunk_scan/cpu/simd_chunk-inl.h"
#include "kernels/ssd_chunk_scan/sequences.h"
#include "ops/ssd_chunk_scan/sequences.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

class HeadScans {
 public:
  /// `states`: room for those of the heads, [head][state][head dim].
  HeadScans(const SsdArgs& args, DType io, const SsdStops& stops, const SsdFwdPlan& plan,
            const SsdSequence& sequence, const SsdHeads& heads, float* states, SsdScratch& scratch)
      : args_(args),
        io_(io),
        stops_(stops),
        in_(args.in),
        state_size_(plan.state),
        sequence_(sequence),
        heads_(heads),
        states_(states),
        s_(scratch),
        p_stride_(static_cast<std::size_t>(plan.headdim)) {}

  void run() {
    for (std::int64_t head = heads_.first; head < heads_.last; ++head) load_state(head);
    for (begin_ = 0; begin_ < sequence_.steps; begin_ += static_cast<std::int64_t>(steps_)) {
      // A chunk ends where a state is wanted.
      const std::int64_t end = sequence_.begin + sequence_.steps;
      const std::int64_t most = stops_.next(sequence_.begin + begin_, end) + 1 - sequence_.begin;
      steps_ = static_cast<std::size_t>(steps_within(begin_, kSsdTile, most));
      load_projections();
      for (std::int64_t head = heads_.first; head < heads_.last; ++head) {
        load_chunk(head);
        scan_chunk(head);
        if (args_.out != nullptr) store_chunk(head);
        store_stops(head);
      }
    }
    if (args_.final_states == nullptr) return;
    for (std::int64_t head = heads_.first; head < heads_.last; ++head)
      store_state(head, args_.final_states, state_at(head));
  }

 private:
  std::int64_t step_at(std::size_t t) const {
    return sequence_.begin + begin_ + static_cast<std::int64_t>(t);
  }
  std::int64_t row_at(std::int64_t head, std::size_t t) const {
    return (step_at(t) * in_.nheads + head) * in_.headdim;
  }
  float* state_of(std::int64_t head) const { return states_ + (head - heads_.first) * state_size_; }
  /// In initial_states and final_states.
  std::int64_t state_at(std::int64_t head) const {
    return (heads_.sequence * in_.nheads + head) * in_.headdim * in_.dstate;
  }

  void load_state(std::int64_t head) const {
    float* const to = state_of(head);
    std::fill_n(to, state_size_, 0.0F);
    if (in_.initial_states == nullptr) return;
    with_io_type(in_.state_dtype, [&]<class State>(State) {
      const auto* const from =
          static_cast<const typename State::Storage*>(in_.initial_states) + state_at(head);
      for (std::size_t p = 0; p < headdim_; ++p)
        for (std::size_t n = 0; n < states_count_; ++n)
          to[n * p_stride_ + p] = State::load(from[p * states_count_ + n]);
    });
  }
  /// The state where the chunk ends, if it is wanted.
  void store_stops(std::int64_t head) const {
    for (std::int64_t k = 0; k < stops_.count; ++k)
      if (stops_.states_at[k] == step_at(steps_ - 1))
        store_state(head, stops_.states, (k * in_.nheads + head) * in_.headdim * in_.dstate);
  }
  /// To a tensor of states, from element `first` on.
  void store_state(std::int64_t head, void* states, std::int64_t first) const {
    const float* const from = state_of(head);
    with_io_type(in_.state_dtype, [&]<class State>(State) {
      auto* const to = static_cast<typename State::Storage*>(states) + first;
      for (std::size_t p = 0; p < headdim_; ++p)
        for (std::size_t n = 0; n < states_count_; ++n)
          to[p * states_count_ + n] = State::store(from[n * p_stride_ + p]);
    });
  }

  void load_projections() {
    const std::int64_t group = heads_.first / in_.heads_per_group;
    for (std::size_t t = 0; t < steps_; ++t) {
      const std::int64_t from = (step_at(t) * in_.groups + group) * in_.dstate;
      load_row_at(in_.B, from, io_, states_count_, s_.B + t * kSsdStates);
      load_row_at(in_.C, from, io_, states_count_, s_.C + t * kSsdStates);
    }
    transpose(s_.B, kSsdStates, steps_, states_count_, s_.B_columns, kSsdTile);
    lower_of_product({s_.C, kSsdStates, 1}, {s_.B_columns, kSsdTile}, steps_, states_count_,
                     {s_.cb, kSsdTile});
  }

  void load_chunk(std::int64_t head) {
    load_steps(in_, io_, sequence_, head, begin_, steps_, s_.steps);
    for (std::size_t t = 0; t < steps_; ++t) {
      float* const x = s_.x + t * p_stride_;
      load_row_at(in_.x, row_at(head, t), io_, headdim_, x);
      scale(s_.steps.delta[t] * s_.steps.leave[t], x, p_count_, s_.x_leaving + t * p_stride_);
    }
  }

  void scan_chunk(std::int64_t head) {
    float* const state = state_of(head);
    for (std::size_t t = 0; t < steps_; ++t) mix_step(t);
    const Rows<float> y{s_.y, p_stride_};
    multiply({s_.C, kSsdStates, 1}, {state, p_stride_}, steps_, states_count_, p_count_, y, Overwrite{});
    multiply_lower({s_.mixing, kSsdTile, 1}, {s_.x, p_stride_}, steps_, p_count_, y,
                   AccumulateScaled{s_.steps.enter, 1});
    // What is not finite shows in y of its own step, whatever the others do.
    if (!is_finite(s_.y, p_stride_, steps_, p_count_)) return scan_by_steps(head);
    multiply({s_.B, 1, kSsdStates}, {s_.x_leaving, p_stride_}, states_count_, steps_, p_count_,
             {state, p_stride_}, AccumulateScaled{s_.steps.enter + steps_ - 1, 0});
  }

  /// The recurrence: products would take a NaN to steps that it does not enter, times the 0 of their weight.
  void scan_by_steps(std::int64_t head) {
    const FloatTag tag;
    float* const state = state_of(head);
    for (std::size_t t = 0; t < steps_; ++t) {
      if (s_.steps.starts[t]) std::fill_n(state, state_size_, 0.0F);
      const auto delta = hn::Set(tag, s_.steps.delta[t]);
      const auto decay = hn::Set(tag, std::exp(s_.steps.delta[t] * in_.A[head]));
      for (std::size_t p = 0; p < p_count_; p += lanes_) {
        const auto x = hn::Mul(delta, hn::Load(tag, s_.x + t * p_stride_ + p));
        auto y = hn::Zero(tag);
        for (std::size_t n = 0; n < states_count_; ++n) {
          float* const at = state + n * p_stride_ + p;
          const auto added = hn::Mul(x, hn::Set(tag, s_.B[t * kSsdStates + n]));
          const auto h = hn::MulAdd(decay, hn::Load(tag, at), added);
          hn::Store(h, tag, at);
          y = hn::MulAdd(hn::Set(tag, s_.C[t * kSsdStates + n]), h, y);
        }
        hn::Store(y, tag, s_.y + t * p_stride_ + p);
      }
    }
  }

  /// Row t of M.
  void mix_step(std::size_t t) {
    const FloatTag tag;
    const std::size_t row = t * kSsdTile;
    for (std::size_t s = 0; s < triangle_columns(t); s += lanes_) {
      const StepWeights weights = weights_of(s_.steps, t, s);
      const auto cb = hn::IfThenElseZero(weights.reaches, hn::Load(tag, s_.cb + row + s));
      hn::Store(hn::Mul(hn::Mul(cb, weights.decay), hn::Load(tag, s_.steps.delta + s)), tag,
                s_.mixing + row + s);
    }
  }

  /// out = (y + D·x)·silu(z).
  void store_chunk(std::int64_t head) {
    const FloatTag tag;
    for (std::size_t t = 0; t < steps_; ++t) {
      float* const y = s_.y + t * p_stride_;
      const float* const x = s_.x + t * p_stride_;
      if (in_.z != nullptr) load_row_at(in_.z, row_at(head, t), io_, headdim_, s_.z);
      for (std::size_t p = 0; p < p_count_; p += lanes_) {
        auto value = hn::Load(tag, y + p);
        if (in_.D != nullptr) value = hn::MulAdd(skip_of(in_, head, p), hn::Load(tag, x + p), value);
        if (in_.z != nullptr) value = hn::Mul(value, vector_silu(hn::Load(tag, s_.z + p)));
        hn::Store(value, tag, y + p);
      }
      store_row_at(y, headdim_, args_.out, row_at(head, t), io_);
    }
  }

  const SsdArgs& args_;
  DType io_;
  const SsdStops& stops_;
  const SsdInputs& in_;
  std::int64_t state_size_;
  SsdSequence sequence_;
  SsdHeads heads_;
  float* states_;
  SsdScratch& s_;
  std::int64_t begin_ = 0;  ///< of the chunk, in the sequence
  std::size_t steps_ = 0;
  std::size_t p_stride_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t headdim_ = static_cast<std::size_t>(in_.headdim);
  std::size_t states_count_ = static_cast<std::size_t>(in_.dstate);
  std::size_t p_count_ = round_up(headdim_, lanes_);  ///< computed with
};

void scan_heads(const SsdArgs& args, const SsdStops& stops, DType dtype, const SsdFwdPlan& plan,
                const SsdSequence& sequence, const SsdHeads& heads,
                float* states,  // NOLINT(readability-non-const-parameter): the scans write it
                SsdScratch& scratch) {
  HeadScans(args, dtype, stops, plan, sequence, heads, states, scratch).run();
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <memory>
#include <vector>

namespace ssmbench::simd::ssd_fwd {
namespace {

HWY_EXPORT(scan_heads);

/// One thread per element of `scratch`.
void scan(const SsdArgs& args, const SsdSequenceTable& sequences, const SsdStops& stops, DType dtype,
          const SsdFwdPlan& plan, float* workspace, std::vector<SsdScratch>& scratch) {
  const auto scan_task = HWY_DYNAMIC_DISPATCH(scan_heads);
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(scratch.size()))
  for (std::int64_t i = 0; i < plan.tasks(); ++i) {
    const int thread = omp_get_thread_num();
    const SsdHeads heads = plan.task(i);
    scan_task(args, stops, dtype, plan, sequences.at(heads.sequence), heads,
              workspace + thread * plan.per_task * plan.state, scratch[thread]);
  }
}

SsdFwdPlan plan_of(const Problem& problem) {
  return plan_ssd_fwd(SsdChunkScan(problem), SsdSequences(problem).count, omp_get_max_threads());
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const SsdArgs args = bind_ssd(problem, tensors);
  const SsdSequenceTable sequences = bind_ssd_sequences(problem, tensors);
  const SsdStops stops = bind_ssd_stops(problem, tensors);
  const SsdFwdPlan plan = plan_of(problem);
  // Shared because a Launch is copyable; launches of one binding must not overlap.
  const auto scratch = std::make_shared<std::vector<SsdScratch>>(plan.threads);
  return [=, dtype = problem.dtype()](void*) {
    scan(args, sequences, stops, dtype, plan, static_cast<float*>(workspace), *scratch);
  };
}

const Registration registration{
    {.name = "cpu-simd",
     .op = "ssd_chunk_scan_fwd",
     .device = DeviceKind::cpu,
     .summary = "chunks of 32 steps as products of matrices on SIMD lanes, all threads (Highway)",
     .unsupported = [](const Problem&) { return std::optional<std::string>(); },
     .workspace_bytes =
         [](const Problem& problem) {
           return static_cast<std::size_t>(plan_of(problem).floats) * sizeof(float);
         },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::simd::ssd_fwd

namespace ssmbench {

SsdCall simd_ssd_scan(const Problem& problem) {
  const simd::SsdFwdPlan plan = simd::plan_ssd_fwd(SsdChunkScan(problem), 1, omp_get_max_threads());
  // Shared because an SsdCall is copyable.
  const auto states = std::make_shared<std::vector<float>>(plan.floats);
  const auto scratch = std::make_shared<std::vector<simd::SsdScratch>>(plan.threads);
  return [=, io = problem.dtype()](const SsdArgs& args) {
    const SsdSequenceTable sequence{.count = 1, .seqlen = args.in.seqlen, .cu_seqlens = nullptr};
    const SsdStops none{};
    simd::ssd_fwd::scan(args, sequence, none, io, plan, states->data(), *scratch);
  };
}

}  // namespace ssmbench

#endif  // HWY_ONCE
