// Mamba-3's scans and its decoding step in fp64. With s_t = γ_t + (1 − λ_{t+1})·DT_{t+1} the recurrence is
//   U_t = α_t·(U_{t-1} + s_{t-1}·Σ_r V_{t-1}^r ⊗ k_{t-1}^r)        U: all that step t reads but its own input
//   y_t^r = U_t·q_t^r + γ_t·Σ_r' (q_t^r·k_t^r')·V_t^r' + D·V_t^r
// and begins with U_0 = α_0·(S_{-1} + (1 − λ_0)·DT_0·Σ_r V_{-1}^r ⊗ k_{-1}^r). In q_t·k_t the rotation
// cancels. Source: the form that Mamba-3's own kernels have (mamba_ssm, mamba3_siso_fwd.py). A decoding step
// makes S first and reads it.
//
// Bounds: those of Mamba-2's scan (docs/tolerances.md, section 8) on lengths of pairs, and for angles
// Mamba3Angles. Only differences of angles show in y, so that what it is charged is what they gain from step
// to step; final states have the angles' own errors.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/errors.h"
#include "reference/common/activations.h"
#include "reference/mamba3/pass.h"
#include "reference/mamba3/projections.h"
#include "reference/mamba3/steps.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/bounds.h"

namespace ssmbench {
namespace {

/// What storing an angle below 8 in bf16 does, half a unit in the last place, in roundoffs of f32.
constexpr double kAngleInBf16 = 0x1p-6 / 0x1p-24;
constexpr double kTurn = 2 * std::numbers::pi;

/// Roundings that one term of a result has as a whole (V and the decayed product; in MIMO MIMO_V, DT and s
/// as well), and those of each of its parts k·q (k, k with its decay; the biases of both).
struct OperandRoundings {
  double terms, parts;
};
constexpr OperandRoundings kSiso{2, 2};
constexpr OperandRoundings kMimo{5, 4};

/// A result on its way out.
struct Value {
  double value = 0, magnitude = 0;
  double error = 0;
  double variance = 0;        ///< of rounded operands, in squared roundoffs
  double angle_variance = 0;  ///< of rounded angles, in squared radians
};

/// A number that the others are multiplied by.
void scale(Value& value, const Rounded<double>& factor) {
  const double size = std::abs(factor.value);
  value.error = size * value.error + std::abs(value.value) * (factor.error + size);
  value.value *= factor.value;
  value.magnitude *= size;
  value.variance *= size * size;
  value.angle_variance *= size * size;
}

void add(Value& sum, const Value& term) {
  sum.value += term.value;
  sum.magnitude += term.magnitude;
  sum.error += term.error + term.magnitude;
  sum.variance += term.variance;
  sum.angle_variance += term.angle_variance;
}

/// What a step needs once the state has been read.
struct ReadStep {
  std::int64_t t = 0;
  std::int64_t update = 0;  ///< that read q^0; those after it read the other ranks
  double angle_size = 0;
  Rounded<double> own;        ///< γ
  std::vector<double> v, z;   ///< [head dim]
  std::vector<Value> scores;  ///< q^r·k^r', [r][r']; none of a decoding step
};

/// One (sequence, head) after the other, each with its own state, a tile of updates at a time.
class Forward {
 public:
  Forward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : scan_(problem),
        inputs_(inputs),
        outputs_(outputs),
        prefix_(scan_.is_step ? "" : "Input_"),
        final_prefix_(scan_.is_step ? "" : "Final_"),
        roundings_of_operands_(scan_.is_mimo ? kMimo : kSiso),
        roundings_(roundings_of_sum(scan_.dstate)),
        projections_(scan_, inputs),
        pass_(scan_.headdim, scan_.dstate),
        q_(scan_.rank, Mamba3Vector(scan_.dstate)),
        k_(scan_.rank, Mamba3Vector(scan_.dstate)),
        before_(scan_.rank, Mamba3Vector(scan_.dstate)),
        tile_(kSsdTileSteps / ((scan_.is_step ? 3 : 2) * scan_.rank - 1)),
        v_before_(scan_.headdim),
        rates_(scan_.angles),
        ups_(scan_.rank * scan_.headdim),
        gates_(ups_.size()),
        downs_(ups_.size()),
        products_(scan_.headdim),
        product_errors_(scan_.headdim),
        y_(scan_.rank * scan_.headdim) {}

  void run(const Mamba3Sequence& sequence, std::int64_t head, const std::atomic<bool>& stop) {
    sequence_ = sequence;
    head_ = head;
    const auto steps = mamba3_steps(scan_, inputs_, sequence, head);
    begin();
    std::size_t read = 0;  // steps of the tile
    for (std::size_t i = 0; i < steps.size() && !stop; ++i) {
      ReadStep& step = tile_[read++];
      load_step(sequence.begin + static_cast<std::int64_t>(i), step);
      step.own = steps[i].own;
      const Rounded<double> weight = i > 0                      ? steps[i - 1].own + steps[i].previous
                                     : scan_.has_initial_states ? steps[0].previous
                                                                : Rounded<double>{};
      add_before(steps[i], i == 0 ? 0 : steps[i - 1].cumulative_error, weight);
      if (scan_.is_step) add_own(step.own, k_, step.v);
      step.update = last_;
      // q^r for r > 0 are read by updates that add nothing.
      for (std::int64_t r = 1; r < scan_.rank; ++r)
        pass_.add({.r = q_[r].rotated.data(), .r_size = q_[r].size.data()});
      std::swap(k_, before_);
      v_before_ = step.v;
      if (read < tile_.size() && i + 1 < steps.size()) continue;
      pass_.advance();
      for (std::size_t each = 0; each < read; ++each) store_out(tile_[each]);
      read = 0;
    }
    if (scan_.has_final_states && !scan_.is_step && !steps.empty()) {
      add_own(steps.back().own, before_, v_before_);
      pass_.advance();
    }
    if (scan_.has_final_states && !stop) store_states(steps.empty());
  }

 private:
  const float* floats(const std::string& name) const {
    const TensorView* view = inputs_.find(name);
    return view == nullptr ? nullptr : static_cast<const float*>(view->data);
  }
  std::int64_t state_at(std::int64_t of_head) const {
    return (sequence_.index * scan_.nheads + head_) * of_head;
  }
  std::int64_t k_state_at(std::int64_t r) const {
    return ((sequence_.index * scan_.rank + r) * scan_.nheads + head_) * scan_.dstate;
  }
  Value& y(std::int64_t r, std::int64_t p) { return y_[r * scan_.headdim + p]; }
  double up(std::int64_t r, std::int64_t p) const { return ups_[r * scan_.headdim + p]; }

  /// MIMO_V, MIMO_Z or MIMO_Out of the head, [rank][head dim]; ones where it is absent.
  void load_factors(const char* name, std::vector<double>& into) const {
    std::ranges::fill(into, 1.0);
    if (inputs_.find(name) != nullptr)
      load_row(inputs_.at(name), head_ * std::ssize(into), std::ssize(into), into.data());
  }

  void begin() {
    load_factors("MIMO_V", ups_);
    load_factors("MIMO_Z", gates_);
    load_factors("MIMO_Out", downs_);
    skip_ = float_of(inputs_, "D", head_);
    if (!scan_.has_initial_states) {
      angles_ = Mamba3Angles(scan_.angles, nullptr);
      pass_.clear();
      for (auto& each : before_) each = Mamba3Vector(scan_.dstate);
      std::ranges::fill(v_before_, 0.0);
      return;
    }
    angles_ = Mamba3Angles(scan_.angles, floats(prefix_ + "Angle_State") + state_at(scan_.angles));
    const auto sizes = [&](const double* row, double* size) {
      for (std::int64_t n = 0; n < scan_.dstate; ++n) size[n] = std::abs(row[n]);
      projections_.join_pairs(size);
    };
    pass_.start_from(floats(prefix_ + "SSM_State") + state_at(scan_.headdim * scan_.dstate), sizes);
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      load_row(inputs_.at(prefix_ + "K_State"), k_state_at(r), scan_.dstate, before_[r].rotated.data());
      sizes(before_[r].rotated.data(), before_[r].size.data());
    }
    load_row(inputs_.at(prefix_ + "V_State"), state_at(scan_.headdim), scan_.headdim, v_before_.data());
  }

  void load_step(std::int64_t t, ReadStep& into) {
    into.t = t;
    into.v.resize(scan_.headdim);
    into.z.resize(scan_.headdim);
    const std::int64_t step = (sequence_.batch * scan_.seqlen + t) * scan_.nheads + head_;
    load_row(inputs_.at("V"), step * scan_.headdim, scan_.headdim, into.v.data());
    if (scan_.has_z) load_row(inputs_.at("Z"), step * scan_.headdim, scan_.headdim, into.z.data());
    load_row(inputs_.at("Angles"), step * scan_.angles, scan_.angles, rates_.data());
    const std::int64_t scalar = (sequence_.batch * scan_.nheads + head_) * scan_.seqlen + t;
    angles_.advance(floats("DT")[scalar], rates_.data());
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      projections_.make("Q", "Q_bias", sequence_.batch, t, r, head_, angles_, q_[r]);
      projections_.make("K", "K_bias", sequence_.batch, t, r, head_, angles_, k_[r]);
    }
    into.angle_size = angles_.size();
    if (!scan_.is_step) make_scores(into.scores);
  }

  /// The products weight·V·MIMO_V^r with their errors, and `relative` more.
  void make_products(const std::vector<double>& v, std::int64_t r, const Rounded<double>& weight,
                     double relative) {
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const double raised = v[p] * up(r, p);
      products_[p] = weight.value * raised;
      product_errors_[p] = std::abs(raised) * weight.error +
                           std::abs(products_[p]) * (relative + kRotationError + (scan_.is_mimo ? 3 : 2));
    }
  }

  /// S ← α·(S + weight·Σ V_{t-1} ⊗ k_{t-1}).
  void add_before(const Mamba3Step& step, double cumulative_error, const Rounded<double>& weight) {
    const double decay_error = step.decay_error + angles_.drift();
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      make_products(v_before_, r, weight, decay_error + cumulative_error + 1);
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        products_[p] *= step.decay;
        product_errors_[p] *= step.decay;
      }
      last_ = pass_.add({.decay = r == 0 ? step.decay : 1,
                         .roundings = r == 0 ? decay_error + 2 : 1,
                         .v = products_.data(),
                         .v_error = product_errors_.data(),
                         .w = before_[r].rotated.data(),
                         .w_size = before_[r].size.data(),
                         .r = reads_after(r) ? q_[0].rotated.data() : nullptr,
                         .r_size = reads_after(r) ? q_[0].size.data() : nullptr});
    }
  }

  /// Whether the update with rank r is the last before reading, which reads q^0.
  bool reads_after(std::int64_t r) const { return !scan_.is_step && r + 1 == scan_.rank; }

  /// S ← S + γ·Σ V_t ⊗ k_t.
  void add_own(const Rounded<double>& weight, const std::vector<Mamba3Vector>& k,
               const std::vector<double>& v) {
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      make_products(v, r, weight, 0);
      const bool reads = scan_.is_step && r + 1 == scan_.rank;
      last_ = pass_.add({.roundings = 1,
                         .v = products_.data(),
                         .v_error = product_errors_.data(),
                         .w = k[r].rotated.data(),
                         .w_size = k[r].size.data(),
                         .r = reads ? q_[0].rotated.data() : nullptr,
                         .r_size = reads ? q_[0].size.data() : nullptr});
    }
  }

  /// q_t^r·k_t^r', [r][r'].
  void make_scores(std::vector<Value>& scores) const {
    scores.assign(scan_.rank * scan_.rank, Value{});
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t other = 0; other < scan_.rank; ++other) {
        const Mamba3Vector& q = q_[r];
        const Mamba3Vector& k = k_[other];
        Value& score = scores[r * scan_.rank + other];
        for (std::int64_t n = 0; n < scan_.dstate; ++n) {
          const double size = q.size[n] * k.size[n];
          score.value += q.plain[n] * k.plain[n];
          score.magnitude += size;
          score.variance += 2 * size * size;
        }
        score.error = (roundings_ + 2 * kRotationError) * score.magnitude;
      }
  }

  Value y_of(const ReadStep& step, std::int64_t r, std::int64_t p) const {
    const std::int64_t update = step.update + r;
    const Mamba3Read sum = pass_.read(update, p);
    Value result{sum.value, sum.magnitude, sum.error, kReadRoundings * sum.reads, sum.reads};
    if (!scan_.is_step) {
      const double of_terms = pass_.of_terms(update);
      const double of_parts = pass_.of_parts(update);
      result.variance += roundings_of_operands_.terms * of_terms + roundings_of_operands_.parts * of_parts;
      result.angle_variance += of_parts;
      for (std::int64_t other = 0; other < scan_.rank; ++other) add_own_term(step, r, other, p, result);
    }
    const double turned = kRotationError + 2 * step.angle_size;
    result.error += (roundings_ + turned) * result.magnitude;
    const double skipped = skip_ * step.v[p] * up(r, p);
    result.value += skipped;
    result.magnitude += std::abs(skipped);
    result.error += 3 * std::abs(skipped);
    if (scan_.is_mimo) result.variance += skipped * skipped;  // MIMO_V
    return result;
  }

  void add_own_term(const ReadStep& step, std::int64_t r, std::int64_t other, std::int64_t p,
                    Value& result) const {
    const Rounded<double>& own = step.own;
    const Value& score = step.scores[r * scan_.rank + other];
    const double raised = step.v[p] * up(other, p);
    const double factor = std::abs(own.value * raised);
    result.value += own.value * score.value * raised;
    result.magnitude += factor * score.magnitude;
    result.error += factor * score.error + score.magnitude * std::abs(raised) * (own.error + 3 * own.value);
    result.variance += factor * factor *
                       (score.variance + (roundings_of_operands_.terms + roundings_of_operands_.parts) *
                                             score.value * score.value);
  }

  void store_out(const ReadStep& step) {
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t p = 0; p < scan_.headdim; ++p) y(r, p) = y_of(step, r, p);
    if (scan_.has_norm)
      for (std::int64_t r = 0; r < scan_.rank; ++r) normalize(r);
    const std::int64_t row = sequence_.batch * scan_.seqlen + step.t;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      Value sum;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        Value value = y(r, p);
        if (scan_.has_z) gate(step.z[p] * gates_[r * scan_.headdim + p], value);
        if (scan_.is_mimo && scan_.reduces_ranks) {
          scale(value, exactly(downs_[r * scan_.headdim + p]));
          value.variance += value.value * value.value;
        }
        if (scan_.reduces_ranks)
          scan_.rank == 1 ? void(sum = value) : add(sum, value);
        else
          store_value((((row * scan_.rank + r) * scan_.nheads) + head_) * scan_.headdim + p, value);
      }
      if (scan_.reduces_ranks) store_value((row * scan_.nheads + head_) * scan_.headdim + p, sum);
    }
  }

  void store_value(std::int64_t at, const Value& value) {
    const double of_angles =
        scan_.angles_in_bf16 ? kOperandSpread * kAngleInBf16 * std::sqrt(value.angle_variance) : 0;
    store(outputs_.at("out"), at, value.value, value.error + of_angles,
          operand_bound(value.variance, value.value));
  }

  void gate(double z, Value& value) const {
    Rounded<double> gate = gate_of(z).value;
    if (scan_.is_mimo) gate.error += std::abs(gate_of(z).slope.value * z) + std::abs(gate.value);
    scale(value, gate);
  }

  /// y·(mean y² + eps)^(-1/2)·weight: its derivative is that of y less y·mean(y·dy)/(mean y² + eps).
  void normalize(std::int64_t r) {
    double squares = 0;
    double error = 0;
    double variance = 0;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const Value& value = y(r, p);
      squares += value.value * value.value;
      error += std::abs(value.value) * value.error;
      variance += value.value * value.value * value.variance;
    }
    const auto count = static_cast<double>(scan_.headdim);
    const double square = squares / count + kMamba3NormEps;
    const double inverse = 1 / std::sqrt(square);
    const float* weights = floats("outproj_norm_weight") + head_ * scan_.headdim;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      Value& value = y(r, p);
      const double size = std::abs(value.value) / square;
      value.error += size * error / count + (4 + std::sqrt(count)) * std::abs(value.value);
      value.variance += size * size * variance / (count * count);
      scale(value, exactly(inverse * weights[p]));
    }
  }

  /// `untouched`: there was no step.
  void store_states(bool untouched) {
    ReferenceOutput& of_angles = outputs_.at(final_prefix_ + "Angle_State");
    std::vector<double> error(scan_.dstate);
    for (std::int64_t i = 0; i < scan_.angles; ++i) {
      const double own = angles_.error(i);
      error[scan_.first_of_pair(i)] = error[scan_.second_of_pair(i)] = own;
      const double turn = angles_.angle(i) - kTurn * std::floor(angles_.angle(i) / kTurn);
      const double stored = scan_.angles_in_bf16 ? kAngleInBf16 : kTurn;
      store(of_angles, state_at(scan_.angles) + i, turn, own + stored, 0);
    }
    store_k(untouched, error);
    store_ssm(error);
    ReferenceOutput& of_v = outputs_.at(final_prefix_ + "V_State");
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      store(of_v, state_at(scan_.headdim) + p, v_before_[p], 0, 0);
  }

  void store_k(bool untouched, const std::vector<double>& angle_error) {
    ReferenceOutput& to = outputs_.at(final_prefix_ + "K_State");
    const double of_bf16 = scan_.angles_in_bf16 ? kAngleInBf16 : 0;
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t n = 0; n < scan_.dstate; ++n) {
        const Mamba3Vector& k = before_[r];
        const double error = untouched ? 0 : k.size[n] * (kRotationError + angle_error[n] + of_bf16);
        store(to, k_state_at(r) + n, k.rotated[n], error, scan_.is_mimo && !untouched ? 2 * k.size[n] : 0);
      }
  }

  void store_ssm(const std::vector<double>& angle_error) {
    ReferenceOutput& to = outputs_.at(final_prefix_ + "SSM_State");
    const double adding = scan_.is_step ? 0 : 2 + std::sqrt(static_cast<double>(kLongestChunk));
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      for (std::int64_t n = 0; n < scan_.dstate; ++n) {
        const double size = pass_.magnitude(p, n);
        const double of_bf16 =
            scan_.angles_in_bf16 ? kOperandSpread * kAngleInBf16 * std::sqrt(pass_.variance(n)) : 0;
        const double value = pass_.state(p, n);
        const double variance =
            (roundings_of_operands_.terms + roundings_of_operands_.parts) * pass_.variance(n);
        store(to, state_at(scan_.headdim * scan_.dstate) + p * scan_.dstate + n, value,
              pass_.error(p, n) + (adding + angle_error[n]) * size + of_bf16,
              scan_.is_step ? 0 : operand_bound(variance, value));
      }
  }

  Mamba3 scan_;
  const TensorSet& inputs_;
  ReferenceOutputs& outputs_;
  std::string prefix_, final_prefix_;
  OperandRoundings roundings_of_operands_;
  double roundings_;  // of a sum over states
  Mamba3Projections projections_;
  Mamba3Pass pass_;
  Mamba3Angles angles_{0, nullptr};
  Mamba3Sequence sequence_{};
  std::int64_t head_ = 0;
  std::int64_t last_ = 0;                     // the update that read q^0
  std::vector<Mamba3Vector> q_, k_, before_;  // by rank; the last: k of the step before
  std::vector<ReadStep> tile_;
  std::vector<double> v_before_, rates_;
  std::vector<double> ups_, gates_, downs_;  // MIMO_V, MIMO_Z, MIMO_Out, [rank][head dim]
  double skip_ = 0;                          // D
  std::vector<double> products_, product_errors_;
  std::vector<Value> y_;
};

/// Threads over sequences and heads.
ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  const Mamba3 scan(problem);
  const auto sequences = mamba3_sequences(scan, inputs);
  ReferenceOutputs outputs = empty_ssd_outputs(problem);
  for (auto& [name, output] : outputs)
    if (name.ends_with("Angle_State")) output.period = kTurn;
  const std::int64_t rows = std::ssize(sequences) * scan.nheads;
#pragma omp parallel
  {
    Forward forward(problem, inputs, outputs);
#pragma omp for schedule(dynamic)
    for (std::int64_t row = 0; row < rows; ++row)
      if (!stop) forward.run(sequences[row / scan.nheads], row % scan.nheads, stop);
  }
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t bytes(const Problem& problem) {
  return output_bytes(problem, [](const TensorSpec&) { return true; });
}

const ReferenceRegistration siso({.op = "mamba3_siso_fwd", .compute = compute, .bytes = bytes});
const ReferenceRegistration mimo({.op = "mamba3_mimo_fwd", .compute = compute, .bytes = bytes});
const ReferenceRegistration step({.op = "mamba3_step", .compute = compute, .bytes = bytes});

}  // namespace
}  // namespace ssmbench
