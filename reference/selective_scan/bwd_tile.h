#pragma once

#include <array>
#include <complex>
#include <vector>

#include "model/tensor.h"
#include "reference/common/lane_math.h"
#include "reference/common/with_loader.h"
#include "reference/selective_scan/bwd_lanes.h"
#include "reference/selective_scan/bwd_plan.h"

namespace ssmbench::scan_bwd {

using Task = BackwardPlan::Task;

/// The element at `offset`; complex from c64, else real.
template <class T>
T load(const TensorView& view, std::int64_t offset) {
  if constexpr (is_complex<T>) {
    const auto* pair = static_cast<const float*>(view.data) + 2 * offset;
    return T{pair[0], pair[1]};
  } else {
    return load_as_double(view.data, offset, view.dtype);
  }
}

/// Asks for the cache lines of `bytes` bytes.
inline void prefetch_row(const void* from, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t i = 0; i < bytes + kLine - 1; i += kLine)
    __builtin_prefetch(static_cast<const char*>(from) + std::min(i, bytes - 1));
}

/// Channels [first, first + channels) of an input (D,), then zeros; zeros where it is absent.
inline ExactLanes<double> of_channels(const TensorSet& inputs, const char* name, std::int64_t first,
                                      std::int64_t channels) {
  ExactLanes<double> lanes;
  const TensorView* view = inputs.find(name);
  for (std::int64_t lane = 0; lane < channels && view != nullptr; ++lane)
    lanes.set(lane, static_cast<const float*>(view->data)[first + lane]);
  return lanes;
}

/// A tile of time steps of a block of channels, in one thread's memory.
template <class T>
class Tile {
 public:
  Tile(const BackwardPlan& plan, const TensorSet& inputs)
      : steps(static_cast<std::size_t>(plan.tile)),
        plan_(plan),
        inputs_(inputs),
        B_(static_cast<std::size_t>(plan.shape.dstate * plan.tile)),
        C_(B_.size()),
        B_before_(static_cast<std::size_t>(plan.shape.dstate)),
        rules_(plan.is_zoh() ? 0 : plan.states_at_once * steps.size()),
        states_(static_cast<std::size_t>(plan.states_at_once) * (steps.size() + 1)),
        exponentials_(plan.is_zoh() ? plan.states_at_once * kNumbers * steps.size() * kLanes : 0),
        x_(steps.size() * kLanes),
        y_(x_.size()),
        z_(x_.size()),
        w_(x_.size()),
        A_(&inputs.at("A")) {}

  /// Bytes that it takes.
  static std::size_t bytes(const BackwardPlan& plan) {
    const auto dstate = static_cast<std::size_t>(plan.shape.dstate);
    const std::size_t of_state =
        sizeof(RoundedLanes<T>) + (plan.is_zoh() ? kNumbers * kLanes * sizeof(double) : sizeof(RuleLanes<T>));
    return static_cast<std::size_t>(plan.tile) *
               (2 * dstate * sizeof(Unrounded<T>) + sizeof(StepLanes) + 4 * kLanes * sizeof(double) +
                static_cast<std::size_t>(plan.states_at_once) * of_state) +
           dstate * sizeof(Unrounded<T>);
  }

  /// Brings the steps of a tile of channels [first, first + kLanes) of a task, as far as there are; without
  /// gradients only what go_forward needs. A task's first block brings the group's B and C for all of them.
  void load(const Task& task, std::int64_t first, std::int64_t tile, bool gradients) {
    first_ = first;
    channels = std::min(kLanes, task.last - first);
    count = plan_.steps_in(tile);
    std::fill_n(alike, kLanes, 1.0);
    if (plan_.two_samples) load_u_before(task, tile);
    load_projections(task, tile);
    load_steps(task, tile);
    if (gradients) load_gradients(task, tile);
  }

  /// The scan of state n over the tile, whose states[0] is still to be set; in the memory of the place-th of
  /// those that are done at once.
  LaneScan<T> scan_of(std::int64_t n, std::int64_t place) {
    LaneScan<T> scan;
    scan.last = count;
    scan.steps = steps.data();
    scan.states = states_.data() + place * (plan_.tile + 1);
    for (std::int64_t lane = 0; lane < channels; ++lane)
      scan.A.set(lane, scan_bwd::load<T>(*A_, (first_ + lane) * plan_.shape.dstate + n));
    scan.B = projection("B", plan_.shape.variable_b, B_, n);
    scan.C = projection("C", plan_.shape.variable_c, C_, n);
    if (plan_.is_zoh())
      scan.exponentials = exponentials(scan.A, place);
    else
      scan.rules = rules(scan.A, place);
    scan.two_samples = plan_.two_samples;
    if (!plan_.two_samples) return scan;
    for (std::int64_t lane = 0; lane < channels; ++lane) {
      const Unrounded<T> B = plan_.shape.variable_b ? B_before_[n] : scan.B.by_lane.get(lane);
      scan.product_before.set(lane, u_before_[lane] * B);
    }
    return scan;
  }

  /// How far errors of what a state gives are alike.
  void add_memory(const MemoryLanes& memory) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      if (memory.is_long[lane] != 0) alike[lane] = std::max(alike[lane], memory.alike[lane]);
  }

  std::int64_t channels = 0;  ///< of the block
  std::int64_t count = 0;     ///< steps that there are
  std::vector<StepLanes> steps;
  double alike[kLanes] = {};  ///< weight_over_time() of errors of ddelta

 private:
  /// Numbers that an exponential is made of.
  static constexpr std::size_t kNumbers = is_complex<T> ? 3 : 1;

  std::int64_t offset(const TensorView& view, const Task& task, std::int64_t lane, std::int64_t t) const {
    const Shape& s = view.strides;
    return task.batch * s[0] + (first_ + lane) * s[1] + t * s[2];
  }

  void load_u_before(const Task& task, std::int64_t tile) {
    u_before_ = {};
    const TensorView& u = inputs_.at("u");
    for (std::int64_t lane = 0; lane < channels && tile > 0; ++lane)
      u_before_[lane] = Unrounded(scan_bwd::load<double>(u, offset(u, task, lane, tile * plan_.tile - 1)));
  }

  void load_projections(const Task& task, std::int64_t tile) {
    if (first_ != task.first) return;
    const std::int64_t start = tile * plan_.tile;
    const auto at = [&](const TensorView& view, std::int64_t n, std::int64_t t) {
      const Shape& s = view.strides;
      return Unrounded(scan_bwd::load<T>(view, task.batch * s[0] + task.group * s[1] + n * s[2] + t * s[3]));
    };
    const TensorView& b = inputs_.at("B");
    const TensorView& c = inputs_.at("C");
    for (std::int64_t n = 0; n < plan_.shape.dstate; ++n) {
      for (std::int64_t t = 0; t < count; ++t) {
        if (plan_.shape.variable_b) B_[n * plan_.tile + t] = at(b, n, start + t);
        if (plan_.shape.variable_c) C_[n * plan_.tile + t] = at(c, n, start + t);
      }
      if (plan_.shape.variable_b && start > 0) B_before_[n] = at(b, n, start - 1);
    }
  }

  ProjectionLanes<T> projection(const char* name, bool variable, const std::vector<Unrounded<T>>& values,
                                std::int64_t n) const {
    ProjectionLanes<T> lanes;
    if (variable) {
      lanes.by_step = values.data() + n * plan_.tile;
      return lanes;
    }
    const TensorView& view = inputs_.at(name);
    for (std::int64_t lane = 0; lane < channels; ++lane)
      lanes.by_lane.set(lane,
                        scan_bwd::load<T>(view, (first_ + lane) * view.strides[0] + n * view.strides[1]));
    return lanes;
  }

  /// Asks for the cache lines of the tile that the next block of channels will read of an input (B, D, L):
  /// its rows are short and far apart, so that nothing else would.
  void prefetch_numbers(const TensorView& view, const Task& task, std::int64_t tile) const {
    const auto bytes = static_cast<std::int64_t>(size_of(view.dtype));
    if (view.strides[2] != 1) return;
    const std::int64_t next = std::min(kLanes, task.last - first_ - kLanes);
    for (std::int64_t lane = 0; lane < next; ++lane)
      prefetch_row(
          static_cast<const char*>(view.data) + offset(view, task, kLanes + lane, tile * plan_.tile) * bytes,
          count * bytes);
  }

  /// Brings numbers of an input (B, D, L) to [step][lane].
  void load_numbers(const char* name, const Task& task, std::int64_t tile, std::vector<double>& to) const {
    const TensorView& view = inputs_.at(name);
    prefetch_numbers(view, task, tile);
    if (channels < kLanes) std::fill_n(to.begin(), count * kLanes, 0.0);
    with_loader(view.dtype, [&](auto value_at) {
      for (std::int64_t lane = 0; lane < channels; ++lane) {
        const std::int64_t first = offset(view, task, lane, tile * plan_.tile);
        for (std::int64_t t = 0; t < count; ++t)
          to[t * kLanes + lane] = value_at(view.data, first + t * view.strides[2]);
      }
    });
  }

  void load_steps(const Task& task, std::int64_t tile) {
    load_numbers("u", task, tile, w_);
    load_numbers("delta", task, tile, x_);
    const ExactLanes<double> bias = of_channels(inputs_, "delta_bias", first_, channels);
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) x_[t * kLanes + lane] += bias.value.value[lane];
    StepNumbers numbers{.x = x_.data()};
    if (plan_.shape.delta_softplus) {
      exp_of_minus_size(x_.data(), count * kLanes, y_.data());
      log1p_of(y_.data(), count * kLanes, z_.data());
      numbers.exp = y_.data();
      numbers.log1p = z_.data();
    }
    make_steps(w_.data(), numbers, plan_.shape.has_delta_bias, count, steps.data());
  }

  void load_gradients(const Task& task, std::int64_t tile) {
    load_numbers("dout", task, tile, x_);
    StepNumbers numbers{.x = x_.data()};
    if (plan_.shape.has_z) {
      load_numbers("z", task, tile, z_);
      exp_of_minus_size(z_.data(), count * kLanes, y_.data());
      numbers.exp = y_.data();
      numbers.z = z_.data();
    }
    make_gradients(numbers, count, steps.data());
  }

  ExponentialLanes exponentials(const ExactLanes<double>& A, std::int64_t place) {
    double* size = exponentials_.data() + place * plan_.tile * kLanes;
    scale_steps(steps.data(), count, A.value.value, x_.data());
    exp_of(x_.data(), count * kLanes, size);
    return {size, nullptr, nullptr};
  }

  ExponentialLanes exponentials(const ExactLanes<std::complex<double>>& A, std::int64_t place) {
    double* size = exponentials_.data() + 3 * place * plan_.tile * kLanes;
    double* cosine = size + plan_.tile * kLanes;
    double* sine = cosine + plan_.tile * kLanes;
    scale_steps(steps.data(), count, A.value.real, x_.data());
    exp_of(x_.data(), count * kLanes, size);
    scale_steps(steps.data(), count, A.value.imag, x_.data());
    cosine_of(x_.data(), count * kLanes, cosine);
    sine_of(x_.data(), count * kLanes, sine);
    return {size, cosine, sine};
  }

  const RuleLanes<T>* rules(const ExactLanes<T>& A, std::int64_t place) {
    RuleLanes<T>* rules = rules_.data() + place * plan_.tile;
    const auto set = [](CoefficientLanes<T>& to, std::int64_t lane, const Coefficient<T>& from) {
      to.value.set(lane, from.value);
      to.by_delta.set(lane, from.by_delta);
      to.by_A.set(lane, from.by_A);
    };
    for (std::int64_t t = 0; t < count; ++t) {
      rules[t] = {};
      for (std::int64_t lane = 0; lane < channels; ++lane) {
        const auto rule =
            discretize(plan_.shape.method, steps[t].delta.get(lane), exactly(A.value.get(lane)));
        set(rules[t].decay, lane, rule.decay);
        set(rules[t].input, lane, rule.input);
        set(rules[t].previous_input, lane, rule.previous_input);
      }
    }
    return rules;
  }

  const BackwardPlan& plan_;
  const TensorSet& inputs_;
  std::int64_t first_ = 0;                            // channel of the block
  std::array<Unrounded<double>, kLanes> u_before_{};  // u of the step before the tile; 0 before the first
  std::vector<Unrounded<T>> B_, C_;                   // [state][step], when variable
  std::vector<Unrounded<T>> B_before_;                // [state], of the step before the tile
  // Those of the states that are done at once, [place][step]; states from the step before the tile on.
  std::vector<RuleLanes<T>> rules_;
  std::vector<RoundedLanes<T>> states_;
  std::vector<double> exponentials_;   // [place][number][step][lane]
  std::vector<double> x_, y_, z_, w_;  // scratch, [step][lane]
  const TensorView* A_;
};

}  // namespace ssmbench::scan_bwd
