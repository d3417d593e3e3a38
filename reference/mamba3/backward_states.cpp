// The gradients of the states that sequences start from.

#include <algorithm>
#include <cmath>

#include "reference/mamba3/backward.h"

namespace ssmbench::mamba3_gradients {

void Backward::store_start(const std::vector<Mamba3Vector>& q) {
  start_k_.assign(scan_.rank, Mamba3Vector(scan_.dstate));
  std::vector<double> v(scan_.headdim);
  load_row(inputs_.at("Input_V_State"), state_at(scan_.headdim), scan_.headdim, v.data());
  std::vector<double> raised(scan_.rank * scan_.headdim);
  for (std::int64_t r = 0; r < scan_.rank; ++r) {
    load_k_state("Input_K_State", r, start_k_[r]);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) raised[r * scan_.headdim + p] = v[p] * up(r, p);
  }
  const std::int64_t update = add_after(0, q, {.r = start_k_.data(), .q = raised.data()});
  read_other_ranks(start_k_, raised);
  pass_.advance();
  const Rounded<double>& weight = steps_[0].previous;
  std::vector<Mamba3Value> dV(scan_.headdim);
  Dot of_scale;
  for (std::int64_t r = 0; r < scan_.rank; ++r) {
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      Mamba3Value read = read_states(update + r, p, 0);
      Mamba3Value term = read;
      scale(term, exactly(raised[r * scan_.headdim + p]));
      of_scale.add(term);
      scale(read, weight);
      term = read;
      scale(term, exactly(v[p]));
      add_to(sums_->ups[r * scan_.headdim + p], term, 0);
      scale(read, exactly(up(r, p)));
      scan_.rank == 1 ? void(dV[p] = read) : add(dV[p], read);
    }
    store_start_k(update + r, r, weight);
  }
  scales_[0] = of_scale.over(scan_.rank * scan_.headdim, spread_of(pass_.is_long()));
  for (std::int64_t p = 0; p < scan_.headdim; ++p)
    store_value(outputs_.at("dInput_V_State"), state_at(scan_.headdim) + p, dV[p]);
  for (std::int64_t pair = 0; pair < scan_.angles; ++pair)
    thetas_[pair].store_to(outputs_.at("dInput_Angle_State"), state_at(scan_.angles) + pair, length());
  store_start_ssm();
}

void Backward::store_start_k(std::int64_t update, std::int64_t r, const Rounded<double>& weight) {
  const Mamba3Spread& spread = pass_.spread_of_headdims();
  ReferenceOutput& dK = outputs_.at("dInput_K_State");
  for (std::int64_t n = 0; n < scan_.dstate; ++n) {
    const Mamba3Read read = pass_.read_headdims(update, n);
    Mamba3Value value{read.value, read.magnitude,
                      read.error + (over_headdims_ + kRotationError) * read.magnitude,
                      kReadRoundings * read.reads + roundings_of_operands_.terms * spread.wholes[update] +
                          roundings_of_operands_.parts * spread.parts[update],
                      spread.wholes[update]};
    scale(value, weight);
    store_value(dK, k_state_at(r) + n, value);
  }
}

void Backward::store_start_ssm() {
  const double adding = 2 + std::sqrt(static_cast<double>(kLongestChunk));
  ReferenceOutput& of_ssm = outputs_.at("dInput_SSM_State");
  for (std::int64_t p = 0; p < scan_.headdim; ++p)
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      const double variance = pass_.variance(n);
      const Mamba3Value value{
          pass_.state(p, n), pass_.magnitude(p, n), pass_.error(p, n) + adding * pass_.magnitude(p, n),
          (roundings_of_operands_.terms + roundings_of_operands_.parts) * variance, variance};
      store_value(of_ssm, state_at(scan_.headdim * scan_.dstate) + p * scan_.dstate + n, value);
    }
}

void Backward::pass_through() {
  const std::int64_t of_ssm = scan_.headdim * scan_.dstate;
  copy_cotangent("Angle_State", state_at(scan_.angles), scan_.angles);
  copy_cotangent("SSM_State", state_at(of_ssm), of_ssm);
  copy_cotangent("V_State", state_at(scan_.headdim), scan_.headdim);
  for (std::int64_t r = 0; r < scan_.rank; ++r) copy_cotangent("K_State", k_state_at(r), scan_.dstate);
}

void Backward::copy_cotangent(const std::string& state, std::int64_t first, std::int64_t count) {
  const TensorView* from = inputs_.find("dFinal_" + state);
  if (from == nullptr) return;
  for (std::int64_t at = first; at < first + count; ++at)
    outputs_.at("dInput_" + state).expected[at] = load_as_double(from->data, at, from->dtype);
}

}  // namespace ssmbench::mamba3_gradients
