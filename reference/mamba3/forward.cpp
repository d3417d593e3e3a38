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

#include "base/errors.h"
#include "reference/mamba3/head.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/bounds.h"

namespace ssmbench {
namespace {

/// One (sequence, head) after the other, each with its own state, a tile of updates at a time.
class Forward : Mamba3Head {
 public:
  Forward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : Mamba3Head(problem, inputs, Mamba3(problem).is_step ? "" : "Input_", false),
        outputs_(outputs),
        final_prefix_(scan_.is_step ? "" : "Final_"),
        q_(scan_.rank, Mamba3Vector(scan_.dstate)),
        k_(scan_.rank, Mamba3Vector(scan_.dstate)),
        tile_(kSsdTileSteps / ((scan_.is_step ? 3 : 2) * scan_.rank - 1)),
        rates_(scan_.angles),
        y_(scan_.rank * scan_.headdim) {}

  void run(const Mamba3Sequence& sequence, std::int64_t head, const std::atomic<bool>& stop) {
    choose(sequence, head);
    const auto steps = mamba3_steps(scan_, inputs_, sequence, head);
    start();
    angles_ = Mamba3Angles(scan_.angles, scan_.has_initial_states
                                             ? floats(prefix_ + "Angle_State") + state_at(scan_.angles)
                                             : nullptr);
    std::size_t read = 0;  // steps of the tile
    for (std::size_t i = 0; i < steps.size() && !stop; ++i) {
      Mamba3Reading& step = tile_[read++];
      load_step(sequence.begin + static_cast<std::int64_t>(i), step);
      step.own = steps[i].own;
      const Rounded<double> weight = i > 0                      ? steps[i - 1].own + steps[i].previous
                                     : scan_.has_initial_states ? steps[0].previous
                                                                : Rounded<double>{};
      const Mamba3Reader reader{.r = q_.data()};
      step.update = add_before(steps[i], i == 0 ? 0 : steps[i - 1].cumulative_error, angles_.drift(), weight,
                               scan_.is_step ? Mamba3Reader{} : reader);
      if (scan_.is_step) step.update = add_own(step.own, k_, step.v, reader);
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
      add_own(steps.back().own, before_, v_before_, {});
      pass_.advance();
    }
    if (scan_.has_final_states && !stop) store_states(steps.empty());
  }

 private:
  Mamba3Value& y(std::int64_t r, std::int64_t p) { return y_[r * scan_.headdim + p]; }

  void load_step(std::int64_t t, Mamba3Reading& into) {
    into.t = t;
    into.v.resize(scan_.headdim);
    into.z.resize(scan_.headdim);
    load_row(inputs_.at("V"), step_at(t) * scan_.headdim, scan_.headdim, into.v.data());
    if (scan_.has_z) load_row(inputs_.at("Z"), step_at(t) * scan_.headdim, scan_.headdim, into.z.data());
    load_row(inputs_.at("Angles"), step_at(t) * scan_.angles, scan_.angles, rates_.data());
    angles_.advance(floats("DT")[scalar_at(t)], rates_.data());
    make_vectors(t, angles_.cosines(), angles_.sines(), q_, k_);
    into.angle_size = angles_.size();
    if (!scan_.is_step) into.scores = scores_of(q_, k_);
  }

  void store_out(const Mamba3Reading& step) {
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t p = 0; p < scan_.headdim; ++p) y(r, p) = y_of(step, r, p);
    if (scan_.has_norm)
      for (std::int64_t r = 0; r < scan_.rank; ++r) apply_norm(r);
    const std::int64_t row = sequence_.batch * scan_.seqlen + step.t;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      Mamba3Value sum;
      for (std::int64_t r = 0; r < scan_.rank; ++r) {
        Mamba3Value value = y(r, p);
        if (scan_.has_z) scale(value, mamba3_gate(step.z[p] * gate(r, p), scan_.is_mimo).value);
        if (scan_.is_mimo && scan_.reduces_ranks) {
          scale(value, exactly(down(r, p)));
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

  void store_value(std::int64_t at, const Mamba3Value& value) {
    const double of_angles =
        scan_.angles_in_bf16 ? kOperandSpread * kAngleInBf16 * std::sqrt(value.angle_variance) : 0;
    store(outputs_.at("out"), at, value.value, value.error + of_angles,
          operand_bound(value.variance, value.value));
  }

  void apply_norm(std::int64_t r) {
    const std::span<Mamba3Value> row(y_.data() + r * scan_.headdim, scan_.headdim);
    normalize(row);
    const float* weights = floats("outproj_norm_weight") + head_ * scan_.headdim;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) scale(row[p], exactly<double>(weights[p]));
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

  ReferenceOutputs& outputs_;
  std::string final_prefix_;
  Mamba3Angles angles_{0, nullptr};
  std::vector<Mamba3Vector> q_, k_;  // by rank
  std::vector<Mamba3Reading> tile_;
  std::vector<double> rates_;
  std::vector<Mamba3Value> y_;
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

const ReferenceRegistration siso_registration({.op = "mamba3_siso_fwd", .compute = compute, .bytes = bytes});
const ReferenceRegistration mimo_registration(
    {.op = "mamba3_mimo_fwd", .compute = compute, .bytes = bytes, .depends_on_dtype = has_least_operand});
const ReferenceRegistration step_registration(
    {.op = "mamba3_step", .compute = compute, .bytes = bytes, .depends_on_dtype = has_least_operand});

}  // namespace
}  // namespace ssmbench
