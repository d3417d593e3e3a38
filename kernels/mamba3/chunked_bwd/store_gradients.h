#pragma once

// What cuda-chunked-f32's gradients of Mamba-3 store: functions of HeadGradients, at the end of whose header this
// is included.

#include "kernels/mamba3/chunked_bwd/gradients.h"

namespace ssmbench::mamba3 {

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::store_vectors() const {
  const int dstate = plan_.dstate;
  if (out_.dfinal_k != nullptr && is_last(steps_ - 1))
    team_.for_all(plan_.rank * dstate, [&](int i) {
      in(at_.dk)[(steps_ - 1) * plan_.rank * dstate + i] +=
          out_.dfinal_k[k_state_at(i / dstate) + i % dstate];
    });
  team_.for_all(plan_.angles, [&](int pair) { sum_turns(pair); });
  store_rates();
  // Products of the square with the rows of the step, in place of dq and dk row by row: nothing else of the
  // row's state is read.
  team_.for_all(rows() * dstate, [&](int i) {
    const int row = i / dstate;
    const int n = i % dstate;
    const auto to_q = [&](int other) { return own_of(at_.crosses, row, other); };
    const auto to_k = [&](int other) { return own_of(at_.crosses, other, row); };
    in(at_.dq)[i] += sum_of_step(row, in(at_.k), dstate, n, to_q);
    in(at_.dk)[i] += sum_of_step(row, in(at_.q), dstate, n, to_k);
  });
  team_.for_all(rows() * plan_.angles, [&](int i) {
    const int row = i / plan_.angles;
    turn(row, i % plan_.angles, -1, in(at_.dq) + row * dstate);
    turn(row, i % plan_.angles, -1, in(at_.dk) + row * dstate);
  });
  float* const dQ = workspace_ + plan_.vectors;
  float* const dK = dQ + plan_.part_floats;
  team_.for_all(rows() * dstate, [&](int i) {
    const std::int64_t step = batch_ * scan_.seqlen + time(i / dstate / plan_.rank);
    const std::int64_t to =
        ((step * plan_.rank + i / dstate % plan_.rank) * scan_.nheads + head_) * dstate + i % dstate;
    dQ[to] = in(at_.dq)[i];
    dK[to] = in(at_.dk)[i];
  });
  store_sums_of(at_.dq, dstate, true, plan_.sums.dQ_bias);
  store_sums_of(at_.dk, dstate, true, plan_.sums.dK_bias);
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::sum_turns(int pair) const {
  float sum = in(at_.turning)[pair];
  for (int t = steps_ - 1; t >= 0; --t) {
    for (int row = t * plan_.rank; row < (t + 1) * plan_.rank; ++row)
      sum += turn_of(in(at_.q), in(at_.dq), row, pair) + turn_of(in(at_.k), in(at_.dk), row, pair);
    in(at_.phases)[t * plan_.angles + pair] = sum;
  }
  in(at_.turning)[pair] = sum;
}

template <class Io, class Team>
SSMBENCH_TEAM float HeadGradients<Io, Team>::turn_of(const float* x, const float* dx, int row,
                                                     int pair) const {
  const int first = row * plan_.dstate + first_of(pair);
  const int second = row * plan_.dstate + second_of(pair);
  return x[first] * dx[second] - x[second] * dx[first];
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::store_rates() const {
  constexpr float kPi = 0.5F * kTurnInRadians;
  team_.for_all(steps_, [&](int t) {
    float sum = 0;
    for (int i = t * plan_.angles; i < (t + 1) * plan_.angles; ++i)
      sum += kPi * in(at_.rates)[i] * in(at_.phases)[i];
    turned(first_ + t) = sum;
  });
  team_.for_all(steps_ * plan_.angles, [&](int i) {
    const std::int64_t t = time(i / plan_.angles);
    const float rate = in(at_.rates)[i];
    const float gradient = kPi * (1.0F - rate * rate) * args_.dt[scalar_at(t)] * in(at_.phases)[i];
    const std::int64_t at = step_at(t) * plan_.angles + i % plan_.angles;
    if (scan_.is_mimo)
      static_cast<float*>(out_.drates)[at] = gradient;
    else
      Io::store(out_.drates, at, gradient);
  });
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::store_inputs() const {
  const float skip = args_.D == nullptr ? 0.0F : args_.D[head_];
  const int headdim = plan_.headdim;
  team_.for_all(steps_ * headdim, [&](int i) {
    const int t = i / headdim;
    const int p = i % headdim;
    const bool has_final = is_last(t) && out_.dfinal_v != nullptr;
    float sum = has_final ? Io::load(out_.dfinal_v, state_at() * headdim + p) : 0.0F;
    for (int r = 0; r < plan_.rank; ++r) {
      const int at = (t * plan_.rank + r) * headdim + p;
      const float of_rank = in(at_.dv)[at] + skip * in(at_.dy)[at];
      sum += of_rank * factor(args_.mimo_v, r, p);
      in(at_.dv)[at] = of_rank * in(at_.plain_v)[i];
      in(at_.y)[at] = in(at_.dy)[at] * in(at_.v)[at];
    }
    Io::store(out_.dV, step_at(time(t)) * headdim + p, sum);
  });
  store_sums_of(at_.dv, headdim, out_.dmimo_v != nullptr, plan_.sums.dmimo_v);
  store_sums_of(at_.y, headdim, out_.dD != nullptr, plan_.sums.dD);
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::store_sums_of(std::int64_t array, int width, bool wanted,
                                                          int to) const {
  if (!wanted) return;
  team_.for_all(plan_.rank * width, [&](int i) {
    float sum = 0;
    for (int t = 0; t < steps_; ++t) sum += in(array)[t * plan_.rank * width + i];
    sums_[to + i] += sum;
  });
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::store_step_sums() const {
  team_.for_all(plan_.dstate, [&](int n) {  // into where q was
    float sum = 0;
    for (int p = 0; p < plan_.headdim; ++p)
      sum += in(at_.state)[n * plan_.headdim + p] * in(at_.adjoint)[n * plan_.headdim + p];
    in(at_.dq)[n] = sum;
  });
  team_.for_all(1, [&](int) {
    float through = 0;
    for (int n = 0; n < plan_.dstate; ++n) through += in(at_.dq)[n];
    float leaving = 0;
    for (int t = 0; t < steps_; ++t) {
      step_value(kLeaving, t) = leaving;
      leaving += step_value(kLater, t) * step_value(kInputs, t);
    }
    float flow = step_value(kEnter, steps_ - 1) * through;
    for (int t = steps_ - 1; t >= 0; --t) {
      flow += step_value(kEntered, t);
      flows(first_ + t) = flow + step_value(kLeaving, t) + step_value(kWithin, t);
    }
  });
  team_.for_all(steps_, [&](int t) {
    float sum = step_value(kInputs, t);
    float own = 0;
    for (int row = t * plan_.rank; row < (t + 1) * plan_.rank; ++row) {
      sum += in(at_.flows)[row];
      for (int other = t * plan_.rank; other < (t + 1) * plan_.rank; ++other)
        own += in(at_.scores)[row * plan_.rows + other] * in(at_.crosses)[row * plan_.rows + other];
    }
    inputs(first_ + t) = sum;
    own_inputs(first_ + t) = own;
  });
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::store_start() const {
  const int headdim = plan_.headdim;
  const int dstate = plan_.dstate;
  team_.for_all(1, [&](int) { inputs(-1) = 0; });
  if (out_.dinput_ssm == nullptr) return;
  const float weight = scalars(begin_).previous;
  const float* const v = args_.input_v + state_at() * headdim;
  team_.for_all(plan_.angles,
                [&](int i) { out_.dinput_angle[state_at() * plan_.angles + i] = in(at_.turning)[i]; });
  team_.for_all(dstate * headdim, [&](int i) {
    out_.dinput_ssm[(state_at() * headdim + i % headdim) * dstate + i / headdim] = in(at_.adjoint)[i];
  });
  team_.for_all(plan_.rank * dstate, [&](int i) {
    const int r = i / dstate;
    const int n = i % dstate;
    float read = 0;
    for (int p = 0; p < headdim; ++p)
      read += in(at_.adjoint)[n * headdim + p] * v[p] * factor(args_.mimo_v, r, p);
    out_.dinput_k[k_state_at(r) + n] = weight * read;
    in(at_.dk)[i] = read * args_.input_k[k_state_at(r) + n];
  });
  team_.for_all(headdim + 1, [&](int p) {
    if (p == headdim) {
      float sum = 0;
      for (int i = 0; i < plan_.rank * dstate; ++i) sum += in(at_.dk)[i];
      inputs(-1) = sum;
      return;
    }
    float dv = 0;
    for (int r = 0; r < plan_.rank; ++r) {
      float read = 0;
      for (int n = 0; n < dstate; ++n)
        read += in(at_.adjoint)[n * headdim + p] * args_.input_k[k_state_at(r) + n];
      dv += factor(args_.mimo_v, r, p) * weight * read;
      sums_[plan_.sums.dmimo_v + r * headdim + p] += weight * read * v[p];
    }
    out_.dinput_v[state_at() * headdim + p] = dv;
  });
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::store_scalars() const {
  team_.for_all(length_, [&](int i) {
    const Scalars step = scalars(begin_ + i);
    const std::int64_t at = scalar_at(begin_ + i);
    const float before = inputs(i - 1);
    const float now = inputs(i) + own_inputs(i);
    const bool is_cut = i == 0 && args_.input_ssm == nullptr;  // nothing flows from before
    out_.dadt[at] = is_cut ? 0.0F : flows(i);
    out_.ddt[at] = step.closed * before + step.open * now + turned(i);
    Io::store(out_.dtrap, at, step.open * step.closed * step.dt * (now - before));
  });
}

template <class Io, class Team>
SSMBENCH_TEAM void HeadGradients<Io, Team>::pass_cotangents() const {
  if (out_.dinput_ssm == nullptr) return;
  const auto copy = [&](const float* from, float* to, std::int64_t first, int count) {
    team_.for_all(count, [&](int i) { to[first + i] = from == nullptr ? 0.0F : from[first + i]; });
  };
  copy(out_.dfinal_angle, out_.dinput_angle, state_at() * plan_.angles, plan_.angles);
  copy(out_.dfinal_ssm, out_.dinput_ssm, state_at() * plan_.headdim * plan_.dstate,
       plan_.headdim * plan_.dstate);
  for (int r = 0; r < plan_.rank; ++r) copy(out_.dfinal_k, out_.dinput_k, k_state_at(r), plan_.dstate);
  team_.for_all(plan_.headdim, [&](int p) {
    const std::int64_t at = state_at() * plan_.headdim + p;
    out_.dinput_v[at] = out_.dfinal_v == nullptr ? 0.0F : Io::load(out_.dfinal_v, at);
  });
}

}  // namespace ssmbench::mamba3
