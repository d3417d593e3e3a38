#include "reference/mamba3/head.h"

#include <algorithm>
#include <cmath>

#include "reference/ssd_chunk_scan/bounds.h"

namespace ssmbench {

Mamba3Head::Mamba3Head(const Problem& problem, const TensorSet& inputs, std::string prefix,
                       bool reads_headdims)
    : scan_(problem),
      inputs_(inputs),
      prefix_(std::move(prefix)),
      roundings_of_operands_(mamba3_operand_roundings(scan_, problem.dtype())),
      over_states_(roundings_of_sum(scan_.dstate)),
      projections_(scan_, inputs),
      pass_(scan_.headdim, scan_.dstate, reads_headdims,
            [this](double* sizes) { projections_.join_pairs(sizes); }),
      ups_(scan_.rank * scan_.headdim),
      gates_(ups_.size()),
      downs_(ups_.size()),
      before_(scan_.rank, Mamba3Vector(scan_.dstate)),
      v_before_(scan_.headdim),
      products_(scan_.headdim),
      product_errors_(scan_.headdim),
      undecayed_(scan_.headdim) {}

const float* Mamba3Head::floats(const std::string& name) const {
  const TensorView* view = inputs_.find(name);
  return view == nullptr ? nullptr : static_cast<const float*>(view->data);
}

void Mamba3Head::load_factors(const char* name, std::vector<double>& into) const {
  std::ranges::fill(into, 1.0);
  if (inputs_.find(name) != nullptr)
    load_row(inputs_.at(name), head_ * std::ssize(into), std::ssize(into), into.data());
}

void Mamba3Head::choose(const Mamba3Sequence& sequence, std::int64_t head) {
  sequence_ = sequence;
  head_ = head;
  load_factors("MIMO_V", ups_);
  load_factors("MIMO_Z", gates_);
  load_factors("MIMO_Out", downs_);
  skip_ = float_of(inputs_, "D", head_);
}

void Mamba3Head::start() {
  if (!scan_.has_initial_states) {
    pass_.clear();
    for (auto& each : before_) each = Mamba3Vector(scan_.dstate);
    std::ranges::fill(v_before_, 0.0);
    return;
  }
  pass_.start_from(floats(prefix_ + "SSM_State") + state_at(scan_.headdim * scan_.dstate),
                   [&](const double* row, double* sizes) { sizes_of(row, sizes); });
  for (std::int64_t r = 0; r < scan_.rank; ++r) load_k_state(prefix_ + "K_State", r, before_[r]);
  load_row(inputs_.at(prefix_ + "V_State"), state_at(scan_.headdim), scan_.headdim, v_before_.data());
}

void Mamba3Head::load_k_state(const std::string& name, std::int64_t r, Mamba3Vector& into) const {
  load_row(inputs_.at(name), k_state_at(r), scan_.dstate, into.rotated.data());
  sizes_of(into.rotated.data(), into.size.data());
}

void Mamba3Head::sizes_of(const double* row, double* sizes) const {
  for (std::int64_t n = 0; n < scan_.dstate; ++n) sizes[n] = std::abs(row[n]);
  projections_.join_pairs(sizes);
}

void Mamba3Head::make_vectors(std::int64_t t, const double* cosines, const double* sines,
                              std::vector<Mamba3Vector>& q, std::vector<Mamba3Vector>& k) const {
  for (std::int64_t r = 0; r < scan_.rank; ++r) {
    projections_.make("Q", "Q_bias", sequence_.batch, t, r, head_, cosines, sines, q[r]);
    projections_.make("K", "K_bias", sequence_.batch, t, r, head_, cosines, sines, k[r]);
  }
}

/// The products weight·V·MIMO_V^r with their errors, and `relative` more.
void Mamba3Head::make_products(const std::vector<double>& v, std::int64_t r, const Rounded<double>& weight,
                               double relative) {
  for (std::int64_t p = 0; p < scan_.headdim; ++p) {
    const double raised = v[p] * up(r, p);
    products_[p] = weight.value * raised;
    product_errors_[p] = std::abs(raised) * weight.error +
                         std::abs(products_[p]) * (relative + kRotationError + (scan_.is_mimo ? 3 : 2));
  }
}

/// What the least rounding of V·MIMO_V adds to those of products_, which are weight·V·MIMO_V.
double Mamba3Head::more_variance(double weight) const {
  double largest = 0;
  for (const double product : products_) largest = std::max(largest, std::abs(product));
  const double least = largest > 0 ? weight * roundings_of_operands_.least / largest : 0;
  return 1 + least * least / roundings_of_operands_.terms;
}

std::int64_t Mamba3Head::add_update(Mamba3Update update, const Mamba3Vector& w, const Mamba3Reader& reader) {
  update.v = products_.data();
  update.v_error = product_errors_.data();
  update.w = w.rotated.data();
  update.w_size = w.size.data();
  if (reader.r != nullptr) {
    update.r = reader.r->rotated.data();
    update.r_size = reader.r->size.data();
  }
  update.q = reader.q;
  return pass_.add(update);
}

std::int64_t Mamba3Head::add_before(const Mamba3Step& step, double cumulative_error, double drift,
                                    const Rounded<double>& weight, const Mamba3Reader& reader) {
  const double decay_error = step.decay_error + drift;
  std::int64_t last = 0;
  for (std::int64_t r = 0; r < scan_.rank; ++r) {
    make_products(v_before_, r, weight, decay_error + cumulative_error + 1);
    undecayed_ = products_;
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      products_[p] *= step.decay;
      product_errors_[p] *= step.decay;
    }
    last = add_update({.decay = r == 0 ? step.decay : 1,
                       .roundings = r == 0 ? decay_error + 2 : 1,
                       .drift = drift,
                       .is_step = r == 0,
                       .undecayed = undecayed_.data(),
                       .more_variance = more_variance(weight.value * step.decay)},
                      before_[r], r + 1 == scan_.rank ? reader : Mamba3Reader{});
  }
  return last;
}

std::int64_t Mamba3Head::add_own(const Rounded<double>& weight, const std::vector<Mamba3Vector>& k,
                                 const std::vector<double>& v, const Mamba3Reader& reader) {
  std::int64_t last = 0;
  for (std::int64_t r = 0; r < scan_.rank; ++r) {
    make_products(v, r, weight, 0);
    last = add_update({.roundings = 1, .more_variance = more_variance(weight.value)}, k[r],
                      r + 1 == scan_.rank ? reader : Mamba3Reader{});
  }
  return last;
}

std::vector<Mamba3Value> Mamba3Head::scores_of(const std::vector<Mamba3Vector>& q,
                                               const std::vector<Mamba3Vector>& k) const {
  std::vector<Mamba3Value> scores;
  for (const auto& of_q : q)
    for (const auto& of_k : k) scores.push_back(mamba3_score(of_q, of_k, over_states_));
  return scores;
}

Mamba3Value Mamba3Head::value_of(std::int64_t update, std::int64_t p) const {
  const Mamba3Read sum = pass_.read(update, p);
  const double of_parts = pass_.spread().parts[update];
  return {sum.value, sum.magnitude, sum.error,
          kReadRoundings * sum.reads + roundings_of_operands_.terms * pass_.spread().wholes[update] +
              roundings_of_operands_.parts * of_parts,
          sum.reads + of_parts};
}

Mamba3Value Mamba3Head::y_of(const Mamba3Reading& step, std::int64_t r, std::int64_t p) const {
  Mamba3Value result = value_of(step.update + r, p);
  if (scan_.is_step) {  // which makes the state by f32 operations
    const Mamba3Read sum = pass_.read(step.update + r, p);
    result.variance = kReadRoundings * sum.reads;
    result.angle_variance = sum.reads;
  } else {
    for (std::int64_t other = 0; other < scan_.rank; ++other)
      add_own_term(result, step.own, step.scores[r * scan_.rank + other], step.v[p] * up(other, p), 0,
                   roundings_of_operands_);
  }
  result.error += (over_states_ + kRotationError + 2 * step.angle_size) * result.magnitude;
  const double skipped = skip_ * step.v[p] * up(r, p);
  result.value += skipped;
  result.magnitude += std::abs(skipped);
  result.error += 3 * std::abs(skipped);
  if (scan_.is_mimo) result.variance += skipped * skipped;  // MIMO_V
  return result;
}

}  // namespace ssmbench
