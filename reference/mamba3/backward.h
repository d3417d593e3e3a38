#pragma once

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

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/common/statistical_bound.h"
#include "reference/mamba3/gradient_sums.h"
#include "reference/mamba3/head.h"
#include "reference/ssd_chunk_scan/gradient_sums.h"

namespace ssmbench::mamba3_gradients {

/// A step of the tile.
struct TileStep {
  std::int64_t i = 0;  ///< of the sequence
  Mamba3Reading reading;
  std::vector<Mamba3Vector> q, k;
  std::vector<double> raised;        ///< V^r, [rank][head dim]
  std::vector<Mamba3Value> crosses;  ///< X, [r][r']
};

/// The gradients of some heads of one group, head by head: a pass in time (backward_in_time.cpp), with what y is
/// needed for (backward_outputs.cpp), then one against it (backward_against_time.cpp).
class Backward : Mamba3Head {
 public:
  Backward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs);

  /// Heads [first, last) of one group.
  void run(const Mamba3Sequence& sequence, std::int64_t first, std::int64_t last, HeadSums* sums,
           const std::atomic<bool>& stop);

  /// Adds what run() has summed to dQ and dK, whose operand_bound holds deviations until the end.
  void add_projections();

 private:
  /// A state after a step: Σ of fourth powers of the elements and of their terms, and the relative error of
  /// what is read.
  struct StateSize {
    double fourths = 0, fourths_of_terms = 0, relative_error = 0;
    bool is_long = false;
  };

  std::int64_t time_of(std::int64_t i) const { return sequence_.begin + i; }
  double error_of(const Mamba3Value& value) const {
    return mamba3_gradients::error_of(value, scan_.angles_in_bf16);
  }
  void store_value(ReferenceOutput& to, std::int64_t at, const Mamba3Value& value) const {
    store(to, at, value.value, error_of(value), operand_bound(value.variance, value.value));
  }
  /// The state forgets in 1/(1 − decay) steps; terms on both sides of one are alike.
  void add_to(TimeSum& sum, const Mamba3Value& term, std::int64_t i) const {
    const double alike = weight_over_time(2 / (1 - std::min(steps_[i].decay, 1 - 1e-9)), length());
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
  void turn();

  void load_step(std::int64_t i, TileStep& into);

  void make_crosses(TileStep& step) const;

  void load_dout(std::int64_t i);

  /// dout·MIMO_Out of the step that was loaded.
  Mamba3Value dout_of(std::int64_t r, std::int64_t p) const;

  /// dy where it does not depend on y.
  void make_dy();

  /// `gradients`: dy is known. Otherwise y is read and dy made of it.
  void go_forward(bool gradients, const std::atomic<bool>& stop);

  /// What errors of dy do to dq, of which a norm makes many: after the reads of all ranks, those of the errors
  /// of each, and then those of its roots of variances.
  void read_errors_of_dy(std::int64_t i);

  /// The same where dy has errors like those of the gate, relative to it on average.
  double relative_error_of_dy(std::int64_t i, std::int64_t r) const;

  /// What y is needed for: dZ, dMIMO_Z, dMIMO_Out, and with a norm its weight's gradient and dy.
  void take_y(const TileStep& step);

  /// Adds to dMIMO_Out, dMIMO_Z and dz what y^r[p], which the gate takes, gives.
  void take_gate(const TileStep& step, std::int64_t r, std::int64_t p, const Mamba3Value& y, Mamba3Value& dz);

  /// The adjoint of the norm of y^r: with dn that of its result before the weight and m = mean(dn·n),
  /// dy = inverse·(dn − n·m).
  void take_norm(const TileStep& step, std::int64_t r, const std::vector<Mamba3Value>& y,
                 const std::vector<Mamba3Value>& normalized);

  /// What the pass in time gives: dQ, its share of dθ, dD, and what dADT and dDT need.
  void take_forward(const TileStep& step);

  /// Element p of what an update read along states, its roundings included.
  Mamba3Value read_states(std::int64_t update, std::int64_t p, std::int64_t i) const;

  /// To what update `update` read, which read_errors_of_dy came after.
  void add_errors_of_dy(std::int64_t update);

  /// What an update read along head dims, to column_. `relative`: error of what it read with.
  void read_columns(std::int64_t update, double relative);

  /// The vector in column_ may be stored in the io dtype before it is turned.
  void turn_back(std::int64_t i);

  /// Adds γ·cross·x to column_, where the rotation cancels.
  void add_own_vector(const TileStep& step, const Mamba3Value& cross, const Mamba3Vector& x);

  /// Takes column_ to dQ or dK, to the bias, and to dθ by q⁰·dq¹ − q¹·dq⁰.
  void take_column(std::int64_t i, std::int64_t r, const Mamba3Vector& x, ProjectionSums& sums,
                   std::vector<TimeSum>& bias);

  StateSize size_of_state(std::int64_t update) const;

  /// w after the last step, ⟨dFinal_SSM_State, S⟩.
  void take_final_state();

  void go_back(const std::atomic<bool>& stop);

  void read_other_ranks(const std::vector<Mamba3Vector>& k, const std::vector<double>& raised);

  /// W and Θ after the last step. Chunked, dFinal_SSM_State comes with exp(sum to the end − sum to the last
  /// step), which is not 1.
  void start_back();

  /// W ← α_i·(W + Σ_r dy_i^r ⊗ q_i^r).
  std::int64_t add_after(std::int64_t i, const std::vector<Mamba3Vector>& q, const Mamba3Reader& reader);

  /// What the pass against time gives.
  void take_backward(const TileStep& step);

  /// Adds what rank r gives to dV[p], and to dMIMO_V. `read`: W·k^r.
  void take_input(const TileStep& step, std::int64_t r, std::int64_t p, const Mamba3Value& read,
                  Mamba3Value& dV);

  void store_inputs(const TileStep& step, std::vector<Mamba3Value>& dV);

  /// Adds the cotangent of the last k, which is rotated, to column_.
  void add_final_k(std::int64_t r, std::int64_t i);

  /// dADT.
  void store_decay_gradient(const TileStep& step);

  /// Θ of step i: dAngles, and what dDT has of it.
  void take_turns(std::int64_t i);

  /// dTrap and dDT.
  void store_scalars();

  /// Roundings that a term shares with no other, as a variance.
  static double shared_variance(const Mamba3Value& term) {
    const double shared = kSharedRoundings / kOperandSpread * term.value;
    return shared * shared;
  }

  /// The gradients of the input states. `q`: of the first step.
  void store_start(const std::vector<Mamba3Vector>& q);

  void store_start_k(std::int64_t update, std::int64_t r, const Rounded<double>& weight);

  void store_start_ssm();

  /// A sequence without steps passes its states through, and their cotangents.
  void pass_through();
  void copy_cotangent(const std::string& state, std::int64_t first, std::int64_t count);

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

}  // namespace ssmbench::mamba3_gradients
