// What Mamba-3's gradients need y for: the gate, the norm, MIMO_Z and MIMO_Out; and dy.

#include <algorithm>
#include <cmath>

#include "reference/mamba3/backward.h"

namespace ssmbench::mamba3_gradients {

void Backward::load_dout(std::int64_t i) {
  for (std::int64_t r = 0; r < scan_.rank; ++r)
    load_row(inputs_.at("dout"), out_at(i, r), scan_.headdim, dout_.data() + r * scan_.headdim);
}

Mamba3Value Backward::dout_of(std::int64_t r, std::int64_t p) const {
  const double value = dout_[r * scan_.headdim + p];
  Mamba3Value result{value, std::abs(value)};
  if (scan_.is_mimo && scan_.reduces_ranks) scale(result, exactly(down(r, p)));
  return result;
}

void Backward::make_dy() {
  std::vector<double> z(scan_.headdim);
  for (std::int64_t i = 0; i < length(); ++i) {
    load_dout(i);
    if (scan_.has_z) load_row(inputs_.at("Z"), step_at(time_of(i)) * scan_.headdim, scan_.headdim, z.data());
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        Mamba3Value& to = dy_[(i * scan_.rank + r) * scan_.headdim + p];
        to = dout_of(r, p);
        if (scan_.has_z) scale(to, mamba3_gate(z[p] * gate(r, p), scan_.is_mimo).value);
      }
  }
}

double Backward::relative_error_of_dy(std::int64_t i, std::int64_t r) const {
  double error = 0;
  double magnitude = 0;
  for (std::int64_t p = 0; p < scan_.headdim; ++p) {
    error += dy(i, r)[p].error;
    magnitude += std::abs(dy(i, r)[p].value);
  }
  return magnitude > 0 ? error / magnitude : 0;
}

void Backward::take_y(const TileStep& step) {
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

void Backward::take_gate(const TileStep& step, std::int64_t r, std::int64_t p, const Mamba3Value& y,
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

void Backward::take_norm(const TileStep& step, std::int64_t r, const std::vector<Mamba3Value>& y,
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

}  // namespace ssmbench::mamba3_gradients
