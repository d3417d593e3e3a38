#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/mamba3/pass.h"
#include "reference/mamba3/projections.h"
#include "reference/mamba3/steps.h"
#include "reference/mamba3/values.h"

namespace ssmbench {

/// What is read after an update, along states and along head dims; null: nothing.
struct Mamba3Reader {
  const Mamba3Vector* r = nullptr;
  const double* q = nullptr;
};

/// What is needed of a step once the state has been read.
struct Mamba3Reading {
  std::int64_t t = 0;
  std::int64_t update = 0;  ///< that read q^0; those after it read the other ranks
  double angle_size = 0;
  Rounded<double> own;              ///< γ
  std::vector<double> v, z;         ///< [head dim]
  std::vector<Mamba3Value> scores;  ///< q^r·k^r', [r][r']; none of a decoding step
};

/// One head of one sequence, and its state on the way through time.
class Mamba3Head {
 public:
  /// `prefix`: of the input states' names.
  Mamba3Head(const Problem& problem, const TensorSet& inputs, std::string prefix, bool reads_headdims);

 protected:
  const float* floats(const std::string& name) const;
  std::int64_t length() const { return sequence_.end - sequence_.begin; }
  /// Where the sequence's state begins, with `of_head` numbers for each head.
  std::int64_t state_at(std::int64_t of_head) const {
    return (sequence_.index * scan_.nheads + head_) * of_head;
  }
  std::int64_t k_state_at(std::int64_t r) const {
    return ((sequence_.index * scan_.rank + r) * scan_.nheads + head_) * scan_.dstate;
  }
  std::int64_t scalar_at(std::int64_t t) const {
    return (sequence_.batch * scan_.nheads + head_) * scan_.seqlen + t;
  }
  std::int64_t step_at(std::int64_t t) const {
    return (sequence_.batch * scan_.seqlen + t) * scan_.nheads + head_;
  }
  double up(std::int64_t r, std::int64_t p) const { return ups_[r * scan_.headdim + p]; }
  double gate(std::int64_t r, std::int64_t p) const { return gates_[r * scan_.headdim + p]; }
  double down(std::int64_t r, std::int64_t p) const { return downs_[r * scan_.headdim + p]; }

  /// Loads what the head's steps share.
  void choose(const Mamba3Sequence& sequence, std::int64_t head);
  /// The state, k and V before the first step.
  void start();
  void load_k_state(const std::string& name, std::int64_t r, Mamba3Vector& into) const;
  /// Lengths of pairs of a row.
  void sizes_of(const double* row, double* sizes) const;
  /// The step's q^r and k^r.
  void make_vectors(std::int64_t t, const double* cosines, const double* sines, std::vector<Mamba3Vector>& q,
                    std::vector<Mamba3Vector>& k) const;

  /// S ← α·(S + weight·Σ V_{t-1} ⊗ k_{t-1}). The last of its updates reads, and is returned.
  /// `cumulative_error`: of the step before; `drift`: of this step's angles.
  std::int64_t add_before(const Mamba3Step& step, double cumulative_error, double drift,
                          const Rounded<double>& weight, const Mamba3Reader& reader);
  /// S ← S + γ·Σ V ⊗ k.
  std::int64_t add_own(const Rounded<double>& weight, const std::vector<Mamba3Vector>& k,
                       const std::vector<double>& v, const Mamba3Reader& reader);
  std::int64_t add_update(Mamba3Update update, const Mamba3Vector& w, const Mamba3Reader& reader);

  /// q^r·k^r', [r][r'].
  std::vector<Mamba3Value> scores_of(const std::vector<Mamba3Vector>& q,
                                     const std::vector<Mamba3Vector>& k) const;
  /// What an update read along states, in an implementation that rounds operands of chunks' products.
  Mamba3Value value_of(std::int64_t update, std::int64_t p) const;
  /// y^r = S·q^r + D·V^r before norm and gate.
  Mamba3Value y_of(const Mamba3Reading& step, std::int64_t r, std::int64_t p) const;

  Mamba3 scan_;
  const TensorSet& inputs_;
  std::string prefix_;
  OperandRoundings roundings_of_operands_;
  double over_states_;  // roundings of a sum
  Mamba3Projections projections_;
  Mamba3Pass pass_;
  Mamba3Sequence sequence_{};
  std::int64_t head_ = 0;
  std::vector<double> ups_, gates_, downs_;  // MIMO_V, MIMO_Z, MIMO_Out, [rank][head dim]; ones where absent
  double skip_ = 0;                          // D
  std::vector<Mamba3Vector> before_;         // k of the step before, by rank
  std::vector<double> v_before_;
  std::vector<double> products_, product_errors_, undecayed_;  // of an update, [head dim]

 private:
  void load_factors(const char* name, std::vector<double>& into) const;
  void make_products(const std::vector<double>& v, std::int64_t r, const Rounded<double>& weight,
                     double relative);
  double more_variance(double weight) const;
};

}  // namespace ssmbench
