// The adjoint of the selective scan. With w_t = B_t·u_t, y_t = k·Re Σ_n C_t·h_t (k = 2 for complex A, else 1)
// and the gradient g of a complex x meaning ∂loss/∂Re x + i·∂loss/∂Im x, so that y = f(x) turns g_y into
// conj(f'(x))·g_y:
//   dy_t = dout_t·silu(z_t)
//   g_t  = k·dy_t·conj(C_t) + conj(Ā_{t+1})·g_{t+1}                      gradient of h_t
//   the last step has dlast_state, or 0, in place of the latter
//   w    gets conj(c_t)·g_t + conj(c'_{t+1})·g_{t+1}
//   Ā_t, c_t, c'_t get g_t·conj(h_{t-1}), g_t·conj(w_t), g_t·conj(w_{t-1}), and pass them on to Δ_t and A
// Forward states come from checkpoints at the start of every tile of time steps, or from x at every few
// steps; tiles are done last to first.
//
// Bounds: every quantity is a Rounded number (reference/common/rounded.h), so that the errors of the forward
// recurrence, of the coefficients and of the adjoint recurrence add up as in an implementation, and every
// rounding is charged at the magnitude of its operands; a Sum says what adding up many terms costs.

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "base/errors.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/selective_scan/x.h"
#include "reference/common/rounded.h"
#include "reference/common/zeros.h"
#include "reference/reference.h"
#include "reference/selective_scan/bwd_plan.h"
#include "reference/selective_scan/bwd_tile.h"

namespace ssmbench {
namespace {

using namespace scan_bwd;

/// dB and dC where they are sums over channels, which come range by range.
template <class T>
struct OverChannels {
  ReferenceOutputs outputs;  ///< of groups that are over
  /// Sums of the group that has channels left, [batch][state][step]; empty where none has.
  std::vector<ProjectionSums<T>> begun = {};
};

/// Outputs of a range of channels, which begins and ends at slabs of the plan.
template <class T>
class Backward {
 public:
  Backward(const Problem& problem, const TensorSet& inputs, const IndexRange& channels,
           ReferenceOutputs& outputs, OverChannels<T>& over_channels, const std::atomic<bool>& stop)
      : plan_(SelectiveScan(problem), has_x(problem)),
        shape_(plan_.shape),
        inputs_(inputs),
        x_(inputs.find("x")),
        range_(channels),
        slabs_{plan_.slab_of(channels.begin), plan_.slab_of(channels.end - 1) + 1},
        outputs_(outputs),
        over_channels_(over_channels),
        stop_(stop),
        saved_error_(unit_roundoff(problem.dtype()) / (2 * unit_roundoff(DType::f32))),
        blocks_(blocks(plan_)),
        totals_(static_cast<std::size_t>(channels.count() * shape_.dstate)),
        channel_totals_(static_cast<std::size_t>(channels.count())) {
    if (channels.end % shape_.channels_per_group() != 0)
      begun_.resize(static_cast<std::size_t>(shape_.batch * shape_.dstate * shape_.seqlen));
  }

  void run() {
    for (first_batch_ = 0; first_batch_ < shape_.batch && !stop_; first_batch_ += plan_.wave) {
      batches_ = std::min(plan_.wave, shape_.batch - first_batch_);
      run_wave();
    }
    if (!stop_) store_totals();
    over_channels_.begun = std::move(begun_);
  }

  /// Bytes beside the outputs at the peak, with ranges of so many channels.
  static std::size_t working_bytes(const BackwardPlan& plan, std::int64_t range, int threads) {
    const auto channels = static_cast<std::size_t>(range);
    const auto dstate = static_cast<std::size_t>(plan.shape.dstate);
    const auto tasks = static_cast<std::size_t>(plan.wave * plan.most_slabs(range));
    const bool is_whole = range == plan.shape.dim;
    const std::int64_t begun = is_whole ? 0 : 2 * plan.shape.batch * plan.shape.dstate * plan.shape.seqlen;
    const std::size_t blocks = tasks * static_cast<std::size_t>(Backward::blocks(plan));
    const std::size_t of_state =
        sizeof(AdjointLanes<T>) + static_cast<std::size_t>(plan.tiles) * sizeof(Checkpoint);
    return static_cast<std::size_t>(begun) * sizeof(ProjectionSums<T>) +
           channels * (dstate * sizeof(StateSums) + sizeof(ChannelSums)) +
           blocks * (dstate * of_state + sizeof(ChannelLanes)) +
           tasks * dstate * static_cast<std::size_t>(plan.tile) * sizeof(ProjectionSums<T>) +
           static_cast<std::size_t>(threads) *
               (Tile<T>::bytes(plan) +
                static_cast<std::size_t>(Backward::blocks(plan)) * dstate * sizeof(LongMemoryLanes<T>));
  }

 private:
  /// Sums over batches and time of one (channel, state); dB and dC when constant.
  struct StateSums {
    Sum<T> dA, dB, dC;
  };
  /// The states that enter a tile.
  struct Checkpoint {
    RoundedLanes<T> state;
    MemoryLanes memory;
  };
  /// Those of one channel.
  struct ChannelSums {
    Sum<double> dD, ddelta_bias;
  };
  /// The same of one batch, for a block of channels.
  struct ChannelLanes {
    SumLanes<double> dD, ddelta_bias;
  };

  /// Blocks of kLanes channels in a task at most.
  static std::int64_t blocks(const BackwardPlan& plan) {
    return BackwardPlan::ceil_div(std::min(plan.slab, plan.shape.channels_per_group()), kLanes);
  }

  /// k of y = k·Re Σ C·h.
  double output_factor() const { return shape_.complex ? 2 : 1; }

  std::int64_t tasks() const { return batches_ * slabs_.count(); }
  /// Task `index` of the wave.
  Task task(std::int64_t index) const {
    const std::int64_t in_wave = index / slabs_.count();
    return plan_.task(first_batch_ + in_wave, slabs_.begin + index % slabs_.count(), index);
  }

  void run_wave() {
    channels_.assign(static_cast<std::size_t>(tasks() * blocks_), {});
    adjoints_.assign(channels_.size() * static_cast<std::size_t>(shape_.dstate), {});
    if (first_batch_ == 0) {  // the largest wave
      checkpoints_ = zeros<Checkpoint>(adjoints_.size() * static_cast<std::size_t>(plan_.tiles));
      shares_.resize(static_cast<std::size_t>(tasks() * shape_.dstate * plan_.tile));
    }
#pragma omp parallel
    {
      Tile<T> tile(plan_, inputs_);
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < tasks(); ++i) make_checkpoints(task(i), tile);
      for (std::int64_t index = plan_.tiles - 1; index >= 0; --index) {
#pragma omp for schedule(dynamic)
        for (std::int64_t i = 0; i < tasks(); ++i)
          if (!stop_) go_back_from(task(i), index, tile);
#pragma omp for schedule(static)
        for (std::int64_t row = 0; row < batches_ * groups_.count() * shape_.dstate; ++row)
          add_shares(row, index);
      }
    }
    if (!stop_) finish_wave();
  }

  /// The place of the block of channels from `first` on among those of the wave.
  std::int64_t block_of(const Task& task, std::int64_t first) const {
    return task.index * blocks_ + (first - task.first) / kLanes;
  }

  /// The states of a block that enter tile `index`.
  Checkpoint* checkpoint(const Task& task, std::int64_t first, std::int64_t index) {
    return checkpoints_.data() + (index * tasks() * blocks_ + block_of(task, first)) * shape_.dstate;
  }

  void make_checkpoints(const Task& task, Tile<T>& tile) {
    std::vector<LongMemoryLanes<T>> memories(static_cast<std::size_t>(blocks_ * shape_.dstate));
    const auto memory_of = [&](std::int64_t first, std::int64_t n) -> LongMemoryLanes<T>& {
      return memories[(first - task.first) / kLanes * shape_.dstate + n];
    };
    for (std::int64_t first = task.first; first < task.last; first += kLanes)
      for (std::int64_t n = 0; n < shape_.dstate; ++n) {
        Checkpoint& start = checkpoint(task, first, 0)[n];
        start.state = given_states("initial_state", task, first, n);
        memory_of(first, n).start_from(start.state);
        AdjointLanes<T>& adjoint = adjoints_[block_of(task, first) * shape_.dstate + n];
        adjoint.carry = given_states("dlast_state", task, first, n);
        adjoint.long_memory.start_from(adjoint.carry);
      }
    for (std::int64_t index = 0; index + 1 < plan_.tiles && x_ == nullptr && !stop_; ++index) {
      for (std::int64_t first = task.first; first < task.last; first += kLanes) {
        tile.load(task, first, index, false);
        for (std::int64_t n = 0; n < shape_.dstate; ++n) {
          LaneScan<T> scan = tile.scan_of(n, 0);
          scan.states[0] = checkpoint(task, first, index)[n].state;
          LongMemoryLanes<T>& memory = memory_of(first, n);
          scan.spread = &memory.tile;
          pass_through(scan);
          memory.end_tile(tile.count, shape_.seqlen, scan.states[0]);
          checkpoint(task, first, index + 1)[n] = {scan.states[0], memory.memory()};
        }
      }
    }
  }

  /// An input (B, D, N) of the block of channels from `first` on; zeros where it is absent.
  RoundedLanes<T> given_states(const char* name, const Task& task, std::int64_t first, std::int64_t n) const {
    RoundedLanes<T> lanes;
    const TensorView* view = inputs_.find(name);
    for (std::int64_t c = first; c < std::min(first + kLanes, task.last) && view != nullptr; ++c)
      lanes.set(c - first, exactly(load<T>(*view, (task.batch * shape_.dim + c) * shape_.dstate + n)));
    return lanes;
  }

  /// State n before a step that x has, of the block of channels from `first` on.
  RoundedLanes<T> state_of_x(const Task& task, std::int64_t first, std::int64_t n, std::int64_t step) const {
    const std::int64_t of_batch = BackwardPlan::ceil_div(shape_.seqlen, kStepsOfX);
    const std::int64_t row = (task.batch * of_batch + step / kStepsOfX) * shape_.dim;
    RoundedLanes<T> lanes;
    for (std::int64_t c = first; c < std::min(first + kLanes, task.last); ++c)
      lanes.set(c - first, exactly(load<T>(*x_, (row + c) * shape_.dstate + n)));
    return lanes;
  }

  void go_back_from(const Task& task, std::int64_t index, Tile<T>& tile) {
    auto* shares = shares_.data() + task.index * shape_.dstate * plan_.tile;
    std::fill_n(shares, shape_.dstate * plan_.tile, ProjectionSums<T>{});
    for (std::int64_t first = task.first; first < task.last; first += kLanes) {
      tile.load(task, first, index, true);
      for (const char* name : {"du", "ddelta", "dz"}) prefetch_steps(name, task, first, index, tile);
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
    scans.reserve(static_cast<std::size_t>(states));
    for (std::int64_t place = 0; place < states; ++place)
      scans.push_back(scan_back(task, first, index, first_state + place, place, tile, shares));
    const std::int64_t stretches = BackwardPlan::ceil_div(tile.count, plan_.stretch);
    const auto for_stretch = [&](std::int64_t stretch, const auto& go) {
      for (auto& scan : scans) {
        scan.first = stretch * plan_.stretch;
        scan.last = std::min(tile.count, scan.first + plan_.stretch);
        go(scan);
      }
    };
    for (std::int64_t i = 0; i < stretches && x_ == nullptr; ++i)
      for_stretch(i, [](auto& scan) { go_forward(scan); });
    for (std::int64_t i = stretches - 1; i >= 0; --i)
      for_stretch(i, [&](auto& scan) {
        if (x_ != nullptr) {
          const std::int64_t n = first_state + (&scan - scans.data());
          scan.states[scan.first] = state_of_x(task, first, n, index * plan_.tile + scan.first);
          go_forward(scan);
        }
        go_back(scan);
      });
    for (auto& scan : scans) {
      tile.add_memory(scan.memory);
      scan.adjoint->long_memory.end_tile(tile.count, shape_.seqlen, scan.adjoint->carry);
    }
  }

  /// The scan of state n, with what came of later tiles.
  LaneScan<T> scan_back(const Task& task, std::int64_t first, std::int64_t index, std::int64_t n,
                        std::int64_t place, Tile<T>& tile, ProjectionSums<T>* shares) {
    LaneScan<T> scan = tile.scan_of(n, place);
    scan.output_factor = output_factor();
    scan.adjoint = &adjoints_[block_of(task, first) * shape_.dstate + n];
    scan.sums_of_B = shape_.variable_b ? shares + n * plan_.tile : nullptr;
    scan.sums_of_C = shape_.variable_c ? shares + n * plan_.tile : nullptr;
    const Checkpoint& start = checkpoint(task, first, index)[n];
    scan.states[0] = start.state;
    const MemoryLanes& adjoint = scan.adjoint->long_memory.memory();
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      scan.memory.is_long[lane] = std::max(start.memory.is_long[lane], adjoint.is_long[lane]);
      scan.memory.alike[lane] = std::max(start.memory.alike[lane], adjoint.alike[lane]);
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
    ChannelLanes& sums = channels_[block_of(task, first)];
    StepFinish finish{.D = of_channels(inputs_, "D", first, tile.channels),
                      .dD = sums.dD,
                      .ddelta_bias = sums.ddelta_bias,
                      .alike = tile.alike,
                      .dstate = shape_.dstate,
                      .output_factor = output_factor(),
                      .saved_error = saved_error_,
                      .has_D = shape_.has_D,
                      .has_z = shape_.has_z};
    finish_steps(finish, tile.count, tile.steps.data());
    sums = {finish.dD, finish.ddelta_bias};
    const std::int64_t at = sequence_at(task, first, index);
    store_sequence("du", at, tile, &StepLanes::du);
    store_sequence("ddelta", at, tile, &StepLanes::ddelta);
    if (shape_.has_z) store_sequence("dz", at, tile, &StepLanes::y);
  }

  std::int64_t sequence_at(const Task& task, std::int64_t first, std::int64_t index) const {
    return (task.batch * range_.count() + first - range_.begin) * shape_.seqlen + index * plan_.tile;
  }

  /// Asks for the lines that store_sequence will write, early enough for them to come from memory.
  void prefetch_steps(const char* name, const Task& task, std::int64_t first, std::int64_t index,
                      const Tile<T>& tile) const {
    const auto output = outputs_.find(name);
    if (output == outputs_.end()) return;
    for (std::int64_t lane = 0; lane < tile.channels; ++lane) {
      const std::int64_t at = sequence_at(task, first + lane, index);
      prefetch_row(output->second.expected.data() + at, tile.count * std::int64_t{sizeof(double)});
      prefetch_row(output->second.bound.data() + at, tile.count * std::int64_t{sizeof(float)});
    }
  }

  /// The tile's steps of a gradient whose first element is `at`. All lanes of some steps, then of the next: a
  /// step's lie in one cache line, and steps in lines that are far apart.
  void store_sequence(const char* name, std::int64_t at, const Tile<T>& tile,
                      SumLanes<double> StepLanes::*gradient) {
    constexpr std::int64_t kSteps = 8;
    ReferenceOutput& output = outputs_.at(name);
    for (std::int64_t begin = 0; begin < tile.count; begin += kSteps) {
      const std::int64_t end = std::min(begin + kSteps, tile.count);
      for (std::int64_t lane = 0; lane < tile.channels; ++lane) {
        double* expected = output.expected.data() + at + lane * shape_.seqlen;
        float* bound = output.bound.data() + at + lane * shape_.seqlen;
        for (std::int64_t t = begin; t < end; ++t) {
          const RoundedLanes<double>& got = (tile.steps[t].*gradient).total;
          expected[t] = got.value.value[lane];
          bound[t] = static_cast<float>(got.error[lane]);
        }
      }
    }
  }

  /// Adds the slabs' shares of dB and dC in order. `row` counts (batch, group of the range, state).
  void add_shares(std::int64_t row, std::int64_t tile) {
    if (!shape_.variable_b && !shape_.variable_c) return;
    const std::int64_t n = row % shape_.dstate;
    const std::int64_t group = groups_.begin + row / shape_.dstate % groups_.count();
    const std::int64_t in_wave = row / (shape_.dstate * groups_.count());
    const std::int64_t batch = first_batch_ + in_wave;
    const std::int64_t steps = plan_.steps_in(tile);
    const std::int64_t begun_at = (batch * shape_.dstate + n) * shape_.seqlen + tile * plan_.tile;
    std::vector<ProjectionSums<T>> sums(static_cast<std::size_t>(steps));
    const std::int64_t first_slab = group * plan_.slabs;
    if (slabs_.begin > first_slab) std::copy_n(over_channels_.begun.begin() + begun_at, steps, sums.begin());
    for (std::int64_t slab = std::max(slabs_.begin, first_slab);
         slab < std::min(slabs_.end, first_slab + plan_.slabs); ++slab) {
      const std::int64_t place = in_wave * slabs_.count() + slab - slabs_.begin;
      const auto* shares = shares_.data() + (place * shape_.dstate + n) * plan_.tile;
      for (std::int64_t t = 0; t < steps; ++t) {
        sums[t].dB.add(shares[t].dB);
        sums[t].dC.add(shares[t].dC);
      }
    }
    if (slabs_.end < first_slab + plan_.slabs) {
      std::ranges::copy(sums, begun_.begin() + begun_at);
      return;
    }
    const std::int64_t start =
        ((batch * shape_.groups + group) * shape_.dstate + n) * shape_.seqlen + tile * plan_.tile;
    const auto store_all = [&](const char* name, Sum<T> ProjectionSums<T>::*sum) {
      ReferenceOutput& output = over_channels_.outputs.at(name);
      for (std::int64_t t = 0; t < steps; ++t)
        store(output, start + t, (sums[t].*sum).over(shape_.channels_per_group()));
    };
    if (shape_.variable_b) store_all("dB", &ProjectionSums<T>::dB);
    if (shape_.variable_c) store_all("dC", &ProjectionSums<T>::dC);
  }

  /// dinitial_state, and the batches' sums in order.
  void finish_wave() {
    for (std::int64_t i = 0; i < tasks(); ++i) {
      const Task of_wave = task(i);
      for (std::int64_t channel = of_wave.first; channel < of_wave.last; ++channel)
        finish_channel(of_wave, channel);
    }
  }

  void finish_channel(const Task& task, std::int64_t channel) {
    const std::int64_t block = block_of(task, channel);
    const std::int64_t lane = (channel - task.first) % kLanes;
    const std::int64_t in_range = channel - range_.begin;
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      const AdjointLanes<T>& adjoint = adjoints_[block * shape_.dstate + n];
      StateSums& totals = totals_[in_range * shape_.dstate + n];
      totals.dA.add(adjoint.dA.get(lane));
      totals.dB.add(adjoint.dB.get(lane));
      totals.dC.add(adjoint.dC.get(lane));
      if (shape_.has_initial_state)
        store(outputs_.at("dinitial_state"), (task.batch * range_.count() + in_range) * shape_.dstate + n,
              adjoint.carry.get(lane));
    }
    channel_totals_[in_range].dD.add(channels_[block].dD.get(lane));
    channel_totals_[in_range].ddelta_bias.add(channels_[block].ddelta_bias.get(lane));
  }

  void store_totals() {
    const std::int64_t steps = shape_.batch * shape_.seqlen;
    for (std::int64_t i = 0; i < range_.count() * shape_.dstate; ++i) {
      store(outputs_.at("dA"), i, totals_[i].dA.over(3 * steps));
      if (!shape_.variable_b) store(outputs_.at("dB"), i, totals_[i].dB.over(steps));
      if (!shape_.variable_c) store(outputs_.at("dC"), i, totals_[i].dC.over(steps));
    }
    for (std::int64_t channel = 0; channel < range_.count(); ++channel) {
      if (shape_.has_D) store(outputs_.at("dD"), channel, channel_totals_[channel].dD.over(steps));
      if (shape_.has_delta_bias)
        store(outputs_.at("ddelta_bias"), channel, channel_totals_[channel].ddelta_bias.over(steps));
    }
  }

  BackwardPlan plan_;
  const SelectiveScan& shape_;
  const TensorSet& inputs_;
  const TensorView* x_;  // null where there is none
  IndexRange range_;     // of channels
  IndexRange slabs_;     // the same as slabs of the plan, over all groups
  IndexRange groups_{slabs_.begin / plan_.slabs, (slabs_.end - 1) / plan_.slabs + 1};
  ReferenceOutputs& outputs_;
  OverChannels<T>& over_channels_;
  const std::atomic<bool>& stop_;
  /// dz may be made from the y that the forward pass saved in the io dtype, as mamba_ssm's is: one rounding
  /// of it, halved because tolerances take twice the bound (verify/tolerance.h).
  double saved_error_;
  std::int64_t first_batch_ = 0, batches_ = 0;
  std::int64_t blocks_;                      // of channels, in a task
  std::vector<ChannelLanes> channels_;       // [task][block]
  std::vector<AdjointLanes<T>> adjoints_;    // [task][block][state]
  std::vector<Checkpoint> checkpoints_;      // [tile][task][block][state]
  std::vector<ProjectionSums<T>> shares_;    // [task][state][step of the tile]
  std::vector<StateSums> totals_;            // [channel][state]
  std::vector<ChannelSums> channel_totals_;  // [channel]
  std::vector<ProjectionSums<T>> begun_;     // what OverChannels has after this range
};

constexpr char kChannelLetter = 'd';

bool is_of_channels(const TensorSpec& output) {
  return output.axes.find(kChannelLetter) != std::string::npos;
}

/// What the box has of outputs, of those of channels or of the others, zeros.
ReferenceOutputs empty_outputs(const Problem& problem, const Box& box, bool of_channels) {
  ReferenceOutputs outputs;
  Zeros arrays;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output || is_of_channels(tensor) != of_channels) continue;
    ReferenceOutput& output = outputs[tensor.name];
    output.shape = part_of(tensor, box).shape;
    if (tensor.dtype == DType::c64) output.shape.push_back(2);
    const auto count = static_cast<std::size_t>(element_count(output.shape));
    arrays.add(output.expected, count);
    arrays.add(output.bound, count);
  }
  arrays.fill();
  return outputs;
}

/// Bitwise the same for any number of threads.
template <class T>
class BackwardByChannels : public ReferenceByChannels {
 public:
  BackwardByChannels(const Problem& problem, const TensorSet& inputs)
      : problem_(problem), inputs_(inputs), over_channels_{empty_outputs(problem, {}, false)} {}

  ReferenceOutputs compute(const IndexRange& channels, const std::atomic<bool>& stop) override {
    ReferenceOutputs outputs = empty_outputs(problem_, {{kChannelLetter, channels}}, true);
    Backward<T>(problem_, inputs_, channels, outputs, over_channels_, stop).run();
    if (stop) throw Interrupted();
    if (channels.end == SelectiveScan(problem_).dim) outputs.merge(over_channels_.outputs);
    return outputs;
  }

 private:
  const Problem& problem_;
  const TensorSet& inputs_;
  OverChannels<T> over_channels_;
};

std::unique_ptr<ReferenceByChannels> start_backward(const Problem& problem, const TensorSet& inputs) {
  if (SelectiveScan(problem).complex)
    return std::make_unique<BackwardByChannels<std::complex<double>>>(problem, inputs);
  return std::make_unique<BackwardByChannels<double>>(problem, inputs);
}

/// ChannelReference::cuts: the plan's slabs.
std::vector<std::int64_t> backward_cuts(const Problem& problem) {
  const BackwardPlan plan(SelectiveScan(problem), has_x(problem));
  std::vector<std::int64_t> all;
  for (std::int64_t slab = 0; slab < plan.shape.groups * plan.slabs; ++slab)
    all.push_back(plan.task(0, slab, 0).first);
  all.push_back(plan.shape.dim);
  return all;
}

/// Checkpoints, sums and each thread's tile beside the outputs.
std::size_t bytes_of_backward(const Problem& problem, std::int64_t channels) {
  const BackwardPlan plan(SelectiveScan(problem), has_x(problem));
  const int threads = omp_get_max_threads();
  const std::size_t working = plan.shape.complex
                                  ? Backward<std::complex<double>>::working_bytes(plan, channels, threads)
                                  : Backward<double>::working_bytes(plan, channels, threads);
  const Box box{{kChannelLetter, {0, channels}}};
  return working + output_bytes(problem, box, [](const TensorSpec&) { return false; });
}

/// dz has a bound for a y that was rounded to the dtype.
bool depends_on_dtype(const Problem& problem) {
  return SelectiveScan(problem).has_z && problem.dtype() != DType::f32;
}

const ReferenceRegistration backward_registration({.op = "selective_scan_bwd",
                                                   .by_channels = ChannelReference{.letter = kChannelLetter,
                                                                                   .cuts = backward_cuts,
                                                                                   .bytes = bytes_of_backward,
                                                                                   .start = start_backward},
                                                   .depends_on_dtype = depends_on_dtype});

}  // namespace
}  // namespace ssmbench
