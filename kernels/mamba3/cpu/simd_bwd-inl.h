// The gradients of one head of Mamba-3's scans, chunk after chunk. Compiled once per instruction set.

#if defined(SSMBENCH_MAMBA3_SIMD_BWD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_MAMBA3_SIMD_BWD_INL_H
#undef SSMBENCH_MAMBA3_SIMD_BWD_INL_H
#else
#define SSMBENCH_MAMBA3_SIMD_BWD_INL_H
#endif

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "hwy/highway.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/cpu/simd_product-inl.h"
#include "kernels/common/cpu/simd_rows-inl.h"
#include "kernels/mamba3/args.h"
#include "kernels/mamba3/cpu/scalar_head.h"
#include "kernels/mamba3/cpu/simd_bwd.h"
#include "kernels/mamba3/cpu/simd_triangles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// to[i] += factor·from[i] of i < count, a multiple of the lanes.
inline void add_scaled(float factor, const float* from, std::size_t count, float* to) {
  const FloatTag tag;
  for (std::size_t i = 0; i < count; i += hn::Lanes(tag))
    hn::Store(hn::MulAdd(hn::Set(tag, factor), hn::Load(tag, from + i), hn::Load(tag, to + i)), tag, to + i);
}

class Mamba3HeadGradients : Mamba3ScalarHead {
 public:
  Mamba3HeadGradients(const Mamba3BwdArgs& args, DType io, const Mamba3BwdPlan& plan, std::int64_t thread,
                      float* workspace, Mamba3BwdScratch& scratch)
      : Mamba3ScalarHead(args.in, io),
        out_(args),
        plan_(plan),
        parts_(workspace + plan.projections),
        entering_(workspace + plan.entering + thread * plan.segments * plan.state),
        states_(workspace + plan.states + thread * kMamba3Segment * plan.state),
        angles_(workspace + plan.angles + thread * scan_.seqlen * 3 * scan_.angles),
        s_(scratch) {
    float* const of_steps = workspace + plan.of_steps + thread * 4 * (scan_.seqlen + 1);
    for (std::int64_t i = 0; i < 4; ++i) step_sums_[i] = of_steps + i * (scan_.seqlen + 1);
  }

  /// Leaves the sums over steps in `sums`. `slice`: which of dQ and dK take the head; `is_first`: nothing is
  /// in them yet.
  void run(std::int64_t index, std::int64_t batch, std::int64_t begin, std::int64_t end, std::int64_t head,
           std::int64_t slice, bool is_first, float* sums) {
    choose(index, batch, begin, end, head);
    parts_at_ = slice * 2 * plan_.part;
    is_first_ = is_first;
    std::fill_n(s_.sums, plan_.sums.count, 0.0);
    if (begin_ == end_)
      pass_cotangents(out_);
    else
      run_chunks();
    std::copy_n(s_.sums, plan_.sums.count, sums);
  }

 private:
  // Arrays of step_sums_, those of inputs_ after one for the input states.
  float& inputs(std::int64_t i) { return step_sums_[0][i + 1]; }
  float& own_inputs(std::int64_t i) { return step_sums_[1][i]; }
  float& flows(std::int64_t i) { return step_sums_[2][i]; }
  float& turned(std::int64_t i) { return step_sums_[3][i]; }

  std::size_t rows() const { return steps_ * ranks_; }
  ChunkTriangles triangles() const { return {steps_, ranks_}; }
  float* cosines(std::size_t t) const {
    return angles_ + (first_ + static_cast<std::int64_t>(t)) * 3 * scan_.angles;
  }
  float* sines(std::size_t t) const { return cosines(t) + scan_.angles; }
  float* rates(std::size_t t) const { return cosines(t) + 2 * scan_.angles; }
  std::int64_t time(std::size_t t) const { return begin_ + first_ + static_cast<std::int64_t>(t); }
  bool is_last(std::size_t t) const { return time(t) + 1 == end_; }

  void run_chunks() {
    chunks_ = (end_ - begin_ + plan_.chunk - 1) / plan_.chunk;
    load_factors();
    turn_all();
    load_state();
    const std::int64_t segments = (chunks_ + kMamba3Segment - 1) / kMamba3Segment;
    for (std::int64_t segment = 0; segment < segments; ++segment) {
      std::copy_n(s_.state, plan_.state, entering_ + segment * plan_.state);
      for (std::int64_t i = 0; i < kMamba3Segment && segment + 1 < segments; ++i)
        go_forward(segment * kMamba3Segment + i);
    }
    start_back();
    for (std::int64_t segment = segments - 1; segment >= 0; --segment) {
      const std::int64_t first = segment * kMamba3Segment;
      const std::int64_t count = std::min(kMamba3Segment, chunks_ - first);
      std::copy_n(entering_ + segment * plan_.state, plan_.state, s_.state);
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(s_.state, plan_.state, states_ + i * plan_.state);
        if (i + 1 < count) go_forward(first + i);
      }
      for (std::int64_t i = count - 1; i >= 0; --i) go_back(first + i, states_ + i * plan_.state);
    }
    store_start();
    store_scalars();
  }

  void load_factors() {
    const auto load = [&](const float* from, std::int64_t count, float* to) {
      std::fill_n(to, p_stride_, 1.0F);
      if (from != nullptr) load_row<F32>(from, static_cast<std::size_t>(count), to);
    };
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::int64_t rank = head_ * scan_.rank + static_cast<std::int64_t>(r);
      const auto of_rank = [&](const float* all) {
        return all == nullptr ? nullptr : all + rank * scan_.headdim;
      };
      load(of_rank(args_.mimo_v), scan_.headdim, s_.up + r * p_stride_);
      load(of_rank(args_.mimo_z), scan_.headdim, s_.gate + r * p_stride_);
      load(of_rank(args_.mimo_out), scan_.headdim, s_.down + r * p_stride_);
      take_states(args_.Q_bias + rank * scan_.dstate, s_.Q_bias + r * n_stride_);
      take_states(args_.K_bias + rank * scan_.dstate, s_.K_bias + r * n_stride_);
    }
    load(args_.norm == nullptr ? nullptr : args_.norm + head_ * scan_.headdim, scan_.headdim, s_.norm);
  }
  /// A row of states, in the order of state_of(), with zeros behind it.
  void take_states(const float* from, float* to) const {
    std::fill_n(to, n_stride_, 0.0F);
    for (std::size_t n = 0; n < states_count_; ++n) to[n] = from[order_[n]];
  }

  /// Cosines, sines and tanh of the rates of all steps.
  void turn_all() {
    std::vector<float> turns(scan_.angles);
    load_turns(turns);
    for (std::int64_t t = begin_; t < end_; ++t) {
      first_ = t - begin_;
      const float half = 0.5F * args_.dt[scalar_at(t)];
      for (std::int64_t i = 0; i < scan_.angles; ++i) {
        const float slope = tanhf(rate(t, i));
        const float sum = turns[i] + half * slope;
        turns[i] = sum - rintf(sum);
        cosines(0)[i] = cosf(kTurn * turns[i]);
        sines(0)[i] = sinf(kTurn * turns[i]);
        rates(0)[i] = slope;
      }
    }
  }

  /// The input state with what the first step adds of the step before.
  void load_state() {
    load_matrix_of_states(args_.input_ssm, s_.state);
    if (args_.input_ssm == nullptr) return;
    load_start();
    for (std::size_t r = 0; r < ranks_; ++r)
      for (std::size_t n = 0; n < states_count_; ++n)
        add_scaled(start_weight_ * s_.k[r * n_stride_ + n], s_.v + r * p_stride_, p_count_,
                   s_.state + n * p_stride_);
  }
  void load_matrix_of_states(const float* from, float* to) const {
    std::fill_n(to, plan_.state, 0.0F);
    if (from == nullptr) return;
    from += state_at() * scan_.headdim * scan_.dstate;
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_count_; ++n)
        to[n * p_stride_ + p] = from[static_cast<std::int64_t>(p) * scan_.dstate + order_[n]];
  }
  /// k and V of the step before the first to the first rows of k, v and plain_v, and their weight.
  void load_start() {
    const Scalars first = scalars(begin_);
    start_weight_ = first.closed * first.dt;
    load_row<F32>(args_.input_v + state_at() * scan_.headdim, headdim_, s_.plain_v);
    for (std::size_t r = 0; r < ranks_; ++r) {
      take_states(args_.input_k + k_state_at(static_cast<std::int64_t>(r)), s_.k + r * n_stride_);
      raise(s_.plain_v, r, s_.v + r * p_stride_);
    }
  }
  /// V^r of V.
  void raise(const float* v, std::size_t r, float* to) const {
    const FloatTag tag;
    for (std::size_t p = 0; p < p_count_; p += lanes_)
      hn::Store(hn::Mul(hn::Load(tag, v + p), hn::Load(tag, s_.up + r * p_stride_ + p)), tag, to + p);
  }

  /// The adjoint of the last state, and of the last angles.
  void start_back() {
    load_matrix_of_states(out_.dfinal_ssm, s_.adjoint);
    std::fill_n(s_.turning, scan_.angles, 0.0F);
    if (out_.dfinal_angle != nullptr)
      std::copy_n(out_.dfinal_angle + state_at() * scan_.angles, scan_.angles, s_.turning);
  }

  /// Weights, V and k of the chunk's steps.
  void load_chunk(std::int64_t chunk) {
    first_ = chunk * plan_.chunk;
    steps_ = static_cast<std::size_t>(std::min(plan_.chunk, end_ - begin_ - first_));
    load_weights();
    for (std::size_t t = 0; t < steps_; ++t) {
      load_row_at(args_.V, step_at(time(t)) * scan_.headdim, io_, headdim_, s_.plain_v + t * p_stride_);
      for (std::size_t r = 0; r < ranks_; ++r) {
        raise(s_.plain_v + t * p_stride_, r, s_.v + (t * ranks_ + r) * p_stride_);
        load_vector(args_.K, s_.K_bias, t, r, s_.k);
      }
    }
  }
  void load_weights() {
    float product = 1;
    for (std::size_t t = 0; t < steps_; ++t) {
      const Scalars here = scalars(time(t));
      s_.alpha[t] = here.alpha;
      s_.own[t] = s_.later[t] = here.gamma;
      if (!is_last(t)) {
        const Scalars next = scalars(time(t) + 1);
        s_.later[t] += next.closed * next.dt;
      }
      s_.enter[t] = product *= here.alpha;
      std::fill_n(s_.weight + t * ranks_, ranks_, s_.later[t]);
    }
    product = 1;
    for (std::size_t t = steps_; t-- > 0;) {
      s_.leave[t] = product;
      product *= s_.alpha[t];
    }
  }
  /// Q or K of a step and rank with its bias, turned.
  void load_vector(const void* from, const float* bias, std::size_t t, std::size_t r, float* all) {
    float* const to = all + (t * ranks_ + r) * n_stride_;
    const auto rank = static_cast<std::int64_t>(r);
    load_row_at(from, row_at(time(t), rank), io_, states_count_, s_.row);
    take_states(s_.row, to);
    add_scaled(1, bias + r * n_stride_, n_count_, to);
    turn_row(t, 1, to);
  }
  void turn_row(std::size_t t, float sign, float* x) const {
    const float* const cosine = cosines(t);
    const float* const sine = sines(t);
    for (std::size_t i = 0; i < pairs_; ++i) {
      const float x0 = x[i];
      const float x1 = x[pairs_ + i];
      x[i] = x0 * cosine[i] - x1 * (sign * sine[i]);
      x[pairs_ + i] = x0 * (sign * sine[i]) + x1 * cosine[i];
    }
  }

  /// weighted = rows of v or dy, each times `by` of its step, and `factor` of its row if there is one.
  void weigh(const float* rows, const float* by, const float* factor) {
    for (std::size_t row = 0; row < this->rows(); ++row)
      scale(by[row / ranks_] * (factor == nullptr ? 1.0F : factor[row]), rows + row * p_stride_, p_count_,
            s_.weighted + row * p_stride_);
  }
  /// A state passes the chunk, and the product is added.
  AccumulateScaled through_chunk() const { return {s_.enter + steps_ - 1, 0}; }

  void go_forward(std::int64_t chunk) {
    load_chunk(chunk);
    weigh(s_.v, s_.leave, s_.weight);
    multiply({s_.k, 1, n_stride_}, {s_.weighted, p_stride_}, states_count_, rows(), p_count_,
             {s_.state, p_stride_}, through_chunk());
  }

  /// `state` enters the chunk.
  void go_back(std::int64_t chunk, const float* state) {
    load_chunk(chunk);
    for (std::size_t t = 0; t < steps_; ++t)
      for (std::size_t r = 0; r < ranks_; ++r) load_vector(args_.Q, s_.Q_bias, t, r, s_.q);
    make_decays();
    triangles().lower_square(s_.q, s_.k, n_stride_, states_count_, s_.k_columns, s_.scores);
    for (std::size_t t = 0; t < steps_; ++t) mix_step(t, s_.scores, s_.mixing);
    if (needs_y_) read_y(state);
    for (std::size_t t = 0; t < steps_; ++t) take_dout(t);
    triangles().lower_square(s_.dy, s_.v, p_stride_, headdim_, s_.v_columns, s_.crosses);
    for (std::size_t t = 0; t < steps_; ++t) mix_step(t, s_.crosses, s_.mixing_of_crosses);
    between_chunks(state);
    within_chunk();
    store_vectors();
    for (std::size_t t = 0; t < steps_; ++t) store_inputs(t);
    store_sums();
    store_step_sums(state);
    weigh(s_.dy, s_.enter, nullptr);
    multiply({s_.q, 1, n_stride_}, {s_.weighted, p_stride_}, states_count_, rows(), p_count_,
             {s_.adjoint, p_stride_}, through_chunk());
  }

  /// decay[t][row of step u < t] = Π α of u + 1 … t, by products: a NaN reaches no other pair of steps.
  void make_decays() {
    for (std::size_t t = 1; t < steps_; ++t) {
      float* const row = s_.decay + t * kMamba3ChunkRows;
      for (std::size_t c = 0; c < (t - 1) * ranks_; ++c) row[c] = s_.alpha[t] * row[c - kMamba3ChunkRows];
      std::fill_n(row + (t - 1) * ranks_, ranks_, s_.alpha[t]);
    }
  }

  /// Rows of step t of `square` times decay and weight; 0 for the step itself and later ones.
  void mix_step(std::size_t t, const float* square, float* to) const {
    const FloatTag tag;
    const auto end = hn::Set(tag, static_cast<float>(t * ranks_));
    for (std::size_t r = 0; r < ranks_; ++r)
      for (std::size_t c = 0; c < rows(); c += lanes_) {
        const std::size_t at = (t * ranks_ + r) * kMamba3ChunkRows + c;
        const auto factor =
            hn::Mul(hn::Load(tag, s_.decay + t * kMamba3ChunkRows + c), hn::Load(tag, s_.weight + c));
        const auto is_earlier = hn::Lt(hn::Iota(tag, static_cast<float>(c)), end);
        hn::Store(hn::IfThenElseZero(is_earlier, hn::Mul(factor, hn::Load(tag, square + at))), tag, to + at);
      }
  }

  /// y of all rows.
  void read_y(const float* state) {
    multiply({s_.q, n_stride_, 1}, {state, p_stride_}, rows(), states_count_, p_count_, {s_.y, p_stride_},
             Overwrite{});
    for (std::size_t row = 0; row < rows(); ++row)
      scale(s_.enter[row / ranks_], s_.y + row * p_stride_, p_count_, s_.y + row * p_stride_);
    triangles().add_earlier(s_.mixing, s_.v, p_stride_, p_count_, s_.y);
    const float skip = args_.D == nullptr ? 0.0F : args_.D[head_];
    for (std::size_t row = 0; row < rows(); ++row) {
      float* const y = s_.y + row * p_stride_;
      add_scaled(skip, s_.v + row * p_stride_, p_count_, y);
      for_each_of_step(row, [&](std::size_t other) {
        add_scaled(own_of(s_.scores, row, other), s_.v + other * p_stride_, p_count_, y);
      });
    }
  }
  /// Calls `run` with the rows of the same step.
  template <class Run>
  void for_each_of_step(std::size_t row, const Run& run) const {
    const std::size_t first = row / ranks_ * ranks_;
    for (std::size_t other = first; other < first + ranks_; ++other) run(other);
  }
  /// γ times an element of a square, of rows of one step.
  float own_of(const float* square, std::size_t row, std::size_t other) const {
    return s_.own[row / ranks_] * square[row * kMamba3ChunkRows + other];
  }

  /// dy of the rows of step t; dZ, and terms of dMIMO_Z, dMIMO_Out and of the norm's weight.
  void take_dout(std::size_t t) {
    std::fill_n(s_.sum, p_count_, 0.0F);
    if (args_.Z != nullptr) load_row_at(args_.Z, step_at(time(t)) * scan_.headdim, io_, headdim_, s_.z);
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::size_t row = (t * ranks_ + r) * p_stride_;
      load_row_at(out_.dout, out_at(time(t), static_cast<std::int64_t>(r)), io_, headdim_, s_.row);
      const float inverse = args_.norm == nullptr ? 1.0F : normalize(s_.y + row);
      for (std::size_t p = 0; p < p_count_; p += lanes_) take_gate(r, row, p);
      if (args_.norm != nullptr) take_norm(row, inverse);
    }
    if (args_.Z != nullptr) store_row_at(s_.sum, headdim_, out_.dZ, step_at(time(t)) * scan_.headdim, io_);
  }
  /// dy at `row` + p, y there with the norm but without its weight, from dout in s_.row.
  void take_gate(std::size_t r, std::size_t row, std::size_t p) {
    const FloatTag tag;
    const std::size_t factor = r * p_stride_ + p;
    const auto dout = hn::Load(tag, s_.row + p);
    auto dy = hn::Mul(dout, hn::Load(tag, s_.down + factor));
    if (!needs_y_) {
      hn::Store(dy, tag, s_.dy + row + p);
      return;
    }
    const auto gated = hn::Mul(hn::Load(tag, s_.y + row + p), hn::Load(tag, s_.norm + p));
    auto of_down = hn::Mul(dout, gated);
    if (args_.Z != nullptr) {
      const auto z = hn::Load(tag, s_.z + p);
      const auto gate = hn::Load(tag, s_.gate + factor);
      const VectorSilu open = vector_silu_with_slope(hn::Mul(z, gate));
      const auto dz = hn::Mul(hn::Mul(dy, gated), open.slope);
      hn::Store(hn::Mul(dz, z), tag, s_.gates + row + p);
      hn::Store(hn::MulAdd(dz, gate, hn::Load(tag, s_.sum + p)), tag, s_.sum + p);
      of_down = hn::Mul(of_down, open.value);
      dy = hn::Mul(dy, open.value);
    }
    hn::Store(of_down, tag, s_.downs + row + p);
    hn::Store(dy, tag, s_.dy + row + p);
  }
  /// y ← y times the inverse of its norm, which is returned.
  float normalize(float* y) const {
    const float mean = dot(y, y, p_count_) / static_cast<float>(headdim_);
    const float inverse = 1.0F / sqrtf(mean + static_cast<float>(kMamba3NormEps));
    scale(inverse, y, p_count_, y);
    return inverse;
  }
  /// Through the norm: dy ← inverse·(dn − n·mean(dn·n)), dn = dy·weight, n the normalized y.
  void take_norm(std::size_t row, float inverse) {
    const FloatTag tag;
    float* const dy = s_.dy + row;
    const float* const n = s_.y + row;
    for (std::size_t p = 0; p < p_count_; p += lanes_) {
      const auto of_weight = hn::Load(tag, dy + p);
      hn::Store(hn::Mul(of_weight, hn::Load(tag, n + p)), tag, s_.norms + row + p);
      hn::Store(hn::Mul(of_weight, hn::Load(tag, s_.norm + p)), tag, dy + p);
    }
    const auto mean = hn::Set(tag, dot(dy, n, p_count_) / static_cast<float>(headdim_));
    for (std::size_t p = 0; p < p_count_; p += lanes_)
      hn::Store(
          hn::Mul(hn::Set(tag, inverse), hn::NegMulAdd(hn::Load(tag, n + p), mean, hn::Load(tag, dy + p))),
          tag, dy + p);
  }

  /// What U, the state that enters, and W, the adjoint of the one that leaves, give: dq, dk, dV, and what
  /// flows from the one and to the other.
  void between_chunks(const float* state) {
    transpose(state, p_stride_, states_count_, headdim_, s_.state_rows, n_stride_);
    transpose(s_.adjoint, p_stride_, states_count_, headdim_, s_.adjoint_rows, n_stride_);
    weigh(s_.dy, s_.enter, nullptr);
    multiply({s_.weighted, p_stride_, 1}, {s_.state_rows, n_stride_}, rows(), headdim_, n_count_,
             {s_.dq, n_stride_}, Overwrite{});
    weigh(s_.v, s_.leave, nullptr);
    multiply({s_.weighted, p_stride_, 1}, {s_.adjoint_rows, n_stride_}, rows(), headdim_, n_count_,
             {s_.dk, n_stride_}, Overwrite{});
    multiply({s_.k, n_stride_, 1}, {s_.adjoint, p_stride_}, rows(), states_count_, p_count_,
             {s_.dv, p_stride_}, Overwrite{});
    for (std::size_t t = 0; t < steps_; ++t) {
      s_.entered[t] = s_.inputs[t] = 0;
      for_each_of_step(t * ranks_, [&](std::size_t row) {
        float* const dk = s_.dk + row * n_stride_;
        s_.entered[t] += dot(s_.dq + row * n_stride_, s_.q + row * n_stride_, n_count_);
        s_.inputs[t] += dot(dk, s_.k + row * n_stride_, n_count_);
        scale(s_.later[t], dk, n_count_, dk);
        scale(s_.later[t] * s_.leave[t], s_.dv + row * p_stride_, p_count_, s_.dv + row * p_stride_);
      });
    }
  }

  /// What the steps of the chunk do to each other.
  void within_chunk() {
    triangles().add_earlier(s_.mixing_of_crosses, s_.k, n_stride_, n_count_, s_.dq);
    triangles().add_later(s_.mixing_of_crosses, s_.q, n_stride_, n_count_, s_.dk);
    triangles().add_later(s_.mixing, s_.dy, p_stride_, p_count_, s_.dv);
    std::fill_n(s_.flows, kMamba3ChunkRows, 0.0F);
    for (std::size_t t = steps_; t-- > 0;) {
      for_each_of_step(t * ranks_, [&](std::size_t row) { add_flows(t, row); });
      s_.within[t] = 0;
      for (std::size_t c = 0; c < t * ranks_; ++c) s_.within[t] += double{s_.weight[c]} * s_.flows[c];
    }
  }
  /// What flows from earlier rows to `row` of step t.
  void add_flows(std::size_t t, std::size_t row) {
    const FloatTag tag;
    const auto end = hn::Set(tag, static_cast<float>(t * ranks_));
    for (std::size_t c = 0; c < t * ranks_; c += lanes_) {
      const std::size_t at = row * kMamba3ChunkRows + c;
      const auto product = hn::Mul(hn::Load(tag, s_.scores + at), hn::Load(tag, s_.crosses + at));
      const auto flow = hn::Mul(product, hn::Load(tag, s_.decay + t * kMamba3ChunkRows + c));
      const auto is_earlier = hn::Lt(hn::Iota(tag, static_cast<float>(c)), end);
      hn::Store(hn::Add(hn::Load(tag, s_.flows + c), hn::IfThenElseZero(is_earlier, flow)), tag,
                s_.flows + c);
    }
  }

  /// dθ and dAngles, then dQ, dK: those of the step itself are added where the angles have theirs, since they
  /// cancel there.
  void store_vectors() {
    for (std::size_t t = steps_; t-- > 0;) {
      for_each_of_step(t * ranks_, [&](std::size_t row) {
        if (is_last(t) && out_.dfinal_k != nullptr) {
          take_states(out_.dfinal_k + k_state_at(static_cast<std::int64_t>(row - t * ranks_)), s_.row);
          add_scaled(1, s_.row, n_count_, s_.dk + row * n_stride_);
        }
        add_turns(s_.q + row * n_stride_, s_.dq + row * n_stride_);
        add_turns(s_.k + row * n_stride_, s_.dk + row * n_stride_);
      });
      store_rates(t);
      for_each_of_step(t * ranks_, [&](std::size_t row) {
        for_each_of_step(row, [&](std::size_t other) {
          add_scaled(own_of(s_.crosses, row, other), s_.k + other * n_stride_, n_count_,
                     s_.dq + row * n_stride_);
          add_scaled(own_of(s_.crosses, other, row), s_.q + other * n_stride_, n_count_,
                     s_.dk + row * n_stride_);
        });
        store_vector(t, row, s_.dq, 0);
        store_vector(t, row, s_.dk, 1);
      });
    }
  }
  void add_turns(const float* x, const float* dx) {
    for (std::size_t i = 0; i < pairs_; ++i) s_.turning[i] += x[i] * dx[pairs_ + i] - x[pairs_ + i] * dx[i];
  }
  void store_rates(std::size_t t) {
    constexpr float kPi = std::numbers::pi_v<float>;
    const float dt = args_.dt[scalar_at(time(t))];
    float sum = 0;
    for (std::size_t i = 0; i < pairs_; ++i) {
      const float rate = rates(t)[i];
      sum += kPi * rate * s_.turning[i];
      s_.row[i] = kPi * (1.0F - rate * rate) * dt * s_.turning[i];
    }
    turned(first_ + static_cast<std::int64_t>(t)) = sum;
    const std::int64_t at = step_at(time(t)) * scan_.angles;
    if (scan_.is_mimo)
      std::copy_n(s_.row, pairs_, static_cast<float*>(out_.drates) + at);
    else
      store_row_at(s_.row, pairs_, out_.drates, at, io_);
  }
  /// Turns dq (which = 0) or dk (1) back and adds it to dQ or dK.
  void store_vector(std::size_t t, std::size_t row, float* all, std::int64_t which) const {
    float* const x = all + row * n_stride_;
    turn_row(t, -1, x);
    const auto r = static_cast<std::int64_t>(row - t * ranks_);
    const std::int64_t at = row_at(time(t), r) / scan_.dstate * plan_.dstate;
    float* const to = parts_ + parts_at_ + which * plan_.part + at;
    if (is_first_)
      std::copy_n(x, n_stride_, to);
    else
      add_scaled(1, x, n_count_, to);
  }

  /// dV of step t; dv becomes the terms of dMIMO_V, y those of dD.
  void store_inputs(std::size_t t) {
    const FloatTag tag;
    const auto skip = hn::Set(tag, args_.D == nullptr ? 0.0F : args_.D[head_]);
    std::fill_n(s_.sum, p_count_, 0.0F);
    if (is_last(t) && out_.dfinal_v != nullptr)
      load_row_at(out_.dfinal_v, state_at() * scan_.headdim, io_, headdim_, s_.sum);
    for_each_of_step(t * ranks_, [&](std::size_t row) {
      float* const dv = s_.dv + row * p_stride_;
      const float* const up = s_.up + (row - t * ranks_) * p_stride_;
      for_each_of_step(row, [&](std::size_t other) {
        add_scaled(own_of(s_.scores, other, row), s_.dy + other * p_stride_, p_count_, dv);
      });
      for (std::size_t p = 0; p < p_count_; p += lanes_) {
        const auto dy = hn::Load(tag, s_.dy + row * p_stride_ + p);
        const auto of_rank = hn::MulAdd(skip, dy, hn::Load(tag, dv + p));
        hn::Store(hn::MulAdd(of_rank, hn::Load(tag, up + p), hn::Load(tag, s_.sum + p)), tag, s_.sum + p);
        hn::Store(hn::Mul(of_rank, hn::Load(tag, s_.plain_v + t * p_stride_ + p)), tag, dv + p);
        hn::Store(hn::Mul(dy, hn::Load(tag, s_.v + row * p_stride_ + p)), tag, s_.y + row * p_stride_ + p);
      }
    });
    store_row_at(s_.sum, headdim_, out_.dV, step_at(time(t)) * scan_.headdim, io_);
  }

  /// Sums over the steps of the chunk.
  void store_sums() {
    const Mamba3HeadSums& sums = plan_.sums;
    add_over_steps(s_.dq, n_stride_, sums.dQ_bias);
    add_over_steps(s_.dk, n_stride_, sums.dK_bias);
    if (out_.dmimo_v != nullptr) add_over_steps(s_.dv, p_stride_, sums.dmimo_v);
    if (out_.dmimo_z != nullptr) add_over_steps(s_.gates, p_stride_, sums.dmimo_z);
    if (out_.dmimo_out != nullptr) add_over_steps(s_.downs, p_stride_, sums.dmimo_out);
    if (out_.dnorm != nullptr) add_over_steps(s_.norms, p_stride_, sums.dnorm);
    if (out_.dD != nullptr) add_over_steps(s_.y, p_stride_, sums.dD);
  }
  void add_over_steps(const float* all, std::size_t stride, std::int64_t to) {
    const FloatTag tag;
    alignas(64) float lanes[kMaxLanes] = {};
    double* const sums = s_.sums + to;
    for (std::size_t i = 0; i < ranks_ * stride; i += lanes_) {
      auto sum = hn::Zero(tag);
      for (std::size_t t = 0; t < steps_; ++t)
        sum = hn::Add(sum, hn::Load(tag, all + t * ranks_ * stride + i));
      hn::Store(sum, tag, lanes);
      for (std::size_t lane = 0; lane < lanes_; ++lane) sums[i + lane] += lanes[lane];
    }
  }

  /// ⟨W, V ⊗ k⟩ of each step, what it gives and gets of its own, and dADT: what flows past it, from the state
  /// that enters and from steps before to the step, later ones and the adjoint that leaves.
  void store_step_sums(const float* state) {
    double through = 0;
    for (std::size_t n = 0; n < states_count_; ++n)
      through += dot(state + n * p_stride_, s_.adjoint + n * p_stride_, p_count_);
    double flow = s_.enter[steps_ - 1] * through;
    double leaving = 0;
    for (std::size_t t = 0; t < steps_; ++t) {
      s_.leaving[t] = leaving;
      leaving += double{s_.later[t]} * s_.inputs[t];
    }
    for (std::size_t t = steps_; t-- > 0;) {
      flow += s_.entered[t];
      const std::int64_t i = first_ + static_cast<std::int64_t>(t);
      flows(i) = static_cast<float>(flow + s_.leaving[t] + s_.within[t]);
      double own = 0;
      for_each_of_step(t * ranks_, [&](std::size_t row) {
        s_.inputs[t] += s_.flows[row];
        for_each_of_step(row, [&](std::size_t other) {
          const std::size_t at = row * kMamba3ChunkRows + other;
          own += double{s_.scores[at]} * s_.crosses[at];
        });
      });
      inputs(i) = static_cast<float>(s_.inputs[t]);
      own_inputs(i) = static_cast<float>(own);
    }
  }

  /// The gradients of the input states; the adjoint is that of the one before the first step.
  void store_start() {
    inputs(-1) = 0;
    if (out_.dinput_ssm == nullptr) return;
    load_start();
    std::copy_n(s_.turning, scan_.angles, out_.dinput_angle + state_at() * scan_.angles);
    float* const ssm = out_.dinput_ssm + state_at() * scan_.headdim * scan_.dstate;
    for (std::size_t p = 0; p < headdim_; ++p)
      for (std::size_t n = 0; n < states_count_; ++n)
        ssm[static_cast<std::int64_t>(p) * scan_.dstate + order_[n]] = s_.adjoint[n * p_stride_ + p];
    std::fill_n(s_.sum, p_count_, 0.0F);
    double inputs_before = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      float* const dk = out_.dinput_k + k_state_at(static_cast<std::int64_t>(r));
      std::fill_n(s_.dv, p_count_, 0.0F);
      for (std::size_t n = 0; n < states_count_; ++n) {
        const float k = s_.k[r * n_stride_ + n];
        const float read = dot(s_.adjoint + n * p_stride_, s_.v + r * p_stride_, p_count_);
        dk[order_[n]] = start_weight_ * read;
        inputs_before += k * read;
        add_scaled(start_weight_ * k, s_.adjoint + n * p_stride_, p_count_, s_.dv);
      }
      for (std::size_t p = 0; p < headdim_; ++p) {
        s_.sum[p] += s_.up[r * p_stride_ + p] * s_.dv[p];
        s_.sums[plan_.sums.dmimo_v + static_cast<std::int64_t>(r * p_stride_ + p)] +=
            s_.dv[p] * s_.plain_v[p];
      }
    }
    inputs(-1) = static_cast<float>(inputs_before);
    std::copy_n(s_.sum, headdim_, out_.dinput_v + state_at() * scan_.headdim);
  }

  void store_scalars() {
    for (std::int64_t i = 0; i < end_ - begin_; ++i) {
      const Scalars step = scalars(begin_ + i);
      const std::int64_t at = scalar_at(begin_ + i);
      const float before = inputs(i - 1);
      const float now = inputs(i) + own_inputs(i);
      const bool is_cut = i == 0 && args_.input_ssm == nullptr;  // nothing flows from before
      out_.dadt[at] = is_cut ? 0.0F : flows(i);
      out_.ddt[at] = step.closed * before + step.open * now + turned(i);
      store(out_.dtrap, at, step.open * step.closed * step.dt * (now - before));
    }
  }

  static std::vector<std::int64_t> order_of(const Mamba3& scan) {
    std::vector<std::int64_t> order(scan.dstate);
    for (std::int64_t n = 0; n < scan.dstate; ++n) order[n] = state_of(scan, n);
    return order;
  }

  const Mamba3BwdArgs& out_;
  const Mamba3BwdPlan& plan_;
  float *parts_, *entering_, *states_, *angles_;
  float* step_sums_[4];
  Mamba3BwdScratch& s_;
  std::int64_t parts_at_ = 0;
  bool is_first_ = false;  ///< head of its task
  float start_weight_ = 0;
  std::int64_t chunks_ = 0, first_ = 0;  ///< first step of the chunk, in the sequence
  std::size_t steps_ = 0;
  std::vector<std::int64_t> order_ = order_of(scan_);
  bool needs_y_ = scan_.has_z || scan_.is_mimo;
  std::size_t lanes_ = hn::Lanes(FloatTag());
  std::size_t headdim_ = static_cast<std::size_t>(scan_.headdim);
  std::size_t states_count_ = static_cast<std::size_t>(scan_.dstate);
  std::size_t ranks_ = static_cast<std::size_t>(scan_.rank);
  std::size_t pairs_ = static_cast<std::size_t>(scan_.angles);
  std::size_t p_stride_ = static_cast<std::size_t>(plan_.headdim);
  std::size_t n_stride_ = static_cast<std::size_t>(plan_.dstate);
  std::size_t p_count_ = round_up(headdim_, lanes_);  ///< computed with
  std::size_t n_count_ = round_up(states_count_, lanes_);
};

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
