// dQ and dK of a step: what a state gave, turned back, and the step's own terms.

#include <algorithm>
#include <cmath>

#include "reference/mamba3/backward.h"

namespace ssmbench::mamba3_gradients {

void Backward::read_columns(std::int64_t update, double relative) {
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

void Backward::turn_back(std::int64_t i) {
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

void Backward::add_own_vector(const TileStep& step, const Mamba3Value& cross, const Mamba3Vector& x) {
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

void Backward::take_column(std::int64_t i, std::int64_t r, const Mamba3Vector& x, ProjectionSums& sums,
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
    sums.variance[at] += sum.variance;
    add_to(bias[r * scan_.dstate + n], sum, i);
  }
}

}  // namespace ssmbench::mamba3_gradients
