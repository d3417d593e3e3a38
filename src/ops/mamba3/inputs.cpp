#include "ops/mamba3/inputs.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/portable_math.h"
#include "base/random.h"

namespace ssmbench {
namespace {

constexpr double kNormEps = 1e-5;  // of the RMS norm of Q and K

bool is_about(std::string_view tensor, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, tensor) != names.end();
}

}  // namespace

Mamba3Inputs::Mamba3Inputs(const Problem& problem, const InputSpec& spec)
    : scan_(problem), seed_(spec.seed), distribution_(&find_distribution(spec.distribution)) {
  std::vector<double> steps(scan_.nheads);
  fill_log_uniform(Stream(seed_, "step"), distribution_->dt, 0, steps);
  for (const double step : steps) inverse_of_step_.push_back(portable::inverse_softplus(step));
  if (!distribution_->decay_rate) return;
  rate_.resize(scan_.nheads);
  fill_log_uniform(Stream(seed_, "rate"), *distribution_->decay_rate, 0, rate_);
}

void Mamba3Inputs::fill(std::string_view tensor, std::int64_t first, std::span<double> values) const {
  if (tensor == "Q" || tensor == "K") return fill_projection(tensor, first, values);
  if (tensor == "DT") return fill_steps(first, values);
  if (tensor == "ADT") return fill_decays(first, values);
  if (tensor == "cu_seqlens") return fill_borders(first, values);
  const Stream stream(seed_, tensor);
  if (is_about(tensor, {"Input_Angle_State", "Angle_State"})) {
    stream.uniforms(first, values);
    for (double& value : values) value *= 2 * std::numbers::pi;
    return;
  }
  fill_projected(*distribution_, seed_, tensor, first, values);
  const double centre = is_about(tensor, {"MIMO_V", "MIMO_Out"}) ? 1.0 / static_cast<double>(scan_.rank) : 1;
  if (is_about(tensor, {"Q_bias", "K_bias", "D", "MIMO_V", "MIMO_Z", "MIMO_Out", "outproj_norm_weight"}))
    for (double& value : values) value = centre * (1 + kSkipDeviation * value);
}

void Mamba3Inputs::fill_projection(std::string_view tensor, std::int64_t first,
                                   std::span<double> values) const {
  std::vector<double> row(scan_.dstate);
  const std::int64_t begin = first / scan_.dstate * scan_.dstate;
  Stream(seed_, tensor).normals(begin, row);
  double squares = 0;
  for (const double value : row) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(scan_.dstate) + kNormEps);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = scale * row[static_cast<std::size_t>(first - begin) + i];
}

void Mamba3Inputs::fill_steps(std::int64_t first, std::span<double> values) const {
  Stream(seed_, "DT").normals(first, values);
  std::int64_t at = first;
  for (double& value : values) value = inverse_of_step_[head_of(at++)] + kDeltaDeviation * value;
  add_large_steps(*distribution_, seed_, "DT", first, values, [](std::size_t) { return 0.0; });
  for (double& value : values) value = portable::softplus(value);
}

void Mamba3Inputs::fill_decays(std::int64_t first, std::span<double> values) const {
  std::vector<double> draws(values.size());
  Stream(seed_, "ADT").normals(first, draws);
  fill_steps(first, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = draws[i];
    const double rate =
        rate_.empty() ? (x < 0 ? 1 / (1 - x) : 1 + x) : rate_[head_of(first + static_cast<std::int64_t>(i))];
    values[i] *= -rate;
  }
}

void Mamba3Inputs::fill_borders(std::int64_t first, std::span<double> values) const {
  std::vector<double> draws(scan_.sequences);
  Stream(seed_, "cu_seqlens").uniforms(0, draws);
  std::vector<std::int64_t> borders;
  for (const double draw : draws)
    borders.push_back(static_cast<std::int64_t>(draw * static_cast<double>(scan_.seqlen)));
  std::ranges::sort(borders);
  borders.push_back(scan_.seqlen);
  borders[0] = 0;
  if (scan_.sequences >= 3) {
    for (auto& border : borders) border = std::max<std::int64_t>(border, 1);
    borders[0] = 0;
    borders[1] = 1;
    if (scan_.sequences >= 4) borders[2] = 1;
  }
  for (double& value : values) value = static_cast<double>(borders[first++]);
}

}  // namespace ssmbench
