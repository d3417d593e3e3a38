#pragma once

#include <complex>
#include <vector>

#include "model/tensor.h"
#include "reference/activations.h"
#include "reference/discretization_derivative.h"
#include "reference/rounded.h"
#include "reference/scan_bwd_plan.h"

namespace ssmbench::scan_bwd {

using Task = BackwardPlan::Task;

/// The element at `offset`; complex from c64, else real.
template <class T>
Rounded<T> load(const TensorView& view, std::int64_t offset) {
  if constexpr (is_complex<T>) {
    const auto* pair = static_cast<const float*>(view.data) + 2 * offset;
    return exactly(T{pair[0], pair[1]});
  } else {
    return exactly(load_as_double(view.data, offset, view.dtype));
  }
}

/// An input (D,); 0 where it is absent.
inline double of_channel(const TensorSet& inputs, const char* name, std::int64_t channel) {
  const TensorView* view = inputs.find(name);
  return view == nullptr ? 0 : static_cast<const float*>(view->data)[channel];
}

/// What a step of one channel needs and gathers over the states.
struct StepRow {
  Step step;
  Rounded<double> u, dy, y_factor;  ///< y_factor: dz = y·y_factor
  Sum<double> y, du, ddelta;
};

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

/// Sums of one step over the channels of a group.
template <class T>
struct ProjectionSums {
  Sum<T> dB, dC;
};

/// One channel's tile of time steps, in one thread's memory: what the steps need, and the states that they go
/// through.
template <class T>
class Tile {
 public:
  Tile(const BackwardPlan& plan, const TensorSet& inputs)
      : B(static_cast<std::size_t>(plan.shape.dstate * plan.tile)),
        C(B.size()),
        steps(static_cast<std::size_t>(plan.tile)),
        rules(steps.size()),
        states(steps.size() + 1),
        products(steps.size() + 1),
        plan_(plan),
        inputs_(inputs),
        B_before_(static_cast<std::size_t>(plan.shape.dstate)) {}

  /// Bytes that it takes.
  static std::size_t bytes(const BackwardPlan& plan) {
    const auto dstate = static_cast<std::size_t>(plan.shape.dstate);
    return static_cast<std::size_t>(plan.tile) *
               ((2 * dstate + 2) * sizeof(Rounded<T>) + sizeof(StepRow) + sizeof(Discretization<T>)) +
           dstate * sizeof(Rounded<T>);
  }

  /// Brings the steps of a tile. A task's first channel brings the group's B and C for all of them.
  void load(const Task& task, std::int64_t channel, std::int64_t tile) {
    channel_ = channel;
    count = plan_.steps_in(tile);
    u_before_ = tile == 0 ? Rounded<double>{} : element("u", task, tile * plan_.tile - 1);
    load_projections(task, tile);
    load_steps(task, tile);
  }

  /// Takes state n from states[0] to the end; leaves rules, products and states.
  void go_forward(std::int64_t n) {
    const auto A = scan_bwd::load<T>(inputs_.at("A"), channel_ * plan_.shape.dstate + n);
    products[0] = u_before_ * B_before_[n];
    for (std::int64_t t = 0; t < count; ++t) {
      const auto& rule = rules[t] = discretize(plan_.shape.method, steps[t].step.delta, A);
      const auto& product = products[t + 1] = steps[t].u * B[n * plan_.tile + t];
      auto& state = states[t + 1] = rule.decay.value * states[t] + rule.input.value * product;
      if (plan_.two_samples) state = state + rule.previous_input.value * products[t];
      state = within_f32(state);
    }
  }

  std::int64_t count = 0;        ///< steps that there are
  std::vector<Rounded<T>> B, C;  ///< [state][step]
  std::vector<StepRow> steps;
  std::vector<Discretization<T>> rules;
  std::vector<Rounded<T>> states;    ///< states[t + 1] is h at step t, states[0] the one before the tile
  std::vector<Rounded<T>> products;  ///< B·u, likewise

 private:
  Rounded<T> projection(const TensorView& view, bool variable, const Task& task, std::int64_t n,
                        std::int64_t t) const {
    const Shape& s = view.strides;
    return scan_bwd::load<T>(view, variable ? task.batch * s[0] + task.group * s[1] + n * s[2] + t * s[3]
                                            : channel_ * s[0] + n * s[1]);
  }

  void load_projections(const Task& task, std::int64_t tile) {
    const SelectiveScan& shape = plan_.shape;
    const TensorView& b = inputs_.at("B");
    const TensorView& c = inputs_.at("C");
    const bool first = channel_ == task.first;
    const std::int64_t start = tile * plan_.tile;
    for (std::int64_t n = 0; n < shape.dstate; ++n) {
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t at = n * plan_.tile + t;
        if (first || !shape.variable_b) B[at] = projection(b, shape.variable_b, task, n, start + t);
        if (first || !shape.variable_c) C[at] = projection(c, shape.variable_c, task, n, start + t);
      }
      if (start > 0) B_before_[n] = projection(b, shape.variable_b, task, n, start - 1);
    }
  }

  Rounded<double> element(const char* name, const Task& task, std::int64_t t) const {
    const TensorView& view = inputs_.at(name);
    const Shape& s = view.strides;
    return scan_bwd::load<double>(view, task.batch * s[0] + channel_ * s[1] + t * s[2]);
  }

  void load_steps(const Task& task, std::int64_t tile) {
    const SelectiveScan& shape = plan_.shape;
    const double bias = of_channel(inputs_, "delta_bias", channel_);
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t at = tile * plan_.tile + t;
      StepRow& row = steps[t];
      row = {};
      row.step = step_of(element("delta", task, at).value, bias, shape.has_delta_bias, shape.delta_softplus);
      row.u = element("u", task, at);
      row.dy = element("dout", task, at);
      if (!shape.has_z) continue;
      const Gate gate = gate_of(element("z", task, at).value);
      row.y_factor = row.dy * gate.slope;
      row.dy = row.dy * gate.value;
    }
  }

  const BackwardPlan& plan_;
  const TensorSet& inputs_;
  std::int64_t channel_ = 0;
  Rounded<double> u_before_;          // u and B of the step before the tile; u is 0 before the first
  std::vector<Rounded<T>> B_before_;  // [state]
};

}  // namespace ssmbench::scan_bwd
