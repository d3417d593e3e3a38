#pragma once

#include <complex>
#include <vector>

#include "model/tensor.h"
#include "reference/lane_math.h"
#include "reference/scan_bwd_lanes.h"
#include "reference/scan_bwd_plan.h"

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

/// An input (D,); 0 where it is absent.
inline double of_channel(const TensorSet& inputs, const char* name, std::int64_t channel) {
  const TensorView* view = inputs.find(name);
  return view == nullptr ? 0 : static_cast<const float*>(view->data)[channel];
}

/// Sums that belong to one (batch, channel, state) and what the adjoint carries to the tile before.
template <class T>
struct StateRow {
  Rounded<T> state;           ///< forward
  Rounded<T> carry;           ///< conj(Ā)·g of the step after
  Rounded<T> previous_carry;  ///< conj(c')·g of the step after
  Sum<T> dA, dB, dC;          ///< dB and dC when constant
};

/// Sums that belong to one (batch, channel).
struct ChannelRow {
  Sum<double> dD, ddelta_bias;
};

/// A tile of time steps of a block of channels, in one thread's memory.
template <class T>
class Tile {
 public:
  Tile(const BackwardPlan& plan, const TensorSet& inputs)
      : steps(static_cast<std::size_t>(plan.tile)),
        states(steps.size() + 1),
        plan_(plan),
        inputs_(inputs),
        B_(static_cast<std::size_t>(plan.shape.dstate * plan.tile)),
        C_(B_.size()),
        B_before_(static_cast<std::size_t>(plan.shape.dstate)),
        B_lanes_(steps.size()),
        C_lanes_(steps.size()),
        exponentials_(is_zoh() ? steps.size() : 0),
        rules_(is_zoh() ? 0 : steps.size()),
        products_(steps.size() + 1),
        x_(steps.size() * kLanes),
        y_(x_.size()),
        z_(x_.size()) {}

  /// Bytes that it takes.
  static std::size_t bytes(const BackwardPlan& plan) {
    const auto dstate = static_cast<std::size_t>(plan.shape.dstate);
    return static_cast<std::size_t>(plan.tile) *
               (2 * dstate * sizeof(Rounded<T>) + sizeof(StepLanes) + 3 * sizeof(ExactLanes<T>) +
                sizeof(RuleLanes<T>) + 2 * sizeof(RoundedLanes<T>) + 3 * kLanes * sizeof(double)) +
           dstate * sizeof(Rounded<T>);
  }

  /// Brings the steps of a tile of channels [first, first + kLanes) of a task, as far as there are; without
  /// gradients only what go_forward needs. A task's first block brings the group's B and C for all of them.
  void load(const Task& task, std::int64_t first, std::int64_t tile, bool gradients) {
    first_ = first;
    channels = std::min(kLanes, task.last - first);
    count = plan_.steps_in(tile);
    std::fill_n(steps.begin(), count, StepLanes{});
    u_before_ = {};
    for (std::int64_t lane = 0; lane < channels && tile > 0; ++lane)
      u_before_.set(lane,
                    scan_bwd::load<double>(inputs_.at("u"), offset("u", task, lane, tile * plan_.tile - 1)));
    load_projections(task, tile);
    load_steps(task, tile);
    if (gradients) load_gradients(task, tile);
  }

  /// The scan of state n, from the block's states[0] on.
  LaneScan<T> scan_of(std::int64_t n) {
    LaneScan<T> scan;
    scan.count = count;
    scan.steps = steps.data();
    for (std::int64_t lane = 0; lane < channels; ++lane)
      scan.A.set(lane, scan_bwd::load<T>(inputs_.at("A"), (first_ + lane) * plan_.shape.dstate + n));
    spread(B_, "B", plan_.shape.variable_b, n, B_lanes_);
    spread(C_, "C", plan_.shape.variable_c, n, C_lanes_);
    products_[0] = {};
    for (std::int64_t lane = 0; lane < channels; ++lane) {
      const Rounded<T> B = plan_.shape.variable_b ? B_before_[n] : constant("B", lane, n);
      products_[0].set(lane, u_before_.get(lane) * B);
    }
    if (is_zoh())
      make_exponentials(scan.A);
    else
      make_rules(scan.A);
    scan.B = B_lanes_.data();
    scan.C = C_lanes_.data();
    scan.exponentials = exponentials_.data();
    scan.rules = is_zoh() ? nullptr : rules_.data();
    scan.two_samples = plan_.two_samples;
    scan.states = states.data();
    scan.products = products_.data();
    return scan;
  }

  std::int64_t channels = 0;  ///< of the block
  std::int64_t count = 0;     ///< steps that there are
  std::vector<StepLanes> steps;
  std::vector<RoundedLanes<T>> states;  ///< states[t + 1] is h at step t, states[0] the one before the tile

 private:
  bool is_zoh() const { return plan_.shape.method == MethodId::zoh; }

  std::int64_t offset(const char* name, const Task& task, std::int64_t lane, std::int64_t t) const {
    const Shape& s = inputs_.at(name).strides;
    return task.batch * s[0] + (first_ + lane) * s[1] + t * s[2];
  }

  Rounded<T> constant(const char* name, std::int64_t lane, std::int64_t n) const {
    const TensorView& view = inputs_.at(name);
    return exactly(scan_bwd::load<T>(view, (first_ + lane) * view.strides[0] + n * view.strides[1]));
  }

  void load_projections(const Task& task, std::int64_t tile) {
    if (first_ != task.first) return;
    const std::int64_t start = tile * plan_.tile;
    const auto at = [&](const TensorView& view, std::int64_t n, std::int64_t t) {
      const Shape& s = view.strides;
      return exactly(scan_bwd::load<T>(view, task.batch * s[0] + task.group * s[1] + n * s[2] + t * s[3]));
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

  /// B or C of state n for every lane.
  void spread(const std::vector<Rounded<T>>& variable_values, const char* name, bool variable, std::int64_t n,
              std::vector<ExactLanes<T>>& to) const {
    if (variable) {
      const Rounded<T>* values = variable_values.data() + n * plan_.tile;
      for (std::int64_t t = 0; t < count; ++t)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) {
          to[t].value.set(lane, values[t].value);
          to[t].magnitude[lane] = values[t].magnitude;
        }
      return;
    }
    ExactLanes<T> values;
    for (std::int64_t lane = 0; lane < channels; ++lane) values.set(lane, constant(name, lane, n).value);
    std::fill_n(to.begin(), count, values);
  }

  /// Brings numbers of an input (B, D, L) to [step][lane].
  void load_numbers(const char* name, const Task& task, std::int64_t tile, std::vector<double>& to) const {
    const TensorView& view = inputs_.at(name);
    for (std::int64_t lane = 0; lane < channels; ++lane) {
      const std::int64_t first = offset(name, task, lane, tile * plan_.tile);
      for (std::int64_t t = 0; t < count; ++t)
        to[t * kLanes + lane] = scan_bwd::load<double>(view, first + t * view.strides[2]);
    }
  }

  void load_steps(const Task& task, std::int64_t tile) {
    const SelectiveScan& shape = plan_.shape;
    load_numbers("u", task, tile, x_);
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < channels; ++lane) steps[t].u.set(lane, x_[t * kLanes + lane]);

    load_numbers("delta", task, tile, x_);
    for (std::int64_t lane = 0; lane < channels; ++lane) {
      const double bias = of_channel(inputs_, "delta_bias", first_ + lane);
      for (std::int64_t t = 0; t < count; ++t) x_[t * kLanes + lane] += bias;
    }
    if (shape.delta_softplus) {
      exp_of_minus_size(x_.data(), count * kLanes, y_.data());
      log1p_of(y_.data(), count * kLanes, z_.data());
    }
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < channels; ++lane) {
        const std::int64_t at = t * kLanes + lane;
        const Step step = shape.delta_softplus ? softplus_of(x_[at], shape.has_delta_bias, y_[at], z_[at])
                                               : step_of(x_[at], 0, shape.has_delta_bias, false);
        steps[t].delta.set(lane, step.delta);
        steps[t].slope.set(lane, step.slope);
      }
  }

  /// dy and y_factor.
  void load_gradients(const Task& task, std::int64_t tile) {
    load_numbers("dout", task, tile, x_);
    const bool has_z = plan_.shape.has_z;
    if (has_z) {
      load_numbers("z", task, tile, z_);
      exp_of_minus_size(z_.data(), count * kLanes, y_.data());
    }
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < channels; ++lane) {
        const std::int64_t at = t * kLanes + lane;
        Rounded<double> dy = exactly(x_[at]);
        if (has_z) {
          const Gate gate = gate_of(z_[at], y_[at]);
          steps[t].y_factor.set(lane, dy * gate.slope);
          dy = dy * gate.value;
        }
        steps[t].dy.set(lane, dy);
      }
  }

  void make_exponentials(const ExactLanes<double>& A) {
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        x_[t * kLanes + lane] = steps[t].delta.value.value[lane] * A.value.value[lane];
    exp_of(x_.data(), count * kLanes, y_.data());
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        exponentials_[t].value.value[lane] = exponentials_[t].magnitude[lane] = y_[t * kLanes + lane];
  }

  void make_exponentials(const ExactLanes<std::complex<double>>& A) {
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        x_[t * kLanes + lane] = steps[t].delta.value.value[lane] * A.value.imag[lane];
        z_[t * kLanes + lane] = steps[t].delta.value.value[lane] * A.value.real[lane];
      }
    exp_of(z_.data(), count * kLanes, y_.data());
    cosine_of(x_.data(), count * kLanes, z_.data());
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const double size = y_[t * kLanes + lane];
        exponentials_[t].magnitude[lane] = size;
        exponentials_[t].value.real[lane] = size * z_[t * kLanes + lane];
      }
    sine_of(x_.data(), count * kLanes, z_.data());
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        exponentials_[t].value.imag[lane] = y_[t * kLanes + lane] * z_[t * kLanes + lane];
  }

  void make_rules(const ExactLanes<T>& A) {
    const auto set = [](CoefficientLanes<T>& to, std::int64_t lane, const Coefficient<T>& from) {
      to.value.set(lane, from.value);
      to.by_delta.set(lane, from.by_delta);
      to.by_A.set(lane, from.by_A);
    };
    for (std::int64_t t = 0; t < count; ++t) {
      rules_[t] = {};
      for (std::int64_t lane = 0; lane < channels; ++lane) {
        const auto rule = discretize(plan_.shape.method, steps[t].delta.get(lane), A.get(lane));
        set(rules_[t].decay, lane, rule.decay);
        set(rules_[t].input, lane, rule.input);
        set(rules_[t].previous_input, lane, rule.previous_input);
      }
    }
  }

  const BackwardPlan& plan_;
  const TensorSet& inputs_;
  std::int64_t first_ = 0;            // channel of the block
  ExactLanes<double> u_before_;       // u of the step before the tile; 0 before the first
  std::vector<Rounded<T>> B_, C_;     // [state][step], when variable
  std::vector<Rounded<T>> B_before_;  // [state], of the step before the tile
  std::vector<ExactLanes<T>> B_lanes_, C_lanes_, exponentials_;  // of the state at hand, as all that follow
  std::vector<RuleLanes<T>> rules_;
  std::vector<RoundedLanes<T>> products_;
  std::vector<double> x_, y_, z_;  // scratch, [step][lane]
};

}  // namespace ssmbench::scan_bwd
