// The pass of Mamba-3's gradients in time: dQ, its share of dθ, dD, and what dADT and dDT need.

#include <algorithm>
#include <cmath>

#include "reference/mamba3/backward.h"

namespace ssmbench::mamba3_gradients {

void Backward::go_forward(bool gradients, const std::atomic<bool>& stop) {
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

void Backward::read_errors_of_dy(std::int64_t i) {
  std::vector<double> row(scan_.headdim);
  for (const bool of_variance : {false, true})
    for (std::int64_t r = 0; r < scan_.rank; ++r) {
      for (std::int64_t p = 0; p < scan_.headdim; ++p)
        row[p] = of_variance ? std::sqrt(dy(i, r)[p].variance) : dy(i, r)[p].error;
      pass_.add({.q = row.data()});
    }
}

void Backward::take_forward(const TileStep& step) {
  const std::int64_t i = step.i;
  Dot own;
  Dot alpha;
  Dot skip;
  const double roundings = 2 + std::sqrt(static_cast<double>(scan_.headdim * scan_.dstate));
  for (std::int64_t pair = 0; pair < scan_.angles; ++pair) turns_[i * scan_.angles + pair] = {};
  for (std::int64_t r = 0; r < scan_.rank; ++r) {
    const std::int64_t update = step.reading.update + r;
    for (std::int64_t other = 0; other < scan_.rank; ++other) {
      Mamba3Value term =
          product(step.crosses[r * scan_.rank + other], step.reading.scores[r * scan_.rank + other]);
      // (dy ⊗ q)·(V ⊗ k), element by element in any order: both sums may cancel.
      term.error += roundings * term.magnitude;
      own.add(term);
    }
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
  alphas_[i] = alpha.over(scan_.rank * scan_.headdim, spread_of(pass_.is_long()));
  add_to(sums_->dD, skip.over(scan_.rank), i);
  before_sizes_[i] = size_of_state(step.reading.update);
}

void Backward::add_errors_of_dy(std::int64_t update) {
  for (std::int64_t n = 0; n < scan_.dstate; ++n) {
    column_[n].read.error += pass_.read_headdims(update + scan_.rank, n).magnitude;
    column_[n].read.variance += pass_.read_headdims(update + 2 * scan_.rank, n).reads;
  }
}

void Backward::take_final_state() {
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

}  // namespace ssmbench::mamba3_gradients
