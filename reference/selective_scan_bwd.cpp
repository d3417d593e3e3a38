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

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <exception>
#include <utility>
#include <vector>

#include "model/errors.h"
#include "model/selective_scan.h"
#include "reference/rounded.h"
#include "reference/scan_bwd_plan.h"
#include "reference/scan_bwd_tile.h"

namespace ssmbench {
namespace {

using namespace scan_bwd;

template <class T>
class Backward {
 public:
  Backward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs,
           const std::atomic<bool>& stop)
      : plan_(SelectiveScan(problem)),
        shape_(plan_.shape),
        inputs_(inputs),
        outputs_(outputs),
        stop_(stop),
        saved_error_(unit_roundoff(problem.dtype()) / (2 * unit_roundoff(DType::f32))),
        totals_(static_cast<std::size_t>(shape_.dim * shape_.dstate)),
        channel_totals_(static_cast<std::size_t>(shape_.dim)) {}

  void run() {
    for (first_batch_ = 0; first_batch_ < shape_.batch && !stop_; first_batch_ += plan_.wave) {
      batches_ = std::min(plan_.wave, shape_.batch - first_batch_);
      run_wave();
    }
    if (!stop_) store_totals();
  }

  /// Bytes beside the outputs at the peak.
  static std::size_t working_bytes(const BackwardPlan& plan, int threads) {
    const auto channels = static_cast<std::size_t>(plan.shape.dim);
    const auto rows = channels * static_cast<std::size_t>(plan.shape.dstate);
    const auto wave = static_cast<std::size_t>(plan.wave);
    const auto shares = static_cast<std::size_t>(plan.tasks(plan.wave) * plan.shape.dstate * plan.tile);
    return (wave + 1) * (rows * sizeof(StateRow<T>) + channels * sizeof(ChannelRow)) +
           wave * rows * static_cast<std::size_t>(plan.tiles) * sizeof(Rounded<T>) +
           shares * sizeof(ProjectionSums<T>) + static_cast<std::size_t>(threads) * Tile<T>::bytes(plan);
  }

 private:
  /// k of y = k·Re Σ C·h.
  double output_factor() const { return shape_.complex ? 2 : 1; }

  std::int64_t tasks() const { return plan_.tasks(batches_); }

  void run_wave() {
    rows_.assign(static_cast<std::size_t>(batches_ * shape_.dim * shape_.dstate), {});
    channels_.assign(static_cast<std::size_t>(batches_ * shape_.dim), {});
    checkpoints_.resize(rows_.size() * static_cast<std::size_t>(plan_.tiles));
    shares_.resize(static_cast<std::size_t>(tasks() * shape_.dstate * plan_.tile));
#pragma omp parallel
    {
      Tile<T> tile(plan_, inputs_);
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < tasks(); ++i) make_checkpoints(plan_.task(first_batch_, i), tile);
      for (std::int64_t index = plan_.tiles - 1; index >= 0; --index) {
#pragma omp for schedule(dynamic)
        for (std::int64_t i = 0; i < tasks(); ++i)
          if (!stop_) go_back_from(plan_.task(first_batch_, i), index, tile);
#pragma omp for schedule(static)
        for (std::int64_t row = 0; row < batches_ * shape_.groups * shape_.dstate; ++row)
          add_shares(row, index);
      }
    }
    if (!stop_) finish_wave();
  }

  std::int64_t row_of(const Task& task, std::int64_t channel, std::int64_t n) const {
    return (task.in_wave * shape_.dim + channel) * shape_.dstate + n;
  }

  /// Where the checkpoints of tile `index` are, as `row_of` counts.
  Rounded<T>* checkpoints(std::int64_t index) {
    return checkpoints_.data() + index * batches_ * shape_.dim * shape_.dstate;
  }

  void make_checkpoints(const Task& task, Tile<T>& tile) {
    for (std::int64_t index = 0; index < plan_.tiles && !stop_; ++index) {
      for (std::int64_t first = task.first; first < task.last; first += kLanes) {
        tile.load(task, first, index, false);
        for (std::int64_t n = 0; n < shape_.dstate; ++n) {
          LaneScan<T> scan = tile.scan_of(n, 0);
          for (std::int64_t lane = 0; lane < tile.channels; ++lane) {
            const std::int64_t row = row_of(task, first + lane, n);
            if (index == 0) rows_[row].state = initial_state(task, first + lane, n);
            scan.states[0].set(lane, checkpoints(index)[row] = rows_[row].state);
          }
          go_forward(scan);
          for (std::int64_t lane = 0; lane < tile.channels; ++lane)
            rows_[row_of(task, first + lane, n)].state = scan.states[tile.count].get(lane);
        }
      }
    }
  }

  Rounded<T> initial_state(const Task& task, std::int64_t channel, std::int64_t n) const {
    const TensorView* view = inputs_.find("initial_state");
    if (view == nullptr) return {};
    return exactly(load<T>(*view, (task.batch * shape_.dim + channel) * shape_.dstate + n));
  }

  void go_back_from(const Task& task, std::int64_t index, Tile<T>& tile) {
    auto* shares = shares_.data() + task.index * shape_.dstate * plan_.tile;
    std::fill_n(shares, shape_.dstate * plan_.tile, ProjectionSums<T>{});
    for (std::int64_t first = task.first; first < task.last; first += kLanes) {
      tile.load(task, first, index, true);
      for (std::int64_t n = 0; n < shape_.dstate; n += plan_.states_at_once)
        go_back_states(task, first, index, n, tile, shares);
      store_steps(task, first, index, tile);
    }
  }

  /// States [first_state, first_state + plan_.states_at_once), as far as there are, of the block of channels
  /// from `first` on: forward through the tile and back, one stretch after the other.
  void go_back_states(const Task& task, std::int64_t first, std::int64_t index, std::int64_t first_state,
                      Tile<T>& tile, ProjectionSums<T>* shares) {
    const std::int64_t states = std::min(plan_.states_at_once, shape_.dstate - first_state);
    std::vector<LaneScan<T>> scans;
    for (std::int64_t place = 0; place < states; ++place)
      scans.push_back(scan_back(task, first, index, first_state + place, place, tile, shares));
    const std::int64_t stretches = BackwardPlan::ceil_div(tile.count, BackwardPlan::kStretch);
    const auto for_stretch = [&](std::int64_t stretch, const auto& go) {
      for (auto& scan : scans) {
        scan.first = stretch * BackwardPlan::kStretch;
        scan.last = std::min(tile.count, scan.first + BackwardPlan::kStretch);
        go(scan);
      }
    };
    for (std::int64_t i = 0; i < stretches; ++i) for_stretch(i, [](auto& scan) { go_forward(scan); });
    for (std::int64_t i = stretches - 1; i >= 0; --i) for_stretch(i, [](auto& scan) { go_back(scan); });
    for (std::int64_t place = 0; place < states; ++place) {
      for (std::int64_t lane = 0; lane < tile.channels; ++lane) {
        StateRow<T>& row = rows_[row_of(task, first + lane, first_state + place)];
        row.carry = scans[place].carry.get(lane);
        row.previous_carry = scans[place].previous_carry.get(lane);
        row.dA = scans[place].dA.get(lane);
        row.dB = scans[place].dB.get(lane);
        row.dC = scans[place].dC.get(lane);
      }
    }
  }

  /// The scan of state n, with what came of later tiles.
  LaneScan<T> scan_back(const Task& task, std::int64_t first, std::int64_t index, std::int64_t n,
                        std::int64_t place, Tile<T>& tile, ProjectionSums<T>* shares) {
    LaneScan<T> scan = tile.scan_of(n, place);
    scan.output_factor = output_factor();
    scan.sums_of_B = shape_.variable_b ? shares + n * plan_.tile : nullptr;
    scan.sums_of_C = shape_.variable_c ? shares + n * plan_.tile : nullptr;
    for (std::int64_t lane = 0; lane < tile.channels; ++lane) {
      const std::int64_t at = row_of(task, first + lane, n);
      const StateRow<T>& row = rows_[at];
      scan.states[0].set(lane, checkpoints(index)[at]);
      scan.carry.set(lane, row.carry);
      scan.previous_carry.set(lane, row.previous_carry);
      scan.dA.set(lane, row.dA);
      scan.dB.set(lane, row.dB);
      scan.dC.set(lane, row.dC);
    }
    return scan;
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

  /// du, ddelta and dz of a block's tile, and its shares of dD and ddelta_bias.
  void store_steps(const Task& task, std::int64_t first, std::int64_t index, Tile<T>& tile) {
    StepFinish finish{.dstate = shape_.dstate,
                      .output_factor = output_factor(),
                      .saved_error = saved_error_,
                      .has_D = shape_.has_D,
                      .has_z = shape_.has_z,
                      .D = {},
                      .dD = {},
                      .ddelta_bias = {}};
    ChannelRow* sums = channels_.data() + task.in_wave * shape_.dim + first;
    for (std::int64_t lane = 0; lane < tile.channels; ++lane) {
      finish.D.set(lane, of_channel(inputs_, "D", first + lane));
      finish.dD.set(lane, sums[lane].dD);
      finish.ddelta_bias.set(lane, sums[lane].ddelta_bias);
    }
    finish_steps(finish, tile.count, tile.steps.data());
    for (std::int64_t lane = 0; lane < tile.channels; ++lane) {
      sums[lane].dD = finish.dD.get(lane);
      sums[lane].ddelta_bias = finish.ddelta_bias.get(lane);
      const std::int64_t at = (task.batch * shape_.dim + first + lane) * shape_.seqlen + index * plan_.tile;
      store_lane("du", at, lane, tile, &StepLanes::du);
      store_lane("ddelta", at, lane, tile, &StepLanes::ddelta);
      if (shape_.has_z) store_lane("dz", at, lane, tile, &StepLanes::y);
    }
  }

  void store_lane(const char* name, std::int64_t at, std::int64_t lane, const Tile<T>& tile,
                  SumLanes<double> StepLanes::*gradient) {
    ReferenceOutput& output = outputs_.at(name);
    for (std::int64_t t = 0; t < tile.count; ++t)
      store(output, at + t, (tile.steps[t].*gradient).total.get(lane));
  }

  /// Adds the slabs' shares of dB and dC in order. `row` counts (batch, group, state).
  void add_shares(std::int64_t row, std::int64_t tile) {
    if (!shape_.variable_b && !shape_.variable_c) return;
    const std::int64_t n = row % shape_.dstate;
    const std::int64_t slabs_before = row / shape_.dstate * plan_.slabs;
    const std::int64_t start =
        (first_batch_ * shape_.groups * shape_.dstate + row) * shape_.seqlen + tile * plan_.tile;
    for (std::int64_t t = 0; t < plan_.steps_in(tile); ++t) {
      ProjectionSums<T> sum;
      for (std::int64_t slab = 0; slab < plan_.slabs; ++slab) {
        const auto& share = shares_[((slabs_before + slab) * shape_.dstate + n) * plan_.tile + t];
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

  BackwardPlan plan_;
  const SelectiveScan& shape_;
  const TensorSet& inputs_;
  ReferenceOutputs& outputs_;
  const std::atomic<bool>& stop_;
  /// dz may be made from the y that the forward pass saved in the io dtype, as mamba_ssm's is: one rounding
  /// of it, halved because tolerances take twice the bound (verify/tolerance.h).
  double saved_error_;
  std::int64_t first_batch_ = 0, batches_ = 0;
  std::vector<StateRow<T>> rows_;           // [batch of the wave][channel][state]
  std::vector<ChannelRow> channels_;        // [batch of the wave][channel]
  std::vector<Rounded<T>> checkpoints_;     // [tile][batch of the wave][channel][state]
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

/// All outputs, side by side: most of their time is the first touch of their memory.
ReferenceOutputs empty_outputs(const Problem& problem) {
  ReferenceOutputs outputs;
  std::vector<std::pair<TensorSpec, ReferenceOutput*>> all;
  for (const auto& tensor : problem.tensors())
    if (tensor.role == Role::output) all.emplace_back(tensor, &outputs[tensor.name]);
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
  for (auto& [spec, output] : all) {
    try {
      *output = empty_output(spec);
    } catch (...) {  // out of memory; may not leave the loop
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return outputs;
}

}  // namespace

ReferenceOutputs selective_scan_bwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop) {
  ReferenceOutputs outputs = empty_outputs(problem);
  if (SelectiveScan(problem).complex)
    Backward<std::complex<double>>(problem, inputs, outputs, stop).run();
  else
    Backward<double>(problem, inputs, outputs, stop).run();
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t selective_scan_bwd_working_bytes(const Problem& problem) {
  const BackwardPlan plan{SelectiveScan(problem)};
  return plan.shape.complex ? Backward<std::complex<double>>::working_bytes(plan, omp_get_max_threads())
                            : Backward<double>::working_bytes(plan, omp_get_max_threads());
}

}  // namespace ssmbench
