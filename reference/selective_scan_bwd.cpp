// The adjoint of the selective scan. With w_t = B_t·u_t, y_t = k·Re Σ_n C_t·h_t (k = 2 for complex A, else 1)
// and the gradient g of a complex x meaning ∂loss/∂Re x + i·∂loss/∂Im x, so that y = f(x) turns g_y into
// conj(f'(x))·g_y:
//   dy_t = dout_t·silu(z_t)
//   g_t  = k·dy_t·conj(C_t) + conj(Ā_{t+1})·g_{t+1}                      gradient of h_t
//   w    gets conj(c_t)·g_t + conj(c'_{t+1})·g_{t+1}
//   Ā_t, c_t, c'_t get g_t·conj(h_{t-1}), g_t·conj(w_t), g_t·conj(w_{t-1}), and pass them on to Δ_t and A
// Forward states come from checkpoints at the start of every tile of time steps; tiles are done last to
// first.
//
// Bounds: every quantity is a Rounded number (reference/rounded.h), so that the errors of the forward
// recurrence, of the coefficients and of the adjoint recurrence add up as in an implementation, and every
// rounding is charged at the magnitude of its operands; a Sum says what adding up many terms costs.

#include "reference/selective_scan_bwd.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "model/errors.h"
#include "model/selective_scan.h"
#include "reference/activations.h"
#include "reference/discretization_derivative.h"
#include "reference/rounded.h"

namespace ssmbench {
namespace {

/// Channels that one task does one after the other; their shares of dB and dC are added up as they come.
constexpr std::int64_t kSlabChannels = 16;
/// At most so many slabs per group, since each has its own partial dB and dC of a tile.
constexpr std::int64_t kMostSlabs = 32;
/// Batches are done together while there are fewer tasks than this; more than the cores of any machine.
constexpr std::int64_t kTasks = 64;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Checkpoints and tiles take the least memory together near √L steps apart.
std::int64_t tile_steps(std::int64_t seqlen) {
  return std::clamp<std::int64_t>(std::llround(std::sqrt(static_cast<double>(seqlen))), 64, 256);
}

/// Element `index` of a tensor; complex from c64, else real.
template <class T>
T load(const TensorView& view, std::int64_t offset) {
  if constexpr (is_complex<T>) {
    const auto* pair = static_cast<const float*>(view.data) + 2 * offset;
    return {pair[0], pair[1]};
  } else {
    return load_as_double(view.data, offset, view.dtype);
  }
}

/// Sums that belong to one (batch, channel, state) and what the adjoint carries to the tile before.
template <class T>
struct StateRow {
  Rounded<T> state;           ///< forward
  Rounded<T> carry;           ///< conj(Ā)·g of the step after
  Rounded<T> previous_carry;  ///< conj(c')·g of the step after
  Sum<T> dA, dB, dC;          ///< dB and dC when constant
};

struct ChannelRow {
  Sum<double> dD, ddelta_bias;
};

/// What a step of one channel needs and gathers over the states.
struct StepRow {
  Step step;
  Rounded<double> u, dy, y_factor;  ///< y_factor: dz = y·y_factor
  Sum<double> y, du, ddelta;
};

template <class T>
struct ProjectionSums {
  Sum<T> dB, dC;
};

template <class T>
class Backward {
 public:
  Backward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs,
           const std::atomic<bool>& stop)
      : shape_(problem),
        inputs_(inputs),
        outputs_(outputs),
        stop_(stop),
        saved_error_(unit_roundoff(problem.dtype()) / (2 * unit_roundoff(DType::f32))),
        two_samples_(methods()[static_cast<std::size_t>(shape_.method)].two_samples()),
        tile_(tile_steps(shape_.seqlen)),
        tiles_(ceil_div(shape_.seqlen, tile_)),
        slab_(std::max(kSlabChannels, ceil_div(shape_.channels_per_group(), kMostSlabs))),
        slabs_(ceil_div(shape_.channels_per_group(), slab_)),
        wave_(std::clamp<std::int64_t>(kTasks / (slabs_ * shape_.groups), 1, shape_.batch)),
        totals_(static_cast<std::size_t>(shape_.dim * shape_.dstate)),
        channel_totals_(static_cast<std::size_t>(shape_.dim)) {}

  void run() {
    for (first_batch_ = 0; first_batch_ < shape_.batch && !stop_; first_batch_ += wave_) {
      batches_ = std::min(wave_, shape_.batch - first_batch_);
      run_wave();
    }
    if (!stop_) store_totals();
  }

 private:
  /// Channels [first, last) of group `group` of one batch; `batch` counts from the wave's first.
  struct Task {
    std::int64_t batch, group, first, last, index;
  };

  /// A thread's room for one tile: B and C of all states, and one channel's steps, coefficients and states.
  struct Room {
    std::vector<Rounded<T>> B, C;  // [state][step]
    std::vector<Rounded<T>> B_before;
    std::vector<StepRow> steps;
    std::vector<Discretization<T>> rules;
    std::vector<Rounded<T>> states;  // states[t + 1] is h at step t, states[0] the one before the tile
    std::vector<Rounded<T>> products;
  };

  /// k of y = k·Re Σ C·h.
  double output_factor() const { return shape_.complex ? 2 : 1; }

  std::int64_t tasks() const { return batches_ * shape_.groups * slabs_; }

  Task task(std::int64_t index) const {
    const std::int64_t group = index / slabs_ % shape_.groups;
    const std::int64_t first = group * shape_.channels_per_group();
    const std::int64_t begin = first + index % slabs_ * slab_;
    return {index / (slabs_ * shape_.groups), group, begin,
            std::min(begin + slab_, first + shape_.channels_per_group()), index};
  }

  void run_wave() {
    rows_.assign(static_cast<std::size_t>(batches_ * shape_.dim * shape_.dstate), {});
    channels_.assign(static_cast<std::size_t>(batches_ * shape_.dim), {});
    checkpoints_.resize(rows_.size() * static_cast<std::size_t>(tiles_));
    shares_.resize(static_cast<std::size_t>(tasks() * shape_.dstate * tile_));
#pragma omp parallel
    {
      Room room = make_room();
#pragma omp for schedule(dynamic)
      for (std::int64_t index = 0; index < tasks(); ++index) make_checkpoints(task(index), room);
      for (std::int64_t tile = tiles_ - 1; tile >= 0; --tile) {
#pragma omp for schedule(dynamic)
        for (std::int64_t index = 0; index < tasks(); ++index)
          if (!stop_) go_back(task(index), tile, room);
#pragma omp for schedule(static)
        for (std::int64_t row = 0; row < batches_ * shape_.groups * shape_.dstate; ++row)
          add_shares(row, tile);
      }
    }
    if (!stop_) finish_wave();
  }

  Room make_room() const {
    const auto steps = static_cast<std::size_t>(tile_);
    const auto values = static_cast<std::size_t>(shape_.dstate * tile_);
    return {.B = std::vector<Rounded<T>>(values),
            .C = std::vector<Rounded<T>>(values),
            .B_before = std::vector<Rounded<T>>(static_cast<std::size_t>(shape_.dstate)),
            .steps = std::vector<StepRow>(steps),
            .rules = std::vector<Discretization<T>>(steps),
            .states = std::vector<Rounded<T>>(steps + 1),
            .products = std::vector<Rounded<T>>(steps + 1)};
  }

  std::int64_t row_of(const Task& task, std::int64_t channel, std::int64_t n) const {
    return (task.batch * shape_.dim + channel) * shape_.dstate + n;
  }
  std::int64_t steps_in(std::int64_t tile) const {
    return std::min(tile_, shape_.seqlen - tile * tile_);
  }

  Rounded<T> projection(const TensorView& view, bool variable, const Task& task, std::int64_t channel,
                        std::int64_t n, std::int64_t t) const {
    const Shape& s = view.strides;
    const std::int64_t offset =
        variable ? (first_batch_ + task.batch) * s[0] + task.group * s[1] + n * s[2] + t * s[3]
                 : channel * s[0] + n * s[1];
    return exactly(load<T>(view, offset));
  }

  /// B and C of the tile; those of a group serve all channels of the task.
  void load_projections(const Task& task, std::int64_t channel, std::int64_t tile, Room& room) const {
    const TensorView& B = inputs_.at("B");
    const TensorView& C = inputs_.at("C");
    const bool first = channel == task.first;
    const std::int64_t start = tile * tile_;
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      for (std::int64_t t = 0; t < steps_in(tile); ++t) {
        if (first || !shape_.variable_b)
          room.B[n * tile_ + t] = projection(B, shape_.variable_b, task, channel, n, start + t);
        if (first || !shape_.variable_c)
          room.C[n * tile_ + t] = projection(C, shape_.variable_c, task, channel, n, start + t);
      }
      room.B_before[n] =
          start == 0 ? Rounded<T>{} : projection(B, shape_.variable_b, task, channel, n, start - 1);
    }
  }

  double element(const char* name, const Task& task, std::int64_t channel, std::int64_t t) const {
    const TensorView& view = inputs_.at(name);
    const Shape& s = view.strides;
    return load_as_double(view.data, (first_batch_ + task.batch) * s[0] + channel * s[1] + t * s[2],
                          view.dtype);
  }
  /// 0 where the input is absent.
  double of_channel(const char* name, std::int64_t channel) const {
    const TensorView* view = inputs_.find(name);
    return view == nullptr ? 0 : static_cast<const float*>(view->data)[channel];
  }
  Rounded<T> decay_rate(std::int64_t channel, std::int64_t n) const {
    return exactly(load<T>(inputs_.at("A"), channel * shape_.dstate + n));
  }

  void load_steps(const Task& task, std::int64_t channel, std::int64_t tile, Room& room) const {
    const double bias = of_channel("delta_bias", channel);
    for (std::int64_t t = 0; t < steps_in(tile); ++t) {
      const std::int64_t at = tile * tile_ + t;
      StepRow& row = room.steps[t];
      row = {};
      row.step =
          step_of(element("delta", task, channel, at), bias, shape_.has_delta_bias, shape_.delta_softplus);
      row.u = exactly(element("u", task, channel, at));
      row.dy = exactly(element("dout", task, channel, at));
      if (!shape_.has_z) continue;
      const Gate gate = gate_of(element("z", task, channel, at));
      row.y_factor = row.dy * gate.slope;
      row.dy = row.dy * gate.value;
    }
  }

  /// Advances state n through the tile, leaving rules, products and states in the room.
  void go_forward(const Task& task, std::int64_t channel, std::int64_t n, std::int64_t tile,
                  Room& room) const {
    const auto A = decay_rate(channel, n);
    room.products[0] =
        tile == 0 ? Rounded<T>{} : exactly(element("u", task, channel, tile * tile_ - 1)) * room.B_before[n];
    for (std::int64_t t = 0; t < steps_in(tile); ++t) {
      const auto& rule = room.rules[t] = discretize(shape_.method, room.steps[t].step.delta, A);
      const auto& product = room.products[t + 1] = room.steps[t].u * room.B[n * tile_ + t];
      auto& state = room.states[t + 1] = rule.decay.value * room.states[t] + rule.input.value * product;
      if (two_samples_) state = state + rule.previous_input.value * room.products[t];
      state = within_f32(state);
    }
  }

  void make_checkpoints(const Task& task, Room& room) {
    for (std::int64_t tile = 0; tile < tiles_ && !stop_; ++tile) {
      for (std::int64_t channel = task.first; channel < task.last; ++channel) {
        load_projections(task, channel, tile, room);
        load_steps(task, channel, tile, room);
        for (std::int64_t n = 0; n < shape_.dstate; ++n) {
          const std::int64_t row = row_of(task, channel, n);
          if (tile == 0) rows_[row].state = initial_state(task, channel, n);
          checkpoints_[row * tiles_ + tile] = room.states[0] = rows_[row].state;
          go_forward(task, channel, n, tile, room);
          rows_[row].state = room.states[steps_in(tile)];
        }
      }
    }
  }

  Rounded<T> initial_state(const Task& task, std::int64_t channel, std::int64_t n) const {
    const TensorView* view = inputs_.find("initial_state");
    if (view == nullptr) return {};
    return exactly(load<T>(*view, ((first_batch_ + task.batch) * shape_.dim + channel) * shape_.dstate + n));
  }

  void go_back(const Task& task, std::int64_t tile, Room& room) {
    auto* shares = shares_.data() + task.index * shape_.dstate * tile_;
    std::fill_n(shares, shape_.dstate * tile_, ProjectionSums<T>{});
    for (std::int64_t channel = task.first; channel < task.last; ++channel) {
      load_projections(task, channel, tile, room);
      load_steps(task, channel, tile, room);
      for (std::int64_t n = 0; n < shape_.dstate; ++n) {
        StateRow<T>& row = rows_[row_of(task, channel, n)];
        room.states[0] = checkpoints_[row_of(task, channel, n) * tiles_ + tile];
        go_forward(task, channel, n, tile, room);
        adjoint(n, tile, room, row, shares + n * tile_);
      }
      store_steps(task, channel, tile, room);
    }
  }

  void adjoint(std::int64_t n, std::int64_t tile, Room& room, StateRow<T>& row,
               ProjectionSums<T>* shares) const {
    for (std::int64_t t = steps_in(tile) - 1; t >= 0; --t) {
      StepRow& step = room.steps[t];
      const auto& B = room.B[n * tile_ + t];
      const auto& C = room.C[n * tile_ + t];
      const Discretization<T>& rule = room.rules[t];
      const auto dy = scaled(output_factor(), step.dy);

      const auto g = within_f32(dy * conj(C) + row.carry);
      const auto of_decay = within_f32(g * conj(room.states[t]));
      const auto of_input = g * conj(room.products[t + 1]);
      row.dA.add(of_decay * conj(rule.decay.by_A));
      row.dA.add(of_input * conj(rule.input.by_A));
      step.ddelta.add(real(of_decay * conj(rule.decay.by_delta)));
      step.ddelta.add(real(of_input * conj(rule.input.by_delta)));
      auto of_product = conj(rule.input.value) * g;
      if (two_samples_) {
        const auto of_previous = g * conj(room.products[t]);
        row.dA.add(of_previous * conj(rule.previous_input.by_A));
        step.ddelta.add(real(of_previous * conj(rule.previous_input.by_delta)));
        of_product = of_product + row.previous_carry;
        row.previous_carry = conj(rule.previous_input.value) * g;
      }
      row.carry = conj(rule.decay.value) * g;

      step.y.add(real(C * room.states[t + 1]));
      step.du.add(real(of_product * conj(B)));
      (shape_.variable_b ? shares[t].dB : row.dB).add(step.u * of_product);
      (shape_.variable_c ? shares[t].dC : row.dC).add(dy * conj(room.states[t + 1]));
    }
  }

  void store(ReferenceOutput& output, std::int64_t at, const Rounded<double>& got) const {
    output.expected[at] = got.value;
    output.bound[at] = static_cast<float>(got.error);
  }
  void store(ReferenceOutput& output, std::int64_t at, const Rounded<std::complex<double>>& got) const {
    output.expected[2 * at] = got.value.real();
    output.expected[2 * at + 1] = got.value.imag();
    output.bound[2 * at] = output.bound[2 * at + 1] = static_cast<float>(got.error);
  }

  /// du, ddelta and dz of a channel's tile, and its shares of dD and ddelta_bias.
  void store_steps(const Task& task, std::int64_t channel, std::int64_t tile, Room& room) {
    const std::int64_t batch_row = (first_batch_ + task.batch) * shape_.dim + channel;
    ChannelRow& sums = channels_[task.batch * shape_.dim + channel];
    const auto D = exactly(of_channel("D", channel));
    for (std::int64_t t = 0; t < steps_in(tile); ++t) {
      StepRow& step = room.steps[t];
      const std::int64_t at = batch_row * shape_.seqlen + tile * tile_ + t;
      // Every state gives three terms at most.
      const auto ddelta = step.ddelta.over(3 * shape_.dstate) * step.step.slope;
      store(outputs_.at("ddelta"), at, ddelta);
      sums.ddelta_bias.add(ddelta);
      sums.dD.add(step.dy * step.u);
      if (shape_.has_D) step.du.add(D * step.dy);
      store(outputs_.at("du"), at, step.du.over(2 * shape_.dstate + 1));
      if (!shape_.has_z) continue;
      Sum<double> sum;
      sum.add(scaled(output_factor(), step.y.over(shape_.dstate)));
      if (shape_.has_D) sum.add(D * step.u);
      auto y = sum.over(2);
      y.error += saved_error_ * std::abs(y.value);
      store(outputs_.at("dz"), at, y * step.y_factor);
    }
  }

  /// Adds the slabs' shares of dB and dC in order. `row` counts (batch, group, state).
  void add_shares(std::int64_t row, std::int64_t tile) {
    if (!shape_.variable_b && !shape_.variable_c) return;
    const std::int64_t n = row % shape_.dstate;
    const std::int64_t slabs_before = row / shape_.dstate * slabs_;
    const std::int64_t start =
        (first_batch_ * shape_.groups * shape_.dstate + row) * shape_.seqlen + tile * tile_;
    for (std::int64_t t = 0; t < steps_in(tile); ++t) {
      ProjectionSums<T> sum;
      for (std::int64_t slab = 0; slab < slabs_; ++slab) {
        const auto& share = shares_[((slabs_before + slab) * shape_.dstate + n) * tile_ + t];
        sum.dB.add(share.dB);
        sum.dC.add(share.dC);
      }
      if (shape_.variable_b) store(outputs_.at("dB"), start + t, sum.dB.over(shape_.channels_per_group()));
      if (shape_.variable_c) store(outputs_.at("dC"), start + t, sum.dC.over(shape_.channels_per_group()));
    }
  }

  /// dinitial_state, and the batches' sums in order.
  void finish_wave() {
    for (std::int64_t batch = 0; batch < batches_; ++batch) {
      for (std::int64_t i = 0; i < shape_.dim * shape_.dstate; ++i) {
        const StateRow<T>& row = rows_[batch * shape_.dim * shape_.dstate + i];
        totals_[i].dA.add(row.dA);
        totals_[i].dB.add(row.dB);
        totals_[i].dC.add(row.dC);
        if (shape_.has_initial_state)
          store(outputs_.at("dinitial_state"), (first_batch_ + batch) * shape_.dim * shape_.dstate + i,
                row.carry);
      }
      for (std::int64_t channel = 0; channel < shape_.dim; ++channel) {
        const ChannelRow& row = channels_[batch * shape_.dim + channel];
        channel_totals_[channel].dD.add(row.dD);
        channel_totals_[channel].ddelta_bias.add(row.ddelta_bias);
      }
    }
  }

  void store_totals() {
    const std::int64_t steps = shape_.batch * shape_.seqlen;
    for (std::int64_t i = 0; i < shape_.dim * shape_.dstate; ++i) {
      store(outputs_.at("dA"), i, totals_[i].dA.over(3 * steps));
      if (!shape_.variable_b) store(outputs_.at("dB"), i, totals_[i].dB.over(steps));
      if (!shape_.variable_c) store(outputs_.at("dC"), i, totals_[i].dC.over(steps));
    }
    for (std::int64_t channel = 0; channel < shape_.dim; ++channel) {
      if (shape_.has_D) store(outputs_.at("dD"), channel, channel_totals_[channel].dD.over(steps));
      if (shape_.has_delta_bias)
        store(outputs_.at("ddelta_bias"), channel, channel_totals_[channel].ddelta_bias.over(steps));
    }
  }

  SelectiveScan shape_;
  const TensorSet& inputs_;
  ReferenceOutputs& outputs_;
  const std::atomic<bool>& stop_;
  /// dz may be made from the y that the forward pass saved in the io dtype, as mamba_ssm's is: one rounding
  /// of it, halved because tolerances take twice the bound (verify/tolerance.h).
  double saved_error_;
  bool two_samples_;
  std::int64_t tile_, tiles_;  // steps of a tile, tiles of the sequence
  std::int64_t slab_, slabs_;  // channels of a slab, slabs of a group
  std::int64_t wave_;          // batches done together
  std::int64_t first_batch_ = 0, batches_ = 0;
  std::vector<StateRow<T>> rows_;           // [batch of the wave][channel][state]
  std::vector<ChannelRow> channels_;        // [batch of the wave][channel]
  std::vector<Rounded<T>> checkpoints_;     // [batch of the wave][channel][state][tile]
  std::vector<ProjectionSums<T>> shares_;   // [task][state][step of the tile]
  std::vector<StateRow<T>> totals_;         // [channel][state]
  std::vector<ChannelRow> channel_totals_;  // [channel]
};

ReferenceOutput empty_output(const TensorSpec& spec) {
  Shape shape = spec.shape;
  if (spec.dtype == DType::c64) shape.push_back(2);
  const auto count = static_cast<std::size_t>(element_count(shape));
  return {std::move(shape), std::vector<double>(count), std::vector<float>(count)};
}

}  // namespace

ReferenceOutputs selective_scan_bwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop) {
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors())
    if (tensor.role == Role::output) outputs[tensor.name] = empty_output(tensor);
  if (SelectiveScan(problem).complex)
    Backward<std::complex<double>>(problem, inputs, outputs, stop).run();
  else
    Backward<double>(problem, inputs, outputs, stop).run();
  if (stop) throw Interrupted();
  return outputs;
}

}  // namespace ssmbench
