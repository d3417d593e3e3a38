// The adjoint of Mamba-2's scan. With dy_t = dout_t·silu(z_t) and a_t = exp(Δ_t·A), per (batch, head):
//   g_t  = dy_t ⊗ C_t + a_{t+1}·g_{t+1}          gradient of h_t; g after the last step is dfinal_states
//   dC_t = Σ_p dy_t[p]·h_t[p]                    dB_t = Σ_p Δ_t·x_t[p]·g_t[p]
//   dx_t = Δ_t·g_t·B_t + D·dy_t                  dz_t = dout_t·(y_t + D·x_t)·silu'(z_t)
//   dΔ_t = A·w_t + x_t·(g_t·B_t)                 dA = Σ Δ_t·w_t
// where w_t = a_t·Σ g_t∘h_{t-1} needs both states at once, but Σ g_t∘h_t = w_t + Δ_t·x_t·(g_t·B_t) by the
// recurrence of h and = dy_t·y_t + w_{t+1} by that of g, so that
//   w_t = w_{t+1} + dy_t·y_t − Δ_t·x_t·(g_t·B_t)
// and one pass in time and one against it do, without checkpoints. fp64 leaves the differences more digits
// than f32 has to begin with. Source of the identity: mamba_ssm's ssd_chunk_scan.py (ddA_cumsum).
//
// Bounds: those of pass.h for what is read from h and g. Those of w are of its definition, a sum of
// products g·h. Independent relative errors ε of what is read add up to ε·s, s² = a²·Σ (g·h)² ≤
// a²·√(Σ g⁴·Σ h⁴) (Cauchy and Schwarz). Errors of the terms that g and h are sums of do not shrink where
// those cancel: with K the sum of their squares (pass.h) they add up to ε·s', s'² = a²·Σ (h²·K_g +
// g²·K_h), by the same inequality. Errors that all share add up to ε·|w|.

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "base/errors.h"
#include "reference/common/activations.h"
#include "reference/common/lane_math.h"
#include "reference/common/statistical_bound.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/bounds.h"
#include "reference/ssd_chunk_scan/gradient_sums.h"
#include "reference/ssd_chunk_scan/time_sum.h"

namespace ssmbench {
namespace {

/// Σ_p of products, with the variances of its terms' errors.
struct Dot {
  double value = 0, magnitude = 0;
  double squared_errors = 0;    ///< f32 roundings, squared bounds
  double operand_variance = 0;  ///< squared bounds of what rounded operands do

  void add(double term, double error, double operand_error) {
    value += term;
    magnitude += std::abs(term);
    squared_errors += error * error;
    operand_variance += operand_error * operand_error;
  }
  /// Squared bound, the roundings of adding up `terms` included.
  double squared_error(std::int64_t terms) const {
    const double adding = (2 + std::sqrt(static_cast<double>(terms))) * magnitude;
    return squared_errors + adding * adding;
  }
};

/// What is summed for one (batch, head); dD has one sum per head dim.
struct HeadSums {
  TimeSum dA, ddt_bias;
  std::vector<Sum<double>> dD;
};

/// In time, which gives dC, or against it, which gives dB.
enum class Direction { in_time, against };

/// dB and dC, which heads of a group are added to in their order, whichever threads have them: span by span
/// of their steps, so that no thread holds the sums of more than one span. The heads of a group go through
/// time one behind the other. Heads have to be begun in order.
class Projections {
 public:
  /// `outputs`: dB and dC, whose operand_bound holds deviations until the end.
  Projections(const SsdChunkScan& scan, const IndexRange& heads, ReferenceOutputs& outputs)
      : scan_(scan),
        heads_(heads),
        dB_(outputs.at("dB")),
        dC_(outputs.at("dC")),
        done_(static_cast<std::size_t>(2 * scan.batch * heads.count())) {}

  /// Adds the next `steps` steps of a head, from step t on in the direction, once the head before has added
  /// them. `sums` has them in that order.
  void add(Direction direction, std::int64_t batch, std::int64_t head, std::int64_t t, std::int64_t steps,
           const ProjectionSums& sums, const std::atomic<bool>& stop) {
    std::atomic<std::int64_t>& done = done_of(direction, batch, head);
    const bool is_first = head == heads_.begin || head % scan_.heads_per_group() == 0;
    while (!is_first && done_of(direction, batch, head - 1) < done + steps && !stop)
      std::this_thread::yield();
    const std::int64_t group = head / scan_.heads_per_group();
    ReferenceOutput& to = direction == Direction::in_time ? dC_ : dB_;
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::int64_t step = direction == Direction::in_time ? t + i : t - i;
      const std::int64_t first = ((batch * scan_.seqlen + step) * scan_.groups + group) * scan_.dstate;
      for (std::int64_t n = 0; n < scan_.dstate; ++n) {
        const std::int64_t from = i * scan_.dstate + n;
        to.expected[first + n] += sums.value[from];
        to.bound[first + n] += sums.error[from];
        add_variance(to.operand_bound[first + n], sums.variance[from]);
      }
    }
    done += steps;
  }

 private:
  /// Steps that a head has added.
  std::atomic<std::int64_t>& done_of(Direction direction, std::int64_t batch, std::int64_t head) {
    const std::int64_t pass = 2 * batch + (direction == Direction::in_time ? 0 : 1);
    return done_[static_cast<std::size_t>(pass * heads_.count() + head - heads_.begin)];
  }

  const SsdChunkScan& scan_;
  IndexRange heads_;
  ReferenceOutput &dB_, &dC_;
  std::vector<std::atomic<std::int64_t>> done_;
};

/// One head of one batch after the other. `outputs` are those of `heads`, and `sums` too, [batch][head].
class Backward {
 public:
  Backward(const Problem& problem, const TensorSet& inputs, const IndexRange& heads,
           ReferenceOutputs& outputs, std::vector<HeadSums>& sums, Projections& projections)
      : scan_(problem),
        inputs_(inputs),
        heads_(heads),
        outputs_(outputs),
        sums_(sums),
        projections_(projections),
        over_states_(roundings_of_sum(scan_.dstate)),
        over_headdims_(roundings_of_sum(scan_.headdim)),
        least_operand_(least_operand(problem.dtype())),
        pass_(scan_.headdim, scan_.dstate, true),
        before_(scan_.seqlen + 1),
        alpha_(scan_.seqlen),
        differences_(scan_.seqlen),
        x_(kSsdTileSteps, scan_.headdim),
        v_(kSsdTileSteps, scan_.headdim),
        v_error_(kSsdTileSteps, scan_.headdim),
        dout_(kSsdTileSteps, scan_.headdim),
        z_(kSsdTileSteps, scan_.headdim),
        z_exp_(kSsdTileSteps, scan_.headdim),
        dy_(kSsdTileSteps, scan_.headdim),
        dy_error_(kSsdTileSteps, scan_.headdim),
        product_error_(kSsdTileSteps, scan_.headdim),
        z_slope_(kSsdTileSteps, scan_.headdim),
        z_slope_error_(kSsdTileSteps, scan_.headdim),
        exact_(1, scan_.headdim),
        B_(kSsdTileSteps, scan_.dstate),
        C_(kSsdTileSteps, scan_.dstate),
        span_(std::min(scan_.seqlen, kSpan) * scan_.dstate) {}

  void run(std::int64_t batch, std::int64_t head, const std::atomic<bool>& stop) {
    batch_ = batch;
    head_ = head;
    group_ = head / scan_.heads_per_group();
    steps_ = ssd_steps(scan_, inputs_, {batch * scan_.seqlen, scan_.seqlen}, head);
    HeadSums& sums = sums_[batch * heads_.count() + head - heads_.begin];
    sums.dD.resize(scan_.headdim);
    go_forward(sums, stop);
    go_back(sums, stop);
  }

  /// That one allocates, but for what a tile has.
  static std::size_t bytes(const SsdChunkScan& scan) {
    const auto of_step = sizeof(SsdStep) + sizeof(StateSize) + sizeof(Dot) + sizeof(double);
    const auto of_element = 2 * sizeof(double) + sizeof(float);  // of span_
    return static_cast<std::size_t>(scan.seqlen) * of_step +
           static_cast<std::size_t>(std::min(scan.seqlen, kSpan) * scan.dstate) * of_element;
  }

 private:
  /// Steps that a head adds to dB or dC at a time: as long as others can be late without being waited for.
  static constexpr std::int64_t kSpan = 4096;
  /// Σ of fourth powers of the elements and of their terms, and the relative error of what is read.
  struct StateSize {
    double fourths = 0, fourths_of_terms = 0, relative_error = 0;
    bool is_long = false;
  };

  std::int64_t state_at() const { return (batch_ * scan_.nheads + head_) * scan_.headdim * scan_.dstate; }
  std::int64_t row_at(std::int64_t t) const {
    return ((batch_ * scan_.seqlen + t) * scan_.nheads + head_) * scan_.headdim;
  }
  /// Step t of this head in an output (B, L, H) of the heads at hand.
  std::int64_t output_at(std::int64_t t) const {
    return (batch_ * scan_.seqlen + t) * heads_.count() + head_ - heads_.begin;
  }
  std::int64_t projection_at(std::int64_t t) const {
    return ((batch_ * scan_.seqlen + t) * scan_.groups + group_) * scan_.dstate;
  }
  /// Step t as the tile's step `into`.
  void load_step(std::int64_t t, std::int64_t into) {
    double* x = x_.row(into);
    load_row(inputs_.at("x"), row_at(t), scan_.headdim, x);
    load_row(inputs_.at("dout"), row_at(t), scan_.headdim, dout_.row(into));
    load_row(inputs_.at("B"), projection_at(t), scan_.dstate, B_.row(into));
    load_row(inputs_.at("C"), projection_at(t), scan_.dstate, C_.row(into));
    if (scan_.has_z) load_row(inputs_.at("z"), row_at(t), scan_.headdim, z_.row(into));
    const Rounded<double>& delta = steps_[t].delta;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const double v = delta.value * x[p];
      v_.row(into)[p] = v;
      v_error_.row(into)[p] = std::abs(x[p]) * delta.error + std::abs(v);
    }
  }

  /// Makes dy of the steps loaded.
  void make_gradients(std::int64_t steps) {
    const std::int64_t count = steps * dy_.stride();
    if (!scan_.has_z) {
      std::copy_n(dout_.data(), count, dy_.data());
      return;  // dy_error_ stays 0
    }
    exp_of_minus_size(z_.data(), count, z_exp_.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const Gate gate = gate_of(z_.data()[i], z_exp_.data()[i]);
      const Rounded<double> dy = exactly(dout_.data()[i]) * gate.value;
      dy_.data()[i] = dy.value;
      dy_error_.data()[i] = dy.error;
      z_slope_.data()[i] = gate.slope.value;
      z_slope_error_.data()[i] = gate.slope.error;
    }
  }

  /// Makes product_error_, the errors of factors v with one rounding for the product.
  void add_products(const PaddedRows<double>& v, const PaddedRows<double>& error, std::int64_t steps) {
    for (std::int64_t i = 0; i < steps * v.stride(); ++i)
      product_error_.data()[i] = error.data()[i] + std::abs(v.data()[i]);
  }

  void go_forward(HeadSums& sums, const std::atomic<bool>& stop) {
    pass_.clear();
    before_[0] = {};
    if (scan_.has_initial_states) {
      pass_.start_from(static_cast<const float*>(inputs_.at("initial_states").data) + state_at());
      for (std::int64_t p = 0; p < scan_.headdim; ++p)
        for (std::int64_t n = 0; n < scan_.dstate; ++n) before_[0].fourths += std::pow(pass_.state(p, n), 4);
    }
    for (std::int64_t start = 0; start < scan_.seqlen && !stop;) {
      if (steps_[start].starts) pass_.clear();
      SsdTile tile{
          .v = v_, .v_error = product_error_, .w = B_, .r = C_, .q = dy_, .least_operand = least_operand_};
      std::int64_t t = start;
      do {
        tile.decay[tile.steps] = steps_[t].decay;
        tile.decay_error[tile.steps] = steps_[t].decay_error;
        tile.cumulative_error[tile.steps] = t == 0 ? 0 : steps_[t - 1].cumulative_error;
        tile.least_product[tile.steps] = SsdFloor::of_step(least_operand_, steps_[t].delta.value);
        load_step(t++, tile.steps++);
      } while (t < scan_.seqlen && tile.steps < kSsdTileSteps && !steps_[t].starts);
      make_gradients(tile.steps);
      add_products(v_, v_error_, tile.steps);
      pass_.advance(tile);
      for (std::int64_t i = 0; i < tile.steps; ++i) take_forward(start + i, i, sums);
      start = t;
      end_tile(Direction::in_time, t == scan_.seqlen, t - 1, stop);
    }
    const Dot of_final_states = final_dot();
    w_ = of_final_states.value;
    w_magnitude_ = of_final_states.magnitude;
    of_chunk_ = 0;
  }

  /// Ends the span too, where it has no room for another tile; `t` is the last step of both.
  void end_tile(Direction direction, bool is_last, std::int64_t t, const std::atomic<bool>& stop) {
    if (!is_last && span_steps_ + kSsdTileSteps <= kSpan) return;
    const std::int64_t back = span_steps_ - 1;
    projections_.add(direction, batch_, head_, direction == Direction::in_time ? t - back : t + back,
                     span_steps_, span_, stop);
    span_steps_ = 0;
  }

  /// What the forward pass gives at step t, the tile's step `from`.
  void take_forward(std::int64_t t, std::int64_t from, HeadSums& sums) {
    const double* x = x_.row(from);
    const double* dy = dy_.row(from);
    const double* dy_error = dy_error_.row(from);
    take_projection(from, dy, dy_error);
    alpha_[t] = dot(from, dy, dy_error);
    before_[t + 1] = size_of_state(from);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const double term = dy[p] * x[p];
      sums.dD[p].add(Rounded<double>{term, std::abs(term), std::abs(x[p]) * dy_error[p] + std::abs(term)});
    }
    if (scan_.has_z) store_dz(t, from);
  }

  /// Σ_p factor·(what is read over states). What underflow may take counts as magnitude, which gradients of
  /// decays are charged with.
  Dot dot(std::int64_t from, const double* factor, const double* factor_error) const {
    Dot sum;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const SsdRead term = read(pass_.of_states(), from, p, over_states_);
      sum.add(factor[p] * term.value,
              std::abs(factor[p]) * term.error + factor_error[p] * std::abs(term.value),
              std::abs(factor[p]) * term.operand_error);
      sum.magnitude += std::abs(factor[p]) * pass_.lost(from, p);
    }
    return sum;
  }

  /// After the tile's step `from`.
  StateSize size_of_state(std::int64_t from) const {
    double error = 0;
    double magnitude = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      error += pass_.of_states().error.row(from)[p];
      magnitude += pass_.of_states().magnitude.row(from)[p];
    }
    const double relative = magnitude > 0 ? error / magnitude : 0;
    return {pass_.fourths(from), pass_.fourths_of_terms(from),
            pass_.is_long() ? pass_.relative_error() : relative, pass_.is_long()};
  }

  /// Σ dfinal_states·final_states.
  Dot final_dot() const {
    Dot sum;
    const TensorView* view = inputs_.find("dfinal_states");
    if (view == nullptr) return sum;
    const auto* gradient = static_cast<const float*>(view->data) + state_at();
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      for (std::int64_t n = 0; n < scan_.dstate; ++n)
        sum.add(gradient[p * scan_.dstate + n] * pass_.state(p, n), 0, 0);
    return sum;
  }

  /// Takes what is read over head dims for the span's next step, with factors that have errors of their own:
  /// relative ones, and those of tiny factors, of which underflow may leave nothing, at the largest that a
  /// state has been.
  void take_projection(std::int64_t from, const double* factor, const double* factor_error) {
    constexpr double kTiny = 0x1p-80;
    const SsdUnderflow& largest = pass_.underflow();
    double relative = 0;
    double of_tiny = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      if (std::abs(factor[p]) < kTiny)
        of_tiny += factor_error[p] * largest.row(p);
      else
        relative = std::max(relative, factor_error[p] / std::abs(factor[p]));
    const double more = relative + std::sqrt(static_cast<double>(scan_.heads_per_group()));
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      const SsdRead term = read(pass_.of_headdims(), from, n, over_headdims_);
      const std::int64_t at = span_steps_ * scan_.dstate + n;
      span_.value[at] = term.value;
      span_.error[at] = static_cast<float>(term.error + more * term.magnitude + of_tiny * largest.column(n));
      span_.variance[at] = term.variance;
    }
    ++span_steps_;
  }

  /// y may have been saved by the forward kernel in the io dtype: a rounding like those of operands, which
  /// kSharedRoundings has room for.
  void store_dz(std::int64_t t, std::int64_t from) {
    const SsdSkips skips(scan_, inputs_, head_);
    ReferenceOutput& dz = outputs_.at("dz");
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const SsdRead y = read(pass_.of_states(), from, p, over_states_, skips[p] * x_.row(from)[p]);
      const double dout = dout_.row(from)[p];
      const double slope = z_slope_.row(from)[p];
      const double factor = std::abs(dout * slope);
      const double of_slope = std::abs(dout) * (z_slope_error_.row(from)[p] + 2 * std::abs(slope));
      const double underflow = kUnderflowError * (std::abs(y.value) + std::abs(slope));
      store(dz, output_at(t) * scan_.headdim + p, dout * y.value * slope,
            factor * y.error + std::abs(y.value) * of_slope + underflow, factor * y.operand_error);
    }
  }

  void go_back(HeadSums& sums, const std::atomic<bool>& stop) {
    pass_.clear();
    if (scan_.has_final_states)
      pass_.start_from(static_cast<const float*>(inputs_.at("dfinal_states").data) + state_at());
    for (std::int64_t start = scan_.seqlen - 1; start >= 0 && !stop;) {
      if (starts_after(start)) pass_.clear();
      SsdTile tile{
          .v = dy_, .v_error = product_error_, .w = C_, .r = B_, .q = v_, .least_operand = least_operand_};
      std::int64_t t = start;
      do {
        // Chunked, dfinal_states come with exp(sum to the end − sum to the last step), which is not 1.
        const bool last = t + 1 == scan_.seqlen;
        tile.decay[tile.steps] = last ? 1 : steps_[t + 1].decay;
        tile.decay_error[tile.steps] = last ? steps_[t].cumulative_error : steps_[t + 1].decay_error;
        tile.cumulative_error[tile.steps] = last ? 0 : steps_[t + 1].cumulative_error;
        tile.least_product[tile.steps] = least_operand_;
        load_step(t--, tile.steps++);
      } while (t >= 0 && tile.steps < kSsdTileSteps && !starts_after(t));
      make_gradients(tile.steps);
      add_products(dy_, dy_error_, tile.steps);
      pass_.advance(tile);
      for (std::int64_t i = 0; i < tile.steps; ++i) take_backward(start - i, i, sums);
      start = t;
      end_tile(Direction::against, t < 0, t + 1, stop);
    }
    if (scan_.has_initial_states) store_dinitial_states();
  }

  /// Whether a sequence starts after step t.
  bool starts_after(std::int64_t t) const { return t + 1 < scan_.seqlen && steps_[t + 1].starts; }

  /// What the pass against time gives at step t, the tile's step `from`.
  void take_backward(std::int64_t t, std::int64_t from, HeadSums& sums) {
    take_projection(from, v_.row(from), v_error_.row(from));
    store_dx(t, from);
    store_ddt(t, from, sums);
  }

  void store_dx(std::int64_t t, std::int64_t from) {
    const Rounded<double>& delta = steps_[t].delta;
    const SsdSkips skips(scan_, inputs_, head_);
    ReferenceOutput& dx = outputs_.at("dx");
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const SsdRead of_v = read(pass_.of_states(), from, p, over_states_);
      const double skip = skips[p];
      const double direct = skip * dy_.row(from)[p];
      const double error = std::abs(delta.value) * (of_v.error + 2 * std::abs(of_v.value)) +
                           delta.error * std::abs(of_v.value) + std::abs(skip) * dy_error_.row(from)[p] +
                           over_states_ * std::abs(direct);
      store(dx, output_at(t) * scan_.headdim + p, delta.value * of_v.value + direct, error,
            std::abs(delta.value) * of_v.operand_error);
    }
  }

  /// w of step t, the tile's step `from`, its error and what rounded operands do to it; `direct` is x·(g·B).
  SsdRead decay_gradient(std::int64_t t, std::int64_t from, const Dot& direct) {
    const SsdStep& step = steps_[t];
    const bool last = t + 1 == scan_.seqlen;
    const double carried = !last && steps_[t + 1].starts ? 0 : w_;
    // No state comes before a sequence, so that nothing depends on the decay of its first step.
    const bool unused = step.starts || (t == 0 && !scan_.has_initial_states);
    differences_[t] = alpha_[t].magnitude + std::abs(step.delta.value) * direct.magnitude;
    w_magnitude_ += differences_[t];
    of_chunk_ += differences_[t] - (t + kLongestChunk < scan_.seqlen ? differences_[t + kLongestChunk] : 0);
    w_ = unused ? 0 : carried + alpha_[t].value - step.delta.value * direct.value;
    if (unused) return {};

    const StateSize after = size_of_state(from);
    const StateSize& before = before_[t];
    const double squared_decay = step.decay * step.decay;
    const double of_reads = squared_decay * std::sqrt(after.fourths * before.fourths);
    const double of_terms = squared_decay * (std::sqrt(before.fourths * after.fourths_of_terms) +
                                             std::sqrt(after.fourths * before.fourths_of_terms));
    const double products = static_cast<double>(scan_.headdim * scan_.dstate + kLongestChunk);
    const double relative = after.relative_error + before.relative_error + step.decay_error +
                            step.cumulative_error + 2 + std::sqrt(products);
    const double size = std::abs(w_);
    // The error of a long memory has that of terms that cancel in it.
    const bool is_long = before.is_long && after.is_long;
    const double of_products =
        is_long ? std::sqrt(of_reads) : std::max(kSpread * std::sqrt(of_reads), std::sqrt(of_terms));
    const double variance =
        2 * kReadRoundings * of_reads + (SsdPass::kTermRoundings + SsdPass::kPartRoundings) * of_terms;
    return {w_, size, relative * (of_products + size) + kOwnError * w_magnitude_ + kDifference * of_chunk_,
            variance, operand_bound(variance, w_)};
  }

  void store_ddt(std::int64_t t, std::int64_t from, HeadSums& sums) {
    const SsdStep& step = steps_[t];
    const Dot direct = dot(from, x_.row(from), exact_.row(0));  // x·(g·B)
    const SsdRead w = decay_gradient(t, from, direct);
    const double A = float_of(inputs_, "A", head_);

    const double value = A * w.value + direct.value;
    const double error = std::abs(A) * w.error +
                         spread_of(pass_.is_long()) * std::sqrt(direct.squared_error(scan_.headdim)) +
                         2 * (std::abs(A * w.value) + std::abs(direct.value));
    const double operand_error = std::hypot(A * w.operand_error, std::sqrt(direct.operand_variance));
    const double slope = std::abs(step.slope.value);
    const double of_dt = value * step.slope.value;
    double dt_error = slope * (error + std::abs(value)) + std::abs(value) * step.slope.error;
    if (step.slope_may_jump) dt_error = std::numeric_limits<double>::infinity();
    store(outputs_.at("ddt"), output_at(t), of_dt, dt_error, slope * operand_error);
    if (step.slope_may_jump) dt_error = std::abs(value) / unit_roundoff(DType::f32);
    // The state forgets in 1/(1 − decay) steps; terms on both sides of one are alike.
    const double alike = weight_over_time(2 / (1 - std::min(step.decay, 1 - 1e-9)), scan_.seqlen);
    sums.ddt_bias.add(of_dt, dt_error, slope * operand_error, alike);
    sums.dA.add(step.delta.value * w.value,
                std::abs(step.delta.value) * (w.error + w.magnitude) + step.delta.error * w.magnitude,
                std::abs(step.delta.value) * w.operand_error, alike);
  }

  void store_dinitial_states() {
    pass_.decay(steps_[0].decay, steps_[0].decay_error, steps_[0].cumulative_error);
    const double roundings = 2 + std::sqrt(static_cast<double>(kLongestChunk));
    const std::int64_t first =
        (batch_ * heads_.count() + head_ - heads_.begin) * scan_.headdim * scan_.dstate;
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      for (std::int64_t n = 0; n < scan_.dstate; ++n)
        store(outputs_.at("dinitial_states"), first + p * scan_.dstate + n, pass_.state(p, n),
              pass_.error(p, n) + roundings * pass_.magnitude(p, n),
              operand_bound(pass_.variance(n), pass_.state(p, n)));
  }

  SsdChunkScan scan_;
  const TensorSet& inputs_;
  IndexRange heads_;
  ReferenceOutputs& outputs_;
  std::vector<HeadSums>& sums_;
  Projections& projections_;
  std::int64_t batch_ = 0, head_ = 0, group_ = 0;
  std::vector<SsdStep> steps_;
  double over_states_, over_headdims_;  // roundings of sums
  double least_operand_;
  SsdPass pass_;
  std::vector<StateSize> before_;    // the state that each step sees
  std::vector<Dot> alpha_;           // dy·y of each step
  std::vector<double> differences_;  // of each step, what it adds to and subtracts from w, in magnitude
  double w_magnitude_ = 0;           // of all of that
  double of_chunk_ = 0;              // of that of the longest chunk that begins with the step
  double w_ = 0;                     // of the step at hand
  // The tile's steps, [step][head dim]
  PaddedRows<double> x_, v_, v_error_, dout_, z_, z_exp_, dy_, dy_error_, product_error_, z_slope_,
      z_slope_error_;
  PaddedRows<double> exact_;     // no errors, a row
  PaddedRows<double> B_, C_;     // [step][state]
  ProjectionSums span_;          // of dB or dC, [step][state]
  std::int64_t span_steps_ = 0;  // that it has
};

/// Sums over batches, in order, of `heads` heads.
void store_head_sums(const SsdChunkScan& scan, std::int64_t heads, const std::vector<HeadSums>& sums,
                     ReferenceOutputs& outputs) {
  const std::int64_t steps = scan.batch * scan.seqlen;
  for (std::int64_t h = 0; h < heads; ++h) {
    TimeSum dA;
    TimeSum ddt_bias;
    std::vector<Sum<double>> dD(scan.headdim);
    for (std::int64_t b = 0; b < scan.batch; ++b) {
      const HeadSums& of_batch = sums[b * heads + h];
      dA.add(of_batch.dA);
      ddt_bias.add(of_batch.ddt_bias);
      for (std::int64_t p = 0; p < scan.headdim; ++p) dD[p].add(of_batch.dD[p]);
    }
    dA.store_to(outputs.at("dA"), h, steps);
    if (scan.has_dt_bias) ddt_bias.store_to(outputs.at("ddt_bias"), h, steps);
    if (scan.skip == SsdSkip::headdim)
      for (std::int64_t p = 0; p < scan.headdim; ++p) {
        const auto sum = dD[p].over(steps);
        store(outputs.at("dD"), h * scan.headdim + p, sum.value, sum.error, 0);
      }
    if (scan.skip == SsdSkip::head) {
      for (std::int64_t p = 1; p < scan.headdim; ++p) dD[0].add(dD[p]);
      const auto sum = dD[0].over(steps * scan.headdim);
      store(outputs.at("dD"), h, sum.value, sum.error, 0);
    }
  }
}

/// What a NaN reaches depends on the chunks of an implementation, since differences and sums over a chunk carry
/// it against the direction of time. So nothing is said of a batch that has one, nor of sums over batches.
/// `found`: the batches, those of heads before among them.
void leave_out_nan(std::vector<char>& found, ReferenceOutputs& outputs) {
  const auto batches = std::ssize(found);
  const auto is_sum = [](const std::string& name) {
    return name == "dA" || name == "dD" || name == "ddt_bias";
  };
  const auto leave_out = [](ReferenceOutput& output, std::size_t first, std::size_t count) {
    std::fill_n(output.bound.begin() + static_cast<std::ptrdiff_t>(first), count,
                std::numeric_limits<float>::infinity());
  };
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const auto has_nan = [&](const auto& named) {
      const std::size_t count = named.second.expected.size() / static_cast<std::size_t>(batches);
      const auto first = named.second.expected.begin() + static_cast<std::ptrdiff_t>(batch * count);
      return !is_sum(named.first) && std::any_of(first, first + static_cast<std::ptrdiff_t>(count),
                                                 [](double value) { return std::isnan(value); });
    };
    if (std::ranges::any_of(outputs, has_nan)) found[batch] = 1;
    if (found[batch] == 0) continue;
    for (auto& [name, output] : outputs) {
      const std::size_t count = output.bound.size() / static_cast<std::size_t>(batches);
      if (!is_sum(name)) leave_out(output, static_cast<std::size_t>(batch) * count, count);
    }
  }
  if (std::ranges::find(found, 1) == found.end()) return;
  for (auto& [name, output] : outputs)
    if (is_sum(name)) leave_out(output, 0, output.bound.size());
}

bool is_of_heads(const TensorSpec& output) {
  return output.axes.find('h') != std::string::npos;
}

/// The adjoint of the sequential recurrence.
class BackwardByHeads : public ReferenceByChannels {
 public:
  BackwardByHeads(const Problem& problem, const TensorSet& inputs)
      : problem_(problem),
        inputs_(inputs),
        scan_(problem),
        over_heads_(
            empty_ssd_outputs(problem, {}, [](const TensorSpec& output) { return !is_of_heads(output); })),
        nan_(static_cast<std::size_t>(scan_.batch)) {}

  ReferenceOutputs compute(const IndexRange& heads, const std::atomic<bool>& stop) override {
    ReferenceOutputs outputs = empty_ssd_outputs(problem_, ssd_heads(heads), is_of_heads);
    std::vector<HeadSums> sums(scan_.batch * heads.count());
    Projections projections(scan_, heads, over_heads_);
#pragma omp parallel
    {
      Backward backward(problem_, inputs_, heads, outputs, sums, projections);
#pragma omp for schedule(monotonic : dynamic)
      for (std::int64_t task = 0; task < scan_.batch * heads.count(); ++task)
        if (!stop) backward.run(task / heads.count(), heads.begin + task % heads.count(), stop);
    }
    if (stop) throw Interrupted();
    store_head_sums(scan_, heads.count(), sums, outputs);
    if (heads.end == scan_.nheads) {
      finish_projections();
      outputs.merge(over_heads_);
    }
    leave_out_nan(nan_, outputs);
    return outputs;
  }

 private:
  /// Makes bounds of what are deviations so far.
  void finish_projections() {
    for (auto& [name, output] : over_heads_)
      for (std::size_t i = 0; i < output.expected.size(); ++i) {
        const double deviation = output.operand_bound[i];
        output.operand_bound[i] =
            static_cast<float>(operand_bound(deviation * deviation, output.expected[i]));
      }
  }

  const Problem& problem_;
  const TensorSet& inputs_;
  SsdChunkScan scan_;
  ReferenceOutputs over_heads_;  // dB and dC, so far
  std::vector<char> nan_;        // whether a batch has one, so far
};

std::size_t bytes_of_backward(const Problem& problem, std::int64_t heads) {
  const SsdChunkScan scan(problem);
  const std::int64_t threads = std::min<std::int64_t>(omp_get_max_threads(), scan.batch * heads);
  return static_cast<std::size_t>(threads) * Backward::bytes(scan) +
         output_bytes(problem, ssd_heads({0, heads}), [](const TensorSpec&) { return true; });
}

std::unique_ptr<ReferenceByChannels> start_backward(const Problem& problem, const TensorSet& inputs) {
  return std::make_unique<BackwardByHeads>(problem, inputs);
}

const ReferenceRegistration backward_registration({.op = "ssd_chunk_scan_bwd",
                                                   .by_channels = ChannelReference{.letter = 'h',
                                                                                   .cuts = ssd_cuts,
                                                                                   .bytes = bytes_of_backward,
                                                                                   .start = start_backward},
                                                   .depends_on_dtype = has_least_operand});

}  // namespace
}  // namespace ssmbench
