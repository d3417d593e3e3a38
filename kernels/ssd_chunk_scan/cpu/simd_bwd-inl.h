// The gradients of one head of Mamba-2's scan, chunk after chunk. Compiled once per instruction set.

#if defined(SSMBENCH_SSD_SIMD_BWD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SSD_SIMD_BWD_INL_H
#undef SSMBENCH_SSD_SIMD_BWD_INL_H
#else
#define SSMBENCH_SSD_SIMD_BWD_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/cpu/io_elements.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/cpu/simd_product-inl.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/cpu/simd_bwd.h"
#include "kernels/ssd_chunk_scan/cpu/simd_chunk-inl.h"
#include "kernels/ssd_chunk_scan/sequences.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

class HeadGradients {
 public:
  /// `projections`: sums of dB and dC of the task, [time][dstate]. `states`: room for those of all chunks.
  HeadGradients(const SsdBwdArgs& args, DType io, const SsdBwdPlan& plan, const SsdBwdTask& task,
                std::int64_t head, float* const (&projections)[2], float* states, SsdBwdScratch& scratch)
      : args_(args),
        io_(io),
        in_(args.in),
        batch_(task.batch),
        head_(head),
        is_first_(head == task.first_head),
        chunks_(plan.chunks),
        dB_(projections[0]),
        dC_(projections[1]),
        states_(states),
        s_(scratch),
        p_stride_(static_cast<std::size_t>(plan.headdim)),
        n_stride_(static_cast<std::size_t>(plan.dstate)) {}

  void run() {
    std::ranges::fill(s_.sums, 0.0);
    load_state(in_.initial_floats(), s_.state);
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      std::copy_n(s_.state, state_size(), states_ + chunk * static_cast<std::int64_t>(state_size()));
      if (chunk + 1 < chunks_) go_forward(chunk);
    }
    load_state(args_.dfinal_states, s_.dstate);
    for (std::int64_t chunk = chunks_ - 1; chunk >= 0; --chunk) go_back(chunk);
    if (args_.dinitial_states != nullptr) store_dinitial_states();
  }

 private:
  std::size_t state_size() const { return states_count_ * p_stride_; }
  std::int64_t step_at(std::int64_t t) const { return batch_ * in_.seqlen + t; }
  std::int64_t row_at(std::size_t t) const {
    return (step_at(begin_ + static_cast<std::int64_t>(t)) * in_.nheads + head_) * in_.headdim;
  }
  std::int64_t state_at() const { return (batch_ * in_.nheads + head_) * in_.headdim * in_.dstate; }

  void load_state(const float* from, float* to) const {
    std::fill_n(to, state_size(), 0.0F);
    if (from == nullptr) return;
    from += state_at();
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_count_; ++n) to[n * p_stride_ + p] = from[p * states_count_ + n];
  }
  void store_dinitial_states() const {
    float* const to = args_.dinitial_states + state_at();
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_count_; ++n)
        to[p * states_count_ + n] = s_.dstate[n * p_stride_ + p];
  }

  /// What the chunk's steps need to know of time, x and B.
  void load_chunk(std::int64_t chunk) {
    begin_ = chunk * static_cast<std::int64_t>(kSsdTile);
    steps_ = static_cast<std::size_t>(steps_within(begin_, kSsdTile, in_.seqlen));
    load_steps(in_, io_, {batch_ * in_.seqlen, in_.seqlen}, head_, begin_, steps_, s_.steps);
    for (std::size_t t = 0; t < steps_; ++t) {
      const std::int64_t time = begin_ + static_cast<std::int64_t>(t);
      load_row_at(in_.x, row_at(t), io_, headdim_, s_.x + t * p_stride_);
      load_row_at(in_.B, projection_at(time), io_, states_count_, s_.B + t * n_stride_);
      scale(s_.steps.delta[t] * s_.steps.leave[t], s_.x + t * p_stride_, p_count_,
            s_.x_leaving + t * p_stride_);
    }
  }
  std::int64_t dt_at(std::size_t t) const {
    return step_at(begin_ + static_cast<std::int64_t>(t)) * in_.nheads + head_;
  }
  std::int64_t projection_at(std::int64_t t) const {
    return (step_at(t) * in_.groups + head_ / in_.heads_per_group) * in_.dstate;
  }

  /// C, dy = dout·silu(z) and, for dz, dout·silu'(z).
  void load_gradients() {
    const FloatTag tag;
    for (std::size_t t = 0; t < steps_; ++t) {
      float* const dy = s_.dy + t * p_stride_;
      float* const dz_factor = s_.dz_factor + t * p_stride_;
      load_row_at(in_.C, projection_at(begin_ + static_cast<std::int64_t>(t)), io_, states_count_,
                  s_.C + t * n_stride_);
      load_row_at(args_.dout, row_at(t), io_, headdim_, dy);
      if (in_.z != nullptr) {
        load_row_at(in_.z, row_at(t), io_, headdim_, dz_factor);
        for (std::size_t p = 0; p < p_count_; p += lanes_) {
          const auto dout = hn::Load(tag, dy + p);
          const VectorSilu gate = vector_silu_with_slope(hn::Load(tag, dz_factor + p));
          hn::Store(hn::Mul(dout, gate.value), tag, dy + p);
          hn::Store(hn::Mul(dout, gate.slope), tag, dz_factor + p);
        }
      }
      scale(s_.steps.enter[t], dy, p_count_, s_.dy_entering + t * p_stride_);
    }
  }

  void go_forward(std::int64_t chunk) {
    load_chunk(chunk);
    multiply({s_.B, 1, n_stride_}, {s_.x_leaving, p_stride_}, states_count_, steps_, p_count_,
             {s_.state, p_stride_}, through_chunk());
  }

  void go_back(std::int64_t chunk) {
    load_chunk(chunk);
    load_gradients();
    s_.through = between_chunks(states_ + chunk * static_cast<std::int64_t>(state_size()));
    within_chunk();
    store_rows();
    store_steps(chunk);
    multiply({s_.C, 1, n_stride_}, {s_.dy_entering, p_stride_}, states_count_, steps_, p_count_,
             {s_.dstate, p_stride_}, through_chunk());
  }
  /// A state passes the chunk, and the product is added.
  AccumulateScaled through_chunk() const { return {s_.steps.enter + steps_ - 1, 0}; }

  /// What S, the state that enters, and S', the gradient of the state that leaves, give: y, dx without the
  /// skip, dB, dC, and their flows past the steps. Returns what flows past all of them.
  double between_chunks(const float* state) {
    multiply({s_.C, n_stride_, 1}, {state, p_stride_}, steps_, states_count_, p_count_, {s_.y, p_stride_},
             Overwrite{});
    multiply({s_.B, n_stride_, 1}, {s_.dstate, p_stride_}, steps_, states_count_, p_count_, {s_.u, p_stride_},
             Overwrite{});
    for (std::size_t t = 0; t < steps_; ++t) {
      float* const y = s_.y + t * p_stride_;
      float* const u = s_.u + t * p_stride_;
      s_.flow_out[t] = dot(s_.dy_entering + t * p_stride_, y, p_count_);
      const float into = s_.steps.leave[t] * dot(s_.x + t * p_stride_, u, p_count_);
      s_.flow_in[t] = s_.steps.delta[t] * into;
      s_.direct[t] = into;
      scale(s_.steps.enter[t], y, p_count_, y);
      scale(s_.steps.delta[t] * s_.steps.leave[t], u, p_count_, u);
    }
    transpose(state, p_stride_, states_count_, headdim_, s_.state_rows, n_stride_);
    transpose(s_.dstate, p_stride_, states_count_, headdim_, s_.dstate_rows, n_stride_);
    add_projection({s_.dy_entering, p_stride_, 1}, s_.state_rows, dC_);
    add_projection({s_.x_leaving, p_stride_, 1}, s_.dstate_rows, dB_);
    double product = 0;
    constexpr std::size_t kRows = 8;  // sums over lanes are slow
    for (std::size_t n = 0; n < states_count_; n += kRows)
      product += dot(state + n * p_stride_, s_.dstate + n * p_stride_,
                     std::min(kRows, states_count_ - n) * p_stride_);
    return s_.steps.enter[steps_ - 1] * product;
  }
  /// The first product of a chunk that goes to dB or dC: the task's first head begins the sums.
  void add_projection(LeftFactor rows, const float* state, float* sums) const {
    const Rows<const float> right{state, n_stride_};
    if (is_first_)
      multiply(rows, right, steps_, headdim_, n_count_, projection(sums), Overwrite{});
    else
      multiply(rows, right, steps_, headdim_, n_count_, projection(sums), Accumulate{});
  }
  Rows<float> projection(float* sums) const {
    return {sums + begin_ * static_cast<std::int64_t>(n_stride_), n_stride_};
  }

  /// What the steps of the chunk do to each other.
  void within_chunk() {
    std::fill_n(s_.column, kSsdTile, 0.0F);
    transpose(s_.B, n_stride_, steps_, states_count_, s_.B_columns, kSsdTile);
    transpose(s_.x, p_stride_, steps_, headdim_, s_.x_columns, kSsdTile);
    lower_of_product({s_.C, n_stride_, 1}, {s_.B_columns, kSsdTile}, steps_, states_count_,
                     {s_.cb, kSsdTile});
    lower_of_product({s_.dy, p_stride_, 1}, {s_.x_columns, kSsdTile}, steps_, headdim_, {s_.dyx, kSsdTile});
    for (std::size_t t = 0; t < steps_; ++t) mix_step(t);
    if (in_.z != nullptr)
      multiply_lower({s_.mixing, kSsdTile, 1}, {s_.x, p_stride_}, steps_, p_count_, {s_.y, p_stride_},
                     Accumulate{});
    multiply_upper({s_.mixing, 1, kSsdTile}, {s_.dy, p_stride_}, steps_, p_count_, {s_.u, p_stride_},
                   Accumulate{});
    multiply_lower({s_.q, kSsdTile, 1}, {s_.B, n_stride_}, steps_, n_count_, projection(dC_), Accumulate{});
    multiply_upper({s_.q, 1, kSsdTile}, {s_.C, n_stride_}, steps_, n_count_, projection(dB_), Accumulate{});
  }

  /// Row t of M and Q; W's part of what flows past the steps.
  void mix_step(std::size_t t) {
    const FloatTag tag;
    const std::size_t row = t * kSsdTile;
    auto flow = hn::Zero(tag);
    for (std::size_t s = 0; s < triangle_columns(t); s += lanes_) {
      const auto [reaches, decay] = weights_of(s_.steps, t, s);
      const auto cb = hn::IfThenElseZero(reaches, hn::Load(tag, s_.cb + row + s));
      const auto dyx = hn::Mul(hn::IfThenElseZero(reaches, hn::Load(tag, s_.dyx + row + s)), decay);
      const auto delta = hn::Load(tag, s_.steps.delta + s);
      hn::Store(hn::Mul(hn::Mul(cb, decay), delta), tag, s_.mixing + row + s);
      hn::Store(hn::Mul(dyx, delta), tag, s_.q + row + s);
      // Not the diagonal too: beside it, what strong decays leave would be lost.
      const auto step = hn::Iota(tag, static_cast<float>(s));
      const auto now = hn::Set(tag, static_cast<float>(t));
      const auto w = hn::IfThenElseZero(hn::Lt(step, now), hn::Mul(cb, dyx));
      hn::Store(hn::Add(hn::Load(tag, s_.column + s), w), tag, s_.column + s);
      flow = hn::MulAdd(w, delta, flow);
    }
    s_.flow_out[t] += hn::GetLane(hn::SumOfLanes(tag, flow));
    s_.direct[t] += s_.cb[row + t] * s_.dyx[row + t];
  }

  /// dx, dz and sums for dD.
  void store_rows() {
    const FloatTag tag;
    for (std::size_t p = 0; p < p_count_; p += lanes_) {
      const auto skip = skip_of(in_, head_, p);
      auto sum = hn::Zero(tag);
      for (std::size_t t = 0; t < steps_; ++t) {
        const std::size_t at = t * p_stride_ + p;
        const auto dy = hn::Load(tag, s_.dy + at);
        const auto x = hn::Load(tag, s_.x + at);
        sum = hn::MulAdd(dy, x, sum);
        hn::Store(hn::MulAdd(skip, dy, hn::Load(tag, s_.u + at)), tag, s_.u + at);
        if (in_.z == nullptr) continue;
        const auto y = hn::MulAdd(skip, x, hn::Load(tag, s_.y + at));
        hn::Store(hn::Mul(y, hn::Load(tag, s_.dz_factor + at)), tag, s_.y + at);
      }
      alignas(64) float of_lanes[kMaxLanes] = {};
      hn::Store(sum, tag, of_lanes);
      for (std::size_t i = 0; i < lanes_; ++i) s_.sums[2 + p + i] += of_lanes[i];
    }
    for (std::size_t t = 0; t < steps_; ++t) {
      store_row_at(s_.u + t * p_stride_, headdim_, args_.dx, row_at(t), io_);
      if (in_.z != nullptr) store_row_at(s_.y + t * p_stride_, headdim_, args_.dz, row_at(t), io_);
    }
  }

  /// ddt, and sums for dA and ddt_bias.
  void store_steps(std::int64_t chunk) {
    double later = s_.through;
    double earlier = 0;
    for (std::size_t t = 0; t < steps_; ++t) earlier += s_.flow_in[t];
    for (std::size_t t = steps_; t-- > 0;) {
      const double column = s_.column[t];
      later += s_.flow_out[t] - s_.steps.delta[t] * column;
      earlier -= s_.flow_in[t];
      // Nothing flows past a reset, or from before the first step where there is no state.
      const bool cut = s_.steps.starts[t] || (in_.initial_states == nullptr && chunk == 0 && t == 0);
      const double flow = cut ? 0 : later + earlier;
      const double ddt = (in_.A[head_] * flow + s_.direct[t] + column) * s_.steps.delta_slope[t];
      store_element(args_.ddt, dt_at(t), static_cast<float>(ddt), io_);
      s_.sums[0] += s_.steps.delta[t] * flow;
      s_.sums[1] += ddt;
    }
  }

  const SsdBwdArgs& args_;
  DType io_;
  const SsdInputs& in_;
  std::int64_t batch_, head_;
  bool is_first_;  ///< head of its task
  std::int64_t chunks_;
  float *dB_, *dC_, *states_;
  SsdBwdScratch& s_;
  std::int64_t begin_ = 0;  ///< of the chunk
  std::size_t steps_ = 0;
  std::size_t p_stride_, n_stride_;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t headdim_ = static_cast<std::size_t>(in_.headdim);
  std::size_t states_count_ = static_cast<std::size_t>(in_.dstate);
  std::size_t p_count_ = round_up(headdim_, lanes_);  ///< computed with
  std::size_t n_count_ = round_up(states_count_, lanes_);
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
