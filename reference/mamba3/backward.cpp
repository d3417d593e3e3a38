// All gradients of Mamba-3's scans in fp64. With the recurrence of forward.cpp and s_t the weight that the
// input of step t has for all later steps, the adjoint of U_t less what its own step reads is
//   W_t = α_{t+1}·(W_{t+1} + Σ_r dy_{t+1}^r ⊗ q_{t+1}^r)        after the last step dFinal_SSM_State
// and with X_t[r][r'] = dy_t^r·V_t^r', in frames that are turned back by θ_t,
//   dq_t^r = U_tᵀ·dy_t^r + γ_t·Σ_r' X_t[r][r']·k_t^r'
//   dk_t^r = s_t·W_tᵀ·V_t^r + γ_t·Σ_r' X_t[r'][r]·q_t^r'
//   dV_t^r = s_t·W_t·k_t^r + γ_t·Σ_r' (q_t^r'·k_t^r)·dy_t^r' + D·dy_t^r
//   ds_t = c_t = Σ_r V_t^r·W_t·k_t^r,     dγ_t = c_t + Σ_rr' X_t[r][r']·(q_t^r·k_t^r')
// dθ_t has nothing of the step's own terms: they cancel between q and k. dADT_t = w_t = ⟨W_t + dy_t ⊗ q_t,
// U_t⟩ is, as in Mamba-2's gradients, w_t = w_{t+1} + Σ_r dy_t^r·(U_t·q_t^r) − s_t·c_t, so that one pass in
// time and one against it do. Source: the reverse recurrence of ops/mamba3/mamba3.h, sums over u > t taken
// together.
//
// Bounds: those of forward.cpp for what is read from U and W; those of Mamba-2's gradients for w and for sums
// over time (reference/ssd_chunk_scan/bwd.cpp). Sums of dθ are charged at the sum of their sizes.

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "reference/mamba3/head.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/bounds.h"
#include "reference/ssd_chunk_scan/time_sum.h"

namespace ssmbench {
namespace {

/// As in reference/ssd_chunk_scan/bwd.cpp.
constexpr double kOwnError = 0x1p-19;
constexpr double kDifference = 2;
constexpr std::int64_t kTasks = 32;
/// Products of lengths of pairs against those of their elements: Σ (a² + b²)² ≤ 2·Σ (a⁴ + b⁴), for two states.
constexpr double kPairs = 2;

/// What an implementation may be off by in roundoffs of f32, rounded angles included.
double error_of(const Mamba3Value& value, bool angles_in_bf16) {
  const double of_angles = kOperandSpread * kAngleInBf16 * std::sqrt(value.angle_variance);
  return value.error + (angles_in_bf16 ? of_angles : 0);
}

/// Of a product of two results.
Mamba3Value product(const Mamba3Value& a, const Mamba3Value& b) {
  const double size = std::abs(a.value * b.value);
  const double a2 = a.value * a.value;
  const double b2 = b.value * b.value;
  return {a.value * b.value, a.magnitude * b.magnitude,
          std::abs(a.value) * b.error + a.error * std::abs(b.value) + size, a2 * b.variance + a.variance * b2,
          a2 * b.angle_variance + a.angle_variance * b2};
}

/// A sum whose terms have errors of their own.
struct Dot {
  Mamba3Value sum;
  double squared_errors = 0;

  void add(const Mamba3Value& term) {
    sum.value += term.value;
    sum.magnitude += std::abs(term.value);
    sum.error += term.error;
    squared_errors += term.error * term.error;
    sum.variance += term.variance;
    sum.angle_variance += term.angle_variance;
  }
  Mamba3Value over(std::int64_t terms) const {
    Mamba3Value all = sum;
    all.error =
        std::min(all.error, kSpread * std::sqrt(squared_errors) + kSharedError * std::abs(all.value)) +
        (2 + std::sqrt(static_cast<double>(terms))) * all.magnitude;
    return all;
  }
};

/// What is summed over time for one head of one sequence.
struct HeadSums {
  std::vector<TimeSum> dQ_bias, dK_bias;   ///< [rank][state]
  std::vector<TimeSum> ups, gates, downs;  ///< dMIMO_V, dMIMO_Z, dMIMO_Out, [rank][head dim]
  std::vector<TimeSum> norm;               ///< doutproj_norm_weight, [head dim]
  TimeSum dD;

  explicit HeadSums(const Mamba3& scan)
      : dQ_bias(scan.rank * scan.dstate),
        dK_bias(dQ_bias.size()),
        ups(scan.rank * scan.headdim),
        gates(ups.size()),
        downs(ups.size()),
        norm(scan.headdim) {}
};

/// dQ or dK of the heads of one (sequence, group), [time][rank][state].
struct ProjectionSums {
  std::vector<double> value;
  std::vector<float> error, variance;

  explicit ProjectionSums(std::int64_t count) : value(count), error(count), variance(count) {}
  void clear() {
    std::ranges::fill(value, 0.0);
    std::ranges::fill(error, 0.0F);
    std::ranges::fill(variance, 0.0F);
  }
};

/// A step of the tile.
struct TileStep {
  std::int64_t i = 0;  ///< of the sequence
  Mamba3Reading reading;
  std::vector<Mamba3Vector> q, k;
  std::vector<double> raised;        ///< V^r, [rank][head dim]
  std::vector<Mamba3Value> crosses;  ///< X, [r][r']
};

class Backward : Mamba3Head {
 public:
  Backward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : Mamba3Head(problem, inputs, "Input_", true),
        outputs_(outputs),
        dV_(outputs.at("dV")),
        dAngles_(outputs.at("dAngles")),
        dZ_(scan_.has_z ? &outputs.at("dZ") : nullptr),
        over_headdims_(roundings_of_sum(scan_.headdim)),
        tile_(kSsdTileSteps / ((scan_.has_norm ? 4 : 2) * scan_.rank - 1)),
        cosines_(scan_.seqlen * scan_.angles),
        sines_(cosines_.size()),
        drifts_(scan_.seqlen),
        sizes_(scan_.seqlen),
        angle_errors_(scan_.dstate),
        dout_(scan_.rank * scan_.headdim),
        dy_(scan_.seqlen * scan_.rank * scan_.headdim),
        turns_(cosines_.size()),
        owns_(scan_.seqlen),
        alphas_(scan_.seqlen),
        scales_(scan_.seqlen + 1),
        before_sizes_(scan_.seqlen),
        differences_(scan_.seqlen),
        turned_(scan_.seqlen),
        column_(scan_.dstate),
        dQ_(scan_.seqlen * scan_.rank * scan_.dstate),
        dK_(dQ_.value.size()) {
    for (auto& step : tile_) {
      step.q.assign(scan_.rank, Mamba3Vector(scan_.dstate));
      step.k = step.q;
      step.raised.resize(scan_.rank * scan_.headdim);
      step.reading.v.resize(scan_.headdim);
      step.reading.z.resize(scan_.headdim);
    }
  }

  /// Heads [first, last) of one group.
  void run(const Mamba3Sequence& sequence, std::int64_t first, std::int64_t last, HeadSums* sums,
           const std::atomic<bool>& stop) {
    dQ_.clear();
    dK_.clear();
    for (std::int64_t head = first; head < last && !stop; ++head) {
      choose(sequence, head);
      if (length() == 0) {
        if (scan_.has_initial_states) pass_through();
        continue;
      }
      sums_ = sums + head;
      steps_ = mamba3_steps(scan_, inputs_, sequence, head);
      turn();
      if (scan_.has_norm)
        go_forward(false, stop);  // for y, of which dy is made
      else
        make_dy();
      go_forward(true, stop);
      go_back(stop);
      store_scalars();
    }
  }

  /// Adds what run() has summed to dQ and dK, whose operand_bound holds variances until the end.
  void add_projections() {
    for (const auto& [name, sums] : {std::pair{"dQ", &dQ_}, std::pair{"dK", &dK_}}) {
      ReferenceOutput& to = outputs_.at(name);
      const std::int64_t group = head_ / scan_.heads_per_group();
      for (std::int64_t row = 0; row < length() * scan_.rank; ++row) {
        const std::int64_t time = sequence_.batch * scan_.seqlen + sequence_.begin;
        const std::int64_t at = ((time * scan_.rank + row) * scan_.groups + group) * scan_.dstate;
        for (std::int64_t n = 0; n < scan_.dstate; ++n) {
          const std::int64_t from = row * scan_.dstate + n;
          to.expected[at + n] += sums->value[from];
          to.bound[at + n] += sums->error[from];
          to.operand_bound[at + n] += sums->variance[from];
        }
      }
    }
  }

 private:
  /// Of a state after a step: Σ of fourth powers of the elements and of their terms, and the relative error of
  /// what is read.
  struct StateSize {
    double fourths = 0, fourths_of_terms = 0, relative_error = 0;
  };

  std::int64_t time_of(std::int64_t i) const { return sequence_.begin + i; }
  double error_of(const Mamba3Value& value) const { return ssmbench::error_of(value, scan_.angles_in_bf16); }
  void store_value(ReferenceOutput& to, std::int64_t at, const Mamba3Value& value) const {
    store(to, at, value.value, error_of(value), operand_bound(value.variance, value.value));
  }
  /// The state forgets in 1/(1 − decay) steps; terms on both sides of one are alike.
  void add_to(TimeSum& sum, const Mamba3Value& term, std::int64_t i) const {
    const double alike = std::min<double>(kLongestChunk, 2 / (1 - std::min(steps_[i].decay, 0.999)));
    sum.add(term.value, error_of(term), kOperandSpread * std::sqrt(term.variance), alike);
  }
  const Mamba3Value* dy(std::int64_t i, std::int64_t r) const {
    return dy_.data() + (i * scan_.rank + r) * scan_.headdim;
  }
  std::int64_t out_at(std::int64_t i, std::int64_t r) const {
    if (scan_.reduces_ranks) return step_at(time_of(i)) * scan_.headdim;
    const std::int64_t row = (sequence_.batch * scan_.seqlen + time_of(i)) * scan_.rank + r;
    return (row * scan_.nheads + head_) * scan_.headdim;
  }
  Rounded<double> weight(std::int64_t i) const {  ///< s
    return i + 1 < length() ? steps_[i].own + steps_[i + 1].previous : steps_[i].own;
  }

  /// The angles of all steps.
  void turn() {
    Mamba3Angles angles(scan_.angles, scan_.has_initial_states
                                          ? floats("Input_Angle_State") + state_at(scan_.angles)
                                          : nullptr);
    std::vector<double> rates(scan_.angles);
    for (std::int64_t i = 0; i < length(); ++i) {
      load_row(inputs_.at("Angles"), step_at(time_of(i)) * scan_.angles, scan_.angles, rates.data());
      angles.advance(steps_[i].dt.value, rates.data());
      std::copy_n(angles.cosines(), scan_.angles, cosines_.begin() + i * scan_.angles);
      std::copy_n(angles.sines(), scan_.angles, sines_.begin() + i * scan_.angles);
      drifts_[i] = angles.drift();
      sizes_[i] = angles.size();
    }
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair)
      angle_errors_[scan_.first_of_pair(pair)] = angle_errors_[scan_.second_of_pair(pair)] =
          angles.error(pair);
  }

  void load_step(std::int64_t i, TileStep& into) {
    const std::int64_t t = time_of(i);
    into.i = i;
    make_vectors(t, cosines_.data() + i * scan_.angles, sines_.data() + i * scan_.angles, into.q, into.k);
    Mamba3Reading& reading = into.reading;
    reading.t = t;
    reading.angle_size = sizes_[i];
    reading.own = steps_[i].own;
    load_row(inputs_.at("V"), step_at(t) * scan_.headdim, scan_.headdim, reading.v.data());
    if (scan_.has_z) load_row(inputs_.at("Z"), step_at(t) * scan_.headdim, scan_.headdim, reading.z.data());
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t p = 0; p < scan_.headdim; ++p)
        into.raised[r * scan_.headdim + p] = reading.v[p] * up(r, p);
    reading.scores = scores_of(into.q, into.k);
  }

  void make_crosses(TileStep& step) const {
    step.crosses.clear();
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t other = 0; other < scan_.rank; ++other) {
        Dot dot;
        for (std::int64_t p = 0; p < scan_.headdim; ++p) {
          Mamba3Value term = dy(step.i, r)[p];
          scale(term, exactly(step.raised[other * scan_.headdim + p]));
          term.variance += roundings_of_operands_.parts * term.value * term.value;
          dot.add(term);
        }
        step.crosses.push_back(dot.over(scan_.headdim));
      }
  }

  void load_dout(std::int64_t i) {
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      load_row(inputs_.at("dout"), out_at(i, r), scan_.headdim, dout_.data() + r * scan_.headdim);
  }

  /// dout·MIMO_Out of the step that was loaded.
  Mamba3Value dout_of(std::int64_t r, std::int64_t p) const {
    const double value = dout_[r * scan_.headdim + p];
    Mamba3Value result{value, std::abs(value)};
    if (scan_.is_mimo && scan_.reduces_ranks) scale(result, exactly(down(r, p)));
    return result;
  }

  /// dy where it does not depend on y.
  void make_dy() {
    std::vector<double> z(scan_.headdim);
    for (std::int64_t i = 0; i < length(); ++i) {
      load_dout(i);
      if (scan_.has_z)
        load_row(inputs_.at("Z"), step_at(time_of(i)) * scan_.headdim, scan_.headdim, z.data());
      for (std::int64_t r = 0; r < scan_.rank; ++r)
        for (std::int64_t p = 0; p < scan_.headdim; ++p) {
          Mamba3Value& to = dy_[(i * scan_.rank + r) * scan_.headdim + p];
          to = dout_of(r, p);
          if (scan_.has_z) scale(to, mamba3_gate(z[p] * gate(r, p), scan_.is_mimo).value);
        }
    }
  }

  /// `gradients`: dy is known. Otherwise y is read and dy made of it.
  void go_forward(bool gradients, const std::atomic<bool>& stop) {
    start();
    std::vector<double> of_dy(scan_.rank * scan_.headdim);
    std::size_t read = 0;
    for (std::int64_t i = 0; i < length() && !stop; ++i) {
      TileStep& step = tile_[read++];
      load_step(i, step);
      if (gradients) make_crosses(step);
      for (std::int64_t p = 0; p < std::ssize(of_dy) && gradients; ++p) of_dy[p] = dy(i, 0)[p].value;
      const Rounded<double> weight_before = i > 0                      ? weight(i - 1)
                                            : scan_.has_initial_states ? steps_[0].previous
                                                                       : Rounded<double>{};
      step.reading.update = add_before(steps_[i], i == 0 ? 0 : steps_[i - 1].cumulative_error, drifts_[i],
                                       weight_before, {.r = step.q.data(), .q = of_dy.data()});
      for (std::int64_t r = 1; r < scan_.rank; ++r)
        pass_.add({.r = step.q[r].rotated.data(),
                   .r_size = step.q[r].size.data(),
                   .q = of_dy.data() + r * scan_.headdim});
      if (gradients && scan_.has_norm) read_errors_of_dy(i);
      before_ = step.k;
      v_before_ = step.reading.v;
      if (read < tile_.size() && i + 1 < length()) continue;
      pass_.advance();
      for (std::size_t each = 0; each < read; ++each) {
        if (gradients != scan_.has_norm) take_y(tile_[each]);
        if (gradients) take_forward(tile_[each]);
      }
      read = 0;
    }
    if (gradients) take_final_state();
  }

  /// What errors of dy do to dq, of which a norm makes many: after the reads of all ranks, those of the errors
  /// of each, and then those of its roots of variances.
  void read_errors_of_dy(std::int64_t i) {
    std::vector<double> row(scan_.headdim);
    for (const bool of_variance : {false, true})
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        for (std::int64_t p = 0; p < scan_.headdim; ++p)
          row[p] = of_variance ? std::sqrt(dy(i, r)[p].variance) : dy(i, r)[p].error;
        pass_.add({.q = row.data()});
      }
  }

  /// The same where dy has errors like those of the gate, relative to it on average.
  double relative_error_of_dy(std::int64_t i, std::int64_t r) const {
    double error = 0;
    double magnitude = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      error += dy(i, r)[p].error;
      magnitude += std::abs(dy(i, r)[p].value);
    }
    return magnitude > 0 ? error / magnitude : 0;
  }

  /// What y is needed for: dZ, dMIMO_Z, dMIMO_Out, and with a norm its weight's gradient and dy.
  void take_y(const TileStep& step) {
    if (!scan_.has_z && !scan_.is_mimo) return;
    load_dout(step.i);
    std::vector<std::vector<Mamba3Value>> rows(scan_.rank);
    std::vector<double> inverses(scan_.rank, 1);
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      for (std::int64_t p = 0; p < scan_.headdim; ++p) rows[r].push_back(y_of(step.reading, r, p));
      if (!scan_.has_norm) continue;
      const std::vector<Mamba3Value> y = rows[r];
      normalize(rows[r]);
      take_norm(step, r, y, rows[r]);
    }
    const float* weights = floats("outproj_norm_weight");
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      Mamba3Value dz;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        Mamba3Value& y = rows[r][p];
        if (scan_.has_norm) scale(y, exactly<double>(weights[head_ * scan_.headdim + p]));
        take_gate(step, r, p, y, dz);
      }
      if (scan_.has_z) store_value(*dZ_, step_at(step.reading.t) * scan_.headdim + p, dz);
    }
  }

  /// Adds to dMIMO_Out, dMIMO_Z and dz what y^r[p], which the gate takes, gives.
  void take_gate(const TileStep& step, std::int64_t r, std::int64_t p, const Mamba3Value& y,
                 Mamba3Value& dz) {
    const std::int64_t at = r * scan_.headdim + p;
    const double z = scan_.has_z ? step.reading.z[p] : 0;
    const Gate open = mamba3_gate(z * gate(r, p), scan_.is_mimo);
    if (scan_.is_mimo && scan_.reduces_ranks) {
      Mamba3Value term = y;
      scale(term, exactly(dout_[at]));
      if (scan_.has_z) scale(term, open.value);
      add_to(sums_->downs[at], term, step.i);
    }
    if (!scan_.has_z) return;
    Mamba3Value term = product(y, dout_of(r, p));
    scale(term, open.slope);
    Mamba3Value of_gate = term;
    scale(of_gate, exactly(z));
    add_to(sums_->gates[at], of_gate, step.i);
    if (scan_.is_mimo) {
      scale(term, exactly(gate(r, p)));
      term.variance += 2 * term.value * term.value;  // MIMO_Z and MIMO_Out
    }
    scan_.rank == 1 ? void(dz = term) : add(dz, term);
  }

  /// The adjoint of the norm of y^r: with dn that of its result before the weight and m = mean(dn·n),
  /// dy = inverse·(dn − n·m).
  void take_norm(const TileStep& step, std::int64_t r, const std::vector<Mamba3Value>& y,
                 const std::vector<Mamba3Value>& normalized) {
    const float* weights = floats("outproj_norm_weight") + head_ * scan_.headdim;
    const double inverse = inverse_of_norm(y);
    const auto count = static_cast<double>(scan_.headdim);
    std::vector<Mamba3Value> dn;
    Dot mean;
    Mamba3Value of_inverse{inverse, inverse};
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      Mamba3Value& each = dn.emplace_back(dout_of(r, p));
      scale(each, mamba3_gate(step.reading.z[p] * gate(r, p), true).value);
      add_to(sums_->norm[p], product(normalized[p], each), step.i);
      scale(each, exactly<double>(weights[p]));
      mean.add(product(each, normalized[p]));
      const double slope = inverse * inverse * inverse * std::abs(y[p].value) / count;
      of_inverse.error += slope * y[p].error;
      of_inverse.variance += slope * slope * y[p].variance;
      of_inverse.angle_variance += slope * slope * y[p].angle_variance;
    }
    of_inverse.error += (4 + std::sqrt(count)) * inverse;
    Mamba3Value m = mean.over(scan_.headdim);
    scale(m, exactly(1 / count));
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      Mamba3Value part = product(normalized[p], m);
      part.value = -part.value;
      Mamba3Value sum = dn[p];
      add(sum, part);
      dy_[(step.i * scan_.rank + r) * scan_.headdim + p] = product(of_inverse, sum);
    }
  }

  /// What the pass in time gives: dQ, its share of dθ, dD, and what dADT and dDT need.
  void take_forward(const TileStep& step) {
    const std::int64_t i = step.i;
    Dot own;
    Dot alpha;
    Dot skip;
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair) turns_[i * scan_.angles + pair] = {};
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      const std::int64_t update = step.reading.update + r;
      for (std::int64_t other = 0; other < scan_.rank; ++other)
        own.add(product(step.crosses[r * scan_.rank + other], step.reading.scores[r * scan_.rank + other]));
      skip.add(step.crosses[r * scan_.rank + r]);
      for (std::int64_t p = 0; p < scan_.headdim; ++p)
        alpha.add(product(dy(i, r)[p], read_states(update, p, i)));
      read_columns(update, scan_.has_norm ? 0 : relative_error_of_dy(i, r));
      if (scan_.has_norm) add_errors_of_dy(update);
      turn_back(i);
      for (std::int64_t other = 0; other < scan_.rank; ++other)
        add_own_vector(step, step.crosses[r * scan_.rank + other], step.k[other]);
      take_column(i, r, step.q[r], dQ_, sums_->dQ_bias);
    }
    owns_[i] = own.over(scan_.rank * scan_.rank);
    alphas_[i] = alpha.over(scan_.rank * scan_.headdim);
    add_to(sums_->dD, skip.over(scan_.rank), i);
    before_sizes_[i] = size_of_state(step.reading.update);
  }

  /// Element p of what an update read along states, its roundings included.
  Mamba3Value read_states(std::int64_t update, std::int64_t p, std::int64_t i) const {
    Mamba3Value value = value_of(update, p);
    value.error += (over_states_ + kRotationError + 2 * sizes_[i]) * value.magnitude;
    return value;
  }

  /// To what update `update` read, which read_errors_of_dy came after.
  void add_errors_of_dy(std::int64_t update) {
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      column_[n].read.error += pass_.read_headdims(update + scan_.rank, n).magnitude;
      column_[n].read.variance += pass_.read_headdims(update + 2 * scan_.rank, n).reads;
    }
  }

  /// What an update read along head dims, to column_. `relative`: error of what it read with.
  void read_columns(std::int64_t update, double relative) {
    const Mamba3Spread& spread = pass_.spread_of_headdims();
    const double of_terms = roundings_of_operands_.terms * spread.wholes[update] +
                            roundings_of_operands_.parts * spread.parts[update];
    const double roundings = over_headdims_ + kRotationError + relative;
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      const Mamba3Read read = pass_.read_headdims(update, n);
      column_[n].own = {};
      column_[n].read = {read.value, read.magnitude, read.error + roundings * read.magnitude,
                         kReadRoundings * read.reads + of_terms, spread.wholes[update]};
    }
  }

  /// The vector in column_ may be stored in the io dtype before it is turned.
  void turn_back(std::int64_t i) {
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair) {
      Mamba3Value& first = column_[scan_.first_of_pair(pair)].read;
      Mamba3Value& second = column_[scan_.second_of_pair(pair)].read;
      const double cosine = cosines_[i * scan_.angles + pair];
      const double sine = sines_[i * scan_.angles + pair];
      const double x0 = first.value;
      const double x1 = second.value;
      const double square = x0 * x0 + x1 * x1;
      first.error += 2 * sizes_[i] * first.magnitude;
      second.error += 2 * sizes_[i] * second.magnitude;
      first.value = x0 * cosine + x1 * sine;
      second.value = x1 * cosine - x0 * sine;
      first.variance = second.variance = std::max(first.variance, second.variance) + square;
      first.angle_variance = second.angle_variance =
          std::max(first.angle_variance, second.angle_variance) + square;
    }
  }

  /// Adds γ·cross·x to column_, where the rotation cancels.
  void add_own_vector(const TileStep& step, const Mamba3Value& cross, const Mamba3Vector& x) {
    Mamba3Value factor = cross;
    scale(factor, step.reading.own);
    const double roundings = roundings_of_operands_.terms + roundings_of_operands_.parts;
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      const double size = x.size[n];
      const double term = std::abs(factor.value) * size;
      add(column_[n].own,
          {factor.value * x.plain[n], factor.magnitude * size,
           factor.error * size + term * (2 * kRotationError + 2),
           factor.variance * size * size + roundings * term * term, factor.angle_variance * size * size});
    }
  }

  /// Takes column_ to dQ or dK, to the bias, and to dθ by q⁰·dq¹ − q¹·dq⁰.
  void take_column(std::int64_t i, std::int64_t r, const Mamba3Vector& x, ProjectionSums& sums,
                   std::vector<TimeSum>& bias) {
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair) {
      const std::int64_t first = scan_.first_of_pair(pair);
      const std::int64_t second = scan_.second_of_pair(pair);
      const Column& d0 = column_[first];
      const Column& d1 = column_[second];
      const double size = x.size[first];
      const double length = std::hypot(d0.read.value + d0.own.value, d1.read.value + d1.own.value);
      Mamba3Value term{x.plain[first] * d1.read.value - x.plain[second] * d0.read.value};
      term.magnitude = size * length;
      term.error = size * (d0.read.error + d0.own.error + (kRotationError + 3) * length);
      term.variance = size * size *
                      (std::max(d0.read.variance + d0.own.variance, d1.read.variance + d1.own.variance) +
                       2 * length * length);
      term.angle_variance = size * size * d0.read.angle_variance;
      add(turns_[i * scan_.angles + pair], term);
    }
    const double more = std::sqrt(static_cast<double>(scan_.heads_per_group()));
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      Mamba3Value sum = column_[n].read;
      add(sum, column_[n].own);
      const std::int64_t at = (i * scan_.rank + r) * scan_.dstate + n;
      sums.value[at] += sum.value;
      sums.error[at] += static_cast<float>(error_of(sum) + more * sum.magnitude);
      sums.variance[at] += static_cast<float>(sum.variance);
      add_to(bias[r * scan_.dstate + n], sum, i);
    }
  }

  StateSize size_of_state(std::int64_t update) const {
    double error = 0;
    double magnitude = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const Mamba3Read read = pass_.read(update, p);
      error += read.error;
      magnitude += read.magnitude;
    }
    return {pass_.fourths(update),
            static_cast<double>(scan_.headdim) * pass_.spread().squared_diagonals[update],
            magnitude > 0 ? error / magnitude : 0};
  }

  /// w after the last step, ⟨dFinal_SSM_State, S⟩.
  void take_final_state() {
    w_ = 0;
    w_magnitude_ = 0;
    of_chunk_ = 0;
    if (!scan_.has_final_states) return;
    add_own(steps_.back().own, before_, v_before_, {});
    pass_.advance();
    const std::int64_t count = scan_.headdim * scan_.dstate;
    const float* cotangent = floats("dFinal_SSM_State") + state_at(count);
    for (std::int64_t at = 0; at < count; ++at) {
      const double term = cotangent[at] * pass_.state(at / scan_.dstate, at % scan_.dstate);
      w_ += term;
      w_magnitude_ += std::abs(term);
    }
  }

  void go_back(const std::atomic<bool>& stop) {
    thetas_.assign(scan_.angles, {});
    pass_.clear();
    if (scan_.has_final_states) start_back();
    std::vector<Mamba3Vector> after;  // q of the step after
    std::size_t read = 0;
    for (std::int64_t i = length() - 1; i >= 0 && !stop; --i) {
      TileStep& step = tile_[read++];
      load_step(i, step);
      make_crosses(step);
      const Mamba3Reader reader{.r = step.k.data(), .q = step.raised.data()};
      step.reading.update =
          i + 1 < length()
              ? add_after(i + 1, after, reader)
              : pass_.add({.r = step.k[0].rotated.data(), .r_size = step.k[0].size.data(), .q = reader.q});
      read_other_ranks(step.k, step.raised);
      after = step.q;
      if (read < tile_.size() && i > 0) continue;
      pass_.advance();
      for (std::size_t each = 0; each < read; ++each) take_backward(tile_[each]);
      read = 0;
    }
    if (scan_.has_initial_states && !stop) store_start(after);
  }

  void read_other_ranks(const std::vector<Mamba3Vector>& k, const std::vector<double>& raised) {
    for (std::int64_t r = 1; r < scan_.rank; ++r)
      pass_.add(
          {.r = k[r].rotated.data(), .r_size = k[r].size.data(), .q = raised.data() + r * scan_.headdim});
  }

  /// W and Θ after the last step. Chunked, dFinal_SSM_State comes with exp(sum to the end − sum to the last
  /// step), which is not 1.
  void start_back() {
    std::vector<double> errors = angle_errors_;
    for (double& error : errors) error += steps_.back().cumulative_error;
    pass_.start_from(
        floats("dFinal_SSM_State") + state_at(scan_.headdim * scan_.dstate),
        [&](const double* row, double* sizes) { sizes_of(row, sizes); }, errors.data());
    const float* cotangent = floats("dFinal_Angle_State") + state_at(scan_.angles);
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair) thetas_[pair].add(cotangent[pair], 0, 0, 1);
  }

  /// W ← α_i·(W + Σ_r dy_i^r ⊗ q_i^r).
  std::int64_t add_after(std::int64_t i, const std::vector<Mamba3Vector>& q, const Mamba3Reader& reader) {
    const Mamba3Step& step = steps_[i];
    const double decay_error = step.decay_error + drifts_[i];
    std::int64_t last = 0;
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      double largest = 0;
      double variance = 0;
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        const Mamba3Value& from = dy(i, r)[p];
        const double relative = decay_error + step.cumulative_error + 1 + kRotationError + 2;
        products_[p] = step.decay * from.value;
        product_errors_[p] = step.decay * from.error + std::abs(products_[p]) * relative;
        largest = std::max(largest, std::abs(from.value));
        variance = std::max(variance, from.variance);
      }
      const double more = largest > 0 ? variance / (roundings_of_operands_.terms * largest * largest) : 0;
      last = add_update({.decay = r == 0 ? step.decay : 1,
                         .roundings = r == 0 ? decay_error + 2 : 1,
                         .more_variance = 1 + more},
                        q[r], r + 1 == scan_.rank ? reader : Mamba3Reader{});
    }
    return last;
  }

  /// What the pass against time gives.
  void take_backward(const TileStep& step) {
    const std::int64_t i = step.i;
    const Rounded<double> s = weight(i);
    Dot of_scale;
    std::vector<Mamba3Value> dV(scan_.headdim);
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      const std::int64_t update = step.reading.update + r;
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        const Mamba3Value read = read_states(update, p, i);
        Mamba3Value term = read;
        scale(term, exactly(step.raised[r * scan_.headdim + p]));
        of_scale.add(term);
        take_input(step, r, p, read, dV[p]);
      }
      read_columns(update, 1);  // V·MIMO_V
      turn_back(i);
      for (auto& each : column_) scale(each.read, s);
      if (scan_.has_final_states && i + 1 == length()) add_final_k(r, i);
      for (std::int64_t other = 0; other < scan_.rank; ++other)
        add_own_vector(step, step.crosses[other * scan_.rank + r], step.q[other]);
      take_column(i, r, step.k[r], dK_, sums_->dK_bias);
    }
    store_inputs(step, dV);
    scales_[i + 1] = of_scale.over(scan_.rank * scan_.headdim);
    store_decay_gradient(step);
    take_turns(i);
  }

  /// Adds what rank r gives to dV[p], and to dMIMO_V. `read`: W·k^r.
  void take_input(const TileStep& step, std::int64_t r, std::int64_t p, const Mamba3Value& read,
                  Mamba3Value& dV) {
    Mamba3Value of_rank = read;
    scale(of_rank, weight(step.i));
    for (std::int64_t other = 0; other < scan_.rank; ++other) {
      const Mamba3Value& from = dy(step.i, other)[p];
      add_own_term(of_rank, step.reading.own, step.reading.scores[other * scan_.rank + r], from.value,
                   from.error, roundings_of_operands_);
    }
    of_rank.error += 2 * of_rank.magnitude;
    Mamba3Value skipped = dy(step.i, r)[p];
    scale(skipped, exactly(skip_));
    skipped.variance += skipped.value * skipped.value;
    add(of_rank, skipped);
    if (scan_.is_mimo) {
      Mamba3Value term = of_rank;
      scale(term, exactly(step.reading.v[p]));
      add_to(sums_->ups[r * scan_.headdim + p], term, step.i);
      scale(of_rank, exactly(up(r, p)));
      of_rank.variance += of_rank.value * of_rank.value;
    }
    scan_.rank == 1 ? void(dV = of_rank) : add(dV, of_rank);
  }

  void store_inputs(const TileStep& step, std::vector<Mamba3Value>& dV) {
    const bool last = step.i + 1 == length();
    const TensorView* cotangent = last ? inputs_.find("dFinal_V_State") : nullptr;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      if (cotangent != nullptr) {
        const double more = load_as_double(cotangent->data, state_at(scan_.headdim) + p, cotangent->dtype);
        add(dV[p], {more, std::abs(more)});
      }
      if (scan_.is_mimo || cotangent != nullptr)  // a sum of so many, in any order
        dV[p].error += std::sqrt(static_cast<double>(scan_.rank + 1)) * dV[p].magnitude;
      store_value(dV_, step_at(step.reading.t) * scan_.headdim + p, dV[p]);
    }
  }

  /// Adds the cotangent of the last k, which is rotated, to column_.
  void add_final_k(std::int64_t r, std::int64_t i) {
    Mamba3Vector k(scan_.dstate);
    load_k_state("dFinal_K_State", r, k);
    const std::vector<Column> read = column_;
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      column_[n].read = {k.rotated[n], k.size[n], k.size[n] * (kRotationError + angle_errors_[n])};
    }
    turn_back(i);
    for (std::int64_t n = 0; n < scan_.dstate; ++n) add(column_[n].read, read[n].read);
  }

  /// dADT.
  void store_decay_gradient(const TileStep& step) {
    const std::int64_t i = step.i;
    const double direct = weight(i).value * scales_[i + 1].value;
    differences_[i] = alphas_[i].magnitude + std::abs(weight(i).value) * scales_[i + 1].magnitude;
    w_magnitude_ += differences_[i];
    of_chunk_ += differences_[i] - (i + kLongestChunk < length() ? differences_[i + kLongestChunk] : 0);
    w_ += alphas_[i].value - direct;
    const StateSize after = size_of_state(step.reading.update);
    const StateSize& before = before_sizes_[i];
    const double of_reads = kPairs * std::sqrt(after.fourths * before.fourths);
    const double of_terms = std::sqrt(kPairs) * (std::sqrt(before.fourths * after.fourths_of_terms) +
                                                 std::sqrt(after.fourths * before.fourths_of_terms));
    const double products = static_cast<double>(scan_.headdim * scan_.dstate + kLongestChunk);
    const double relative =
        after.relative_error + before.relative_error + steps_[i].cumulative_error + 2 + std::sqrt(products);
    const double size = std::abs(w_) + std::abs(w_ - alphas_[i].value);
    Mamba3Value w = alphas_[i];
    w.value = w_;
    w.error += relative * (std::max(kSpread * std::sqrt(of_reads), std::sqrt(of_terms)) + size) +
               kOwnError * w_magnitude_ + kDifference * of_chunk_;
    w.variance += 2 * kReadRoundings * of_reads +
                  (roundings_of_operands_.terms + roundings_of_operands_.parts) * of_terms;
    w.angle_variance += 2 * of_reads + of_terms;
    store_value(outputs_.at("dADT"), scalar_at(step.reading.t), w);
  }

  /// Θ of step i: dAngles, and what dDT has of it.
  void take_turns(std::int64_t i) {
    const std::int64_t row = step_at(time_of(i)) * scan_.angles;
    const TensorView& rates = inputs_.at("Angles");
    const std::int64_t terms = length() - i;
    const Rounded<double>& dt = steps_[i].dt;
    Dot turned;
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair) {
      Mamba3Value term = turns_[i * scan_.angles + pair];
      term.variance += term.value * term.value;  // dθ may be stored in the io dtype
      add_to(thetas_[pair], term, i);
      const TimeSum& sum = thetas_[pair];
      const double of_operands = sum.operand_bound() / kOperandSpread;
      const Mamba3Value theta{sum.value, std::abs(sum.value), sum.bound(terms), of_operands * of_operands};
      const double tanh = std::tanh(load_as_double(rates.data, row + pair, rates.dtype));
      const double slope = std::numbers::pi * (1 - tanh * tanh);
      const double rate = std::numbers::pi * tanh;
      Mamba3Value of_rate = theta;
      scale(of_rate, Rounded<double>{rate, std::abs(rate), kIncrementError * std::abs(rate)});
      turned.add(of_rate);
      Mamba3Value gradient = theta;
      scale(gradient, Rounded<double>{slope, slope, 2 * slope + 6 * std::numbers::pi * tanh * tanh} * dt);
      store_value(dAngles_, row + pair, gradient);
    }
    turned_[i] = turned.over(scan_.angles);
  }

  /// dTrap and dDT.
  void store_scalars() {
    ReferenceOutput& of_trap = outputs_.at("dTrap");
    ReferenceOutput& of_dt = outputs_.at("dDT");
    for (std::int64_t i = 0; i < length(); ++i) {
      const Mamba3Step& step = steps_[i];
      Mamba3Value of_own = scales_[i + 1];
      add(of_own, owns_[i]);
      Mamba3Value before = scales_[i];
      before.value = -before.value;
      Mamba3Value trap = of_own;
      add(trap, before);
      trap.error += 2 * (std::abs(of_own.value) + std::abs(before.value));
      trap.variance += shared_variance(of_own) + shared_variance(before);
      scale(trap, step.open * step.closed * step.dt);
      store_value(of_trap, scalar_at(time_of(i)), trap);

      Mamba3Value dt = of_own;
      scale(dt, step.open);
      before = scales_[i];
      scale(before, step.closed);
      dt.variance += shared_variance(dt) + shared_variance(before);
      add(dt, before);
      add(dt, turned_[i]);
      store_value(of_dt, scalar_at(time_of(i)), dt);
    }
  }

  /// Roundings that a term shares with no other, as a variance.
  static double shared_variance(const Mamba3Value& term) {
    const double shared = kSharedRoundings / kOperandSpread * term.value;
    return shared * shared;
  }

  /// The gradients of the input states. `q`: of the first step.
  void store_start(const std::vector<Mamba3Vector>& q) {
    start_k_.assign(scan_.rank, Mamba3Vector(scan_.dstate));
    std::vector<double> v(scan_.headdim);
    load_row(inputs_.at("Input_V_State"), state_at(scan_.headdim), scan_.headdim, v.data());
    std::vector<double> raised(scan_.rank * scan_.headdim);
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      load_k_state("Input_K_State", r, start_k_[r]);
      for (std::int64_t p = 0; p < scan_.headdim; ++p) raised[r * scan_.headdim + p] = v[p] * up(r, p);
    }
    const std::int64_t update = add_after(0, q, {.r = start_k_.data(), .q = raised.data()});
    read_other_ranks(start_k_, raised);
    pass_.advance();
    const Rounded<double>& weight = steps_[0].previous;
    std::vector<Mamba3Value> dV(scan_.headdim);
    Dot of_scale;
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        Mamba3Value read = read_states(update + r, p, 0);
        Mamba3Value term = read;
        scale(term, exactly(raised[r * scan_.headdim + p]));
        of_scale.add(term);
        scale(read, weight);
        term = read;
        scale(term, exactly(v[p]));
        add_to(sums_->ups[r * scan_.headdim + p], term, 0);
        scale(read, exactly(up(r, p)));
        scan_.rank == 1 ? void(dV[p] = read) : add(dV[p], read);
      }
      store_start_k(update + r, r, weight);
    }
    scales_[0] = of_scale.over(scan_.rank * scan_.headdim);
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      store_value(outputs_.at("dInput_V_State"), state_at(scan_.headdim) + p, dV[p]);
    for (std::int64_t pair = 0; pair < scan_.angles; ++pair)
      thetas_[pair].store_to(outputs_.at("dInput_Angle_State"), state_at(scan_.angles) + pair, length());
    store_start_ssm();
  }

  void store_start_k(std::int64_t update, std::int64_t r, const Rounded<double>& weight) {
    const Mamba3Spread& spread = pass_.spread_of_headdims();
    ReferenceOutput& dK = outputs_.at("dInput_K_State");
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      const Mamba3Read read = pass_.read_headdims(update, n);
      Mamba3Value value{read.value, read.magnitude,
                        read.error + (over_headdims_ + kRotationError) * read.magnitude,
                        kReadRoundings * read.reads + roundings_of_operands_.terms * spread.wholes[update] +
                            roundings_of_operands_.parts * spread.parts[update],
                        spread.wholes[update]};
      scale(value, weight);
      store_value(dK, k_state_at(r) + n, value);
    }
  }

  void store_start_ssm() {
    const double adding = 2 + std::sqrt(static_cast<double>(kLongestChunk));
    ReferenceOutput& of_ssm = outputs_.at("dInput_SSM_State");
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      for (std::int64_t n = 0; n < scan_.dstate; ++n) {
        const double variance = pass_.variance(n);
        const Mamba3Value value{
            pass_.state(p, n), pass_.magnitude(p, n), pass_.error(p, n) + adding * pass_.magnitude(p, n),
            (roundings_of_operands_.terms + roundings_of_operands_.parts) * variance, variance};
        store_value(of_ssm, state_at(scan_.headdim * scan_.dstate) + p * scan_.dstate + n, value);
      }
  }

  /// A sequence without steps passes its states through, and their cotangents.
  void pass_through() {
    const std::int64_t of_ssm = scan_.headdim * scan_.dstate;
    copy_cotangent("Angle_State", state_at(scan_.angles), scan_.angles);
    copy_cotangent("SSM_State", state_at(of_ssm), of_ssm);
    copy_cotangent("V_State", state_at(scan_.headdim), scan_.headdim);
    for (std::int64_t r = 0; r < scan_.rank; ++r) copy_cotangent("K_State", k_state_at(r), scan_.dstate);
  }
  void copy_cotangent(const std::string& state, std::int64_t first, std::int64_t count) {
    const TensorView* from = inputs_.find("dFinal_" + state);
    if (from == nullptr) return;
    for (std::int64_t at = first; at < first + count; ++at)
      outputs_.at("dInput_" + state).expected[at] = load_as_double(from->data, at, from->dtype);
  }

  /// dq or dk: what was read, turned back, and the step's own terms.
  struct Column {
    Mamba3Value read, own;
  };

  ReferenceOutputs& outputs_;
  ReferenceOutput &dV_, &dAngles_;
  ReferenceOutput* dZ_;
  HeadSums* sums_ = nullptr;
  double over_headdims_;  // roundings of a sum
  std::vector<Mamba3Step> steps_;
  std::vector<TileStep> tile_;
  std::vector<double> cosines_, sines_;  // [step][pair]
  std::vector<double> drifts_, sizes_;   // of the angles of each step
  std::vector<double> angle_errors_;     // of the last step's, [state]
  std::vector<double> dout_;             // of one step, [rank][head dim]
  std::vector<Mamba3Value> dy_;          // [step][rank][head dim]
  std::vector<Mamba3Value> turns_;       // dθ, [step][pair]
  std::vector<Mamba3Value> owns_;        // Σ X·(q·k) of each step
  std::vector<Mamba3Value> alphas_;      // dy·(U·q) of each step
  std::vector<Mamba3Value> scales_;      // c of each step after that of the input states
  std::vector<StateSize> before_sizes_;  // of U at each step
  std::vector<double> differences_;      // of each step, what it adds to and subtracts from w, in magnitude
  std::vector<Mamba3Value> turned_;      // Σ ω·Θ of each step
  std::vector<TimeSum> thetas_;          // Θ of the step at hand, by pair
  double w_ = 0, w_magnitude_ = 0;       // of the step at hand, and of all differences so far
  double of_chunk_ = 0;                  // differences of the longest chunk that begins with the step
  std::vector<Column> column_;           // [state]
  std::vector<Mamba3Vector> start_k_;
  ProjectionSums dQ_, dK_;
};

/// Sums over sequences, in order.
void store_head_sums(const Mamba3& scan, const std::vector<HeadSums>& heads, ReferenceOutputs& outputs) {
  const std::int64_t steps = scan.batch * scan.seqlen;
  const auto store_sums = [&](const char* name, std::vector<TimeSum> HeadSums::*member) {
    const auto found = outputs.find(name);
    if (found == outputs.end()) return;
    for (std::int64_t h = 0; h < scan.nheads; ++h) {
      std::vector<TimeSum> all = (heads[h].*member);
      for (std::int64_t m = 1; m < scan.sequences; ++m)
        for (std::size_t i = 0; i < all.size(); ++i) all[i].add((heads[m * scan.nheads + h].*member)[i]);
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i].store_to(found->second, h * std::ssize(all) + static_cast<std::int64_t>(i), steps);
    }
  };
  store_sums("dQ_bias", &HeadSums::dQ_bias);
  store_sums("dK_bias", &HeadSums::dK_bias);
  store_sums("dMIMO_V", &HeadSums::ups);
  store_sums("dMIMO_Z", &HeadSums::gates);
  store_sums("dMIMO_Out", &HeadSums::downs);
  store_sums("doutproj_norm_weight", &HeadSums::norm);
  if (!scan.has_D) return;
  for (std::int64_t h = 0; h < scan.nheads; ++h) {
    TimeSum dD;
    for (std::int64_t m = 0; m < scan.sequences; ++m) dD.add(heads[m * scan.nheads + h].dD);
    dD.store_to(outputs.at("dD"), h, steps * scan.rank * scan.headdim);
  }
}

/// Slabs that the heads of each group are cut into: a task for every sequence, group and slab.
std::int64_t slabs_of(const Mamba3& scan) {
  return std::clamp<std::int64_t>(kTasks / (scan.sequences * scan.groups), 1, scan.heads_per_group());
}

ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  const Mamba3 scan(problem);
  const auto sequences = mamba3_sequences(scan, inputs);
  ReferenceOutputs outputs = empty_ssd_outputs(problem);
  std::vector<HeadSums> heads(scan.sequences * scan.nheads, HeadSums(scan));
  const std::int64_t slabs = slabs_of(scan);
  const std::int64_t slab = (scan.heads_per_group() + slabs - 1) / slabs;
#pragma omp parallel
  {
    Backward backward(problem, inputs, outputs);
#pragma omp for ordered schedule(dynamic)
    for (std::int64_t task = 0; task < scan.sequences * scan.groups * slabs; ++task) {
      const std::int64_t group = task / slabs % scan.groups;
      const Mamba3Sequence& sequence = sequences[task / (slabs * scan.groups)];
      const std::int64_t end = (group + 1) * scan.heads_per_group();
      const std::int64_t first = std::min(end, group * scan.heads_per_group() + task % slabs * slab);
      HeadSums* const sums = heads.data() + sequence.index * scan.nheads;
      if (!stop) backward.run(sequence, first, std::min(end, first + slab), sums, stop);
#pragma omp ordered
      if (first < end) backward.add_projections();
    }
  }
  if (stop) throw Interrupted();
  for (const char* name : {"dQ", "dK"}) {
    ReferenceOutput& output = outputs.at(name);
    for (std::size_t i = 0; i < output.expected.size(); ++i)
      output.operand_bound[i] =
          static_cast<float>(operand_bound(output.operand_bound[i], output.expected[i]));
  }
  store_head_sums(scan, heads, outputs);
  return outputs;
}

/// What is allocated beside the outputs at the peak.
std::size_t working_bytes(const Problem& problem) {
  const Mamba3 scan(problem);
  const std::int64_t threads =
      std::min<std::int64_t>(omp_get_max_threads(), scan.sequences * scan.groups * slabs_of(scan));
  const std::size_t of_step = sizeof(Mamba3Value) * (scan.rank * scan.headdim + scan.angles + 4) +
                              sizeof(double) * (2 * scan.angles + 6) +
                              2 * scan.rank * scan.dstate * (sizeof(double) + 2 * sizeof(float)) +
                              sizeof(Mamba3Step);
  const std::size_t of_head =
      sizeof(TimeSum) * (2 * scan.rank * scan.dstate + (3 * scan.rank + 1) * scan.headdim);
  return static_cast<std::size_t>(threads * scan.seqlen) * of_step +
         static_cast<std::size_t>(scan.sequences * scan.nheads) * of_head;
}

std::size_t bytes(const Problem& problem) {
  return working_bytes(problem) + output_bytes(problem, [](const TensorSpec&) { return true; });
}

const ReferenceRegistration siso({.op = "mamba3_siso_bwd", .compute = compute, .bytes = bytes});
const ReferenceRegistration mimo({.op = "mamba3_mimo_bwd", .compute = compute, .bytes = bytes});

}  // namespace
}  // namespace ssmbench
