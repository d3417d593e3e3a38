// The pass of Mamba-3's gradients against time: dK, dV, and what is summed from the end.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reference/mamba3/backward.h"

namespace ssmbench::mamba3_gradients {
namespace {

/// Products of lengths of pairs against those of their elements: Σ (a² + b²)² ≤ 2·Σ (a⁴ + b⁴), for two states.
constexpr double kPairs = 2;

}  // namespace

void Backward::go_back(const std::atomic<bool>& stop) {
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

void Backward::read_other_ranks(const std::vector<Mamba3Vector>& k, const std::vector<double>& raised) {
  for (std::int64_t r = 1; r < scan_.rank; ++r)
    pass_.add({.r = k[r].rotated.data(), .r_size = k[r].size.data(), .q = raised.data() + r * scan_.headdim});
}

void Backward::start_back() {
  std::vector<double> errors = angle_errors_;
  for (double& error : errors) error += steps_.back().cumulative_error;
  pass_.start_from(
      floats("dFinal_SSM_State") + state_at(scan_.headdim * scan_.dstate),
      [&](const double* row, double* sizes) { sizes_of(row, sizes); }, errors.data());
  const float* cotangent = floats("dFinal_Angle_State") + state_at(scan_.angles);
  for (std::int64_t pair = 0; pair < scan_.angles; ++pair) thetas_[pair].add(cotangent[pair], 0, 0, 1);
}

std::int64_t Backward::add_after(std::int64_t i, const std::vector<Mamba3Vector>& q,
                                 const Mamba3Reader& reader) {
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
      undecayed_[p] = from.value;
      product_errors_[p] = step.decay * from.error + std::abs(products_[p]) * relative;
      largest = std::max(largest, std::abs(from.value));
      variance = std::max(variance, from.variance);
    }
    const double more = largest > 0 ? variance / (roundings_of_operands_.terms * largest * largest) : 0;
    last = add_update({.decay = r == 0 ? step.decay : 1,
                       .roundings = r == 0 ? decay_error + 2 : 1,
                       .drift = drifts_[i],
                       .is_step = r == 0,
                       .undecayed = undecayed_.data(),
                       .more_variance = 1 + more},
                      q[r], r + 1 == scan_.rank ? reader : Mamba3Reader{});
  }
  return last;
}

void Backward::take_backward(const TileStep& step) {
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
  scales_[i + 1] = of_scale.over(scan_.rank * scan_.headdim, spread_of(pass_.is_long()));
  store_decay_gradient(step);
  take_turns(i);
}

void Backward::take_input(const TileStep& step, std::int64_t r, std::int64_t p, const Mamba3Value& read,
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

void Backward::store_inputs(const TileStep& step, std::vector<Mamba3Value>& dV) {
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

void Backward::add_final_k(std::int64_t r, std::int64_t i) {
  Mamba3Vector k(scan_.dstate);
  load_k_state("dFinal_K_State", r, k);
  const std::vector<Column> read = column_;
  for (std::int64_t n = 0; n < scan_.dstate; ++n) {
    column_[n].read = {k.rotated[n], k.size[n], k.size[n] * (kRotationError + angle_errors_[n])};
  }
  turn_back(i);
  for (std::int64_t n = 0; n < scan_.dstate; ++n) add(column_[n].read, read[n].read);
}

void Backward::store_decay_gradient(const TileStep& step) {
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
  const bool is_unused = i == 0 && !scan_.has_initial_states;  // no state comes before
  w.value = is_unused ? 0 : w_;
  // As in Mamba-2's gradients, the error of a long memory has that of terms that cancel in it.
  const double of_products = before.is_long && after.is_long
                                 ? std::sqrt(of_reads)
                                 : std::max(kSpread * std::sqrt(of_reads), std::sqrt(of_terms));
  w.error += relative * (of_products + size) + kOwnError * w_magnitude_ + kDifference * of_chunk_;
  w.variance += 2 * kReadRoundings * of_reads +
                (roundings_of_operands_.terms + roundings_of_operands_.parts) * of_terms;
  w.angle_variance += 2 * of_reads + of_terms;
  store_value(outputs_.at("dADT"), scalar_at(step.reading.t), w);
}

void Backward::take_turns(std::int64_t i) {
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

void Backward::store_scalars() {
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

}  // namespace ssmbench::mamba3_gradients
