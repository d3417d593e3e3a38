
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/errors.h"
#include "inputs/packed_sequences.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/selective_scan/x.h"
#include "reference/common/activations.h"
#include "reference/common/lane_math.h"
#include "reference/common/with_loader.h"
#include "reference/reference.h"
#include "reference/selective_scan/dense.h"
#include "reference/selective_scan/sequences.h"
#include "reference/selective_scan/step.h"
#include "reference/selective_scan/tile.h"

namespace ssmbench {
namespace {

double load(const TensorView& view, std::int64_t at, double /*type*/) {
  return load_as_double(view.data, at, view.dtype);
}
std::complex<double> load(const TensorView& view, std::int64_t at, std::complex<double> /*type*/) {
  return static_cast<const std::complex<float>*>(view.data)[at];
}

/// A value of a c64 output is stored as two, one of a real output as one.
void store(ReferenceOutput& to, std::int64_t at, double value, double error) {
  to.expected[at] = value;
  to.bound[at] = static_cast<float>(error);
}
void store(ReferenceOutput& to, std::int64_t at, std::complex<double> value, double error) {
  store(to, 2 * at, value.real(), error);
  store(to, 2 * at + 1, value.imag(), error);
}

/// ChannelReference::cuts: blocks of kBlockChannels channels of a group.
std::vector<std::int64_t> forward_cuts(const Problem& problem) {
  const SelectiveScan shape(problem);
  if (shape.dense) return {0, shape.dim};  // all at once
  std::vector<std::int64_t> all;
  for (std::int64_t group = 0; group < shape.groups; ++group)
    for (std::int64_t first = 0; first < shape.channels_per_group(); first += kBlockChannels)
      all.push_back(group * shape.channels_per_group() + first);
  all.push_back(shape.dim);
  return all;
}

/// The scan of one problem, S = double or std::complex<double>; run(block) does a block of channels. Outputs
/// are those of `channels`.
template <class S>
class Scan {
 public:
  /// `x`: null where there is none.
  Scan(const Problem& problem, const TensorSet& inputs, const IndexRange& channels, ReferenceOutput& out,
       ReferenceOutput& last_state, ReferenceOutput* x)
      : shape_(problem),
        sequences_(scan_sequences(problem, inputs)),
        inputs_(inputs),
        channels_(channels),
        out_(out),
        last_state_(last_state),
        x_(x) {
    for (const std::int64_t cut : forward_cuts(problem))
      if (cut >= channels.begin && cut < channels.end) firsts_.push_back(cut);
  }

  std::int64_t blocks() const { return std::ssize(sequences_) * std::ssize(firsts_); }

  void run(std::int64_t block, const std::atomic<bool>& stop) {
    const std::int64_t index = block / std::ssize(firsts_);
    const ScanSequence& sequence = sequences_[static_cast<std::size_t>(index)];
    const std::int64_t first = firsts_[static_cast<std::size_t>(block % std::ssize(firsts_))];
    const std::int64_t group = first / shape_.channels_per_group();
    Block place{.batch = sequence.batch,
                .index = index,
                .begin = sequence.begin,
                .group = group,
                .first_channel = first,
                .channels = std::min(kBlockChannels, (group + 1) * shape_.channels_per_group() - first)};

    std::vector<ScanState<S>> states(shape_.dstate);
    std::vector<S> A(shape_.dstate * kBlockChannels);
    load_states(place, states, A);
    const Projection B(inputs_.at("B"), shape_.variable_b, shape_.dstate);
    const Projection C(inputs_.at("C"), shape_.variable_c, shape_.dstate);
    std::vector<S> b_values(B.tile_size());
    std::vector<S> c_values(C.tile_size());
    const auto tile = std::make_unique<ScanTile>();
    const auto numbers = std::make_unique<Numbers>();

    for (std::int64_t start = sequence.begin; start < sequence.end && !stop; start += kTileSteps) {
      tile->steps = std::min(kTileSteps, sequence.end - start);
      load_steps(place, start, *tile, *numbers);
      B.load(place, start, tile->steps, b_values);
      C.load(place, start, tile->steps, c_values);
      if (x_ != nullptr) store_x(place, start, *tile, states, A, B, b_values);
      for (std::int64_t n = 0; n < shape_.dstate; ++n)
        scan_tile(*tile, states[n], A.data() + n * kBlockChannels, B.of_state(b_values, n),
                  C.of_state(c_values, n));
      store_steps(place, start, *tile, *numbers);
    }
    store_states(place, states);
  }

 private:
  struct Block {
    std::int64_t batch;
    std::int64_t index, begin;  ///< of the sequence, its first step
    std::int64_t group, first_channel, channels;
  };

  /// Arguments of elementary functions and what they give, [time][channel].
  struct Numbers {
    double x[kTileSteps * kBlockChannels] = {};
    double exp[kTileSteps * kBlockChannels];    ///< e^-|x|
    double log1p[kTileSteps * kBlockChannels];  ///< log(1 + e^-|x|)
  };

  /// B or C: brings a tile of it to fp64 as [state][time] when variable, [state][channel] when constant.
  class Projection {
   public:
    Projection(const TensorView& view, bool variable, std::int64_t dstate)
        : view_(view), variable_(variable), dstate_(dstate) {}

    std::int64_t tile_size() const { return dstate_ * row(); }
    Coefficients<S> of_state(const std::vector<S>& values, std::int64_t n) const {
      return {values.data() + n * row(), variable_ ? 1 : 0, variable_ ? 0 : 1};
    }

    void load(const Block& place, std::int64_t start, std::int64_t steps, std::vector<S>& values) const {
      const auto& s = view_.strides;
      if (!variable_ && start > place.begin) return;  // the same at every step
      const std::int64_t first =
          variable_ ? place.batch * s[0] + place.group * s[1] + start * s[3] : place.first_channel * s[0];
      const std::int64_t of_state = variable_ ? s[2] : s[1];
      const std::int64_t step = variable_ ? s[3] : s[0];
      const std::int64_t count = variable_ ? steps : place.channels;
      for (std::int64_t n = 0; n < dstate_; ++n)
        for (std::int64_t i = 0; i < count; ++i)
          values[n * row() + i] = ssmbench::load(view_, first + n * of_state + i * step, S());
    }

   private:
    std::int64_t row() const { return variable_ ? kTileSteps : kBlockChannels; }

    const TensorView& view_;
    bool variable_;
    std::int64_t dstate_;
  };

  const float* floats(const char* name) const {
    const TensorView* view = inputs_.find(name);
    return view == nullptr ? nullptr : static_cast<const float*>(view->data);
  }

  void scan_tile(ScanTile& tile, ScanState<S>& state, const S* A, Coefficients<S> B,
                 Coefficients<S> C) const {
    if (shape_.method == MethodId::zoh) return scan_tile_zoh(tile, state, A, B, C);
    scan_tile_by(shape_.method, tile, state, A, B, C);
  }

  void load_states(const Block& place, std::vector<ScanState<S>>& states, std::vector<S>& A) const {
    const TensorView& decay = inputs_.at("A");
    const TensorView* initial = inputs_.find("initial_state");
    for (std::int64_t n = 0; n < shape_.dstate; ++n) {
      for (std::int64_t c = 0; c < place.channels; ++c) {
        const std::int64_t channel = place.first_channel + c;
        A[n * kBlockChannels + c] = ssmbench::load(decay, channel * shape_.dstate + n, S());
        if (initial == nullptr) continue;
        const std::int64_t at = (place.index * shape_.dim + channel) * shape_.dstate + n;
        states[n].h[c] = ssmbench::load(*initial, at, S());
        states[n].magnitude[c] = std::abs(states[n].h[c]);
      }
    }
  }

  /// Calls visit(position in the tile, element offset) for all elements of a (B, D, L) tensor in the tile.
  template <class Visit>
  void for_each_step(const Block& place, std::int64_t start, std::int64_t steps, const Shape& strides,
                     const Visit& visit) const {
    for (std::int64_t c = 0; c < place.channels; ++c) {
      std::int64_t offset =
          place.batch * strides[0] + (place.first_channel + c) * strides[1] + start * strides[2];
      for (std::int64_t t = 0; t < steps; ++t, offset += strides[2]) visit(t * kBlockChannels + c, offset, c);
    }
  }

  /// Brings an input (B, D, L) in; lanes past the last channel keep what they hold.
  void load_numbers(const TensorView& view, const Block& place, std::int64_t start, std::int64_t steps,
                    double* into) const {
    with_loader(view.dtype, [&](auto value_at) {
      for_each_step(place, start, steps, view.strides,
                    [&](std::int64_t at, std::int64_t offset, std::int64_t /*channel*/) {
                      into[at] = value_at(view.data, offset);
                    });
    });
  }

  void load_steps(const Block& place, std::int64_t start, ScanTile& tile, Numbers& numbers) const {
    const float* bias = floats("delta_bias");
    const std::int64_t count = tile.steps * kBlockChannels;
    // Lanes past the last channel stay at u = 0: harmless numbers that are never stored.
    std::fill_n(tile.u, count, 0.0);
    std::fill_n(tile.y, count, 0.0);
    std::fill_n(tile.y_magnitude, count, 0.0);
    std::fill_n(tile.y_error, count, 0.0);
    std::fill_n(tile.y_response, count, 0.0);
    load_numbers(inputs_.at("u"), place, start, tile.steps, tile.u);
    load_numbers(inputs_.at("delta"), place, start, tile.steps, numbers.x);
    for (std::int64_t c = 0; c < place.channels && bias != nullptr; ++c)
      for (std::int64_t t = 0; t < tile.steps; ++t)
        numbers.x[t * kBlockChannels + c] += bias[place.first_channel + c];
    if (shape_.delta_softplus) {
      exp_of_minus_size(numbers.x, count, numbers.exp);
      log1p_of(numbers.exp, count, numbers.log1p);
    }
    for (std::int64_t at = 0; at < count; ++at) {
      const Rounded<double> delta =
          shape_.delta_softplus
              ? softplus_of(numbers.x[at], bias != nullptr, numbers.exp[at], numbers.log1p[at]).delta
              : step_of(numbers.x[at], 0, bias != nullptr, false).delta;
      tile.delta[at] = delta.value;
      tile.delta_error[at] = delta.value == 0 ? 0 : delta.error / std::abs(delta.value);
      tile.delta_u[at] = delta.value * tile.u[at];
    }
  }

  void store_steps(const Block& place, std::int64_t start, const ScanTile& tile, Numbers& numbers) {
    const TensorView& u = inputs_.at("u");
    const TensorView* z = inputs_.find("z");
    const float* skip = floats("D");
    const double roundings = roundings_of_output(shape_.dstate);
    if (z != nullptr) {
      load_numbers(*z, place, start, tile.steps, numbers.x);
      exp_of_minus_size(numbers.x, tile.steps * kBlockChannels, numbers.exp);
    }
    for_each_step(
        place, start, tile.steps, u.strides, [&](std::int64_t at, std::int64_t /*offset*/, std::int64_t c) {
          const std::int64_t channel = place.first_channel + c;
          const double term = skip != nullptr ? skip[channel] * tile.u[at] : 0;
          Rounded<double> gate;
          if (z != nullptr) gate = gate_of(numbers.x[at], numbers.exp[at]).value;
          const BoundedValue out =
              scan_output({tile.y[at], tile.y_magnitude[at], tile.y_error[at], tile.y_response[at]},
                          roundings, skip != nullptr ? &term : nullptr, z != nullptr ? &gate : nullptr);
          const std::int64_t element =
              (place.batch * channels_.count() + channel - channels_.begin) * shape_.seqlen + start +
              at / kBlockChannels;
          store(out_, element, out.value, out.error);
          if (!out_.decay_response.empty()) out_.decay_response[element] = static_cast<float>(out.response);
        });
  }

  /// The states on the way through a tile, from those before it: a scan of their own, which leaves the
  /// others' bounds as they are without x.
  void store_x(const Block& place, std::int64_t start, const ScanTile& tile, std::vector<ScanState<S>> states,
               const std::vector<S>& A, const Projection& B, const std::vector<S>& b_values) {
    const auto part = std::make_unique<ScanTile>();
    for (std::int64_t first = 0; first < tile.steps; first += kStepsOfX) {
      part->steps = std::min(kStepsOfX, tile.steps - first);
      for (auto numbers : {&ScanTile::u, &ScanTile::delta, &ScanTile::delta_error, &ScanTile::delta_u})
        std::copy_n(tile.*numbers + first * kBlockChannels, part->steps * kBlockChannels, (*part).*numbers);
      const std::int64_t row =
          (place.index * ((shape_.seqlen + kStepsOfX - 1) / kStepsOfX) + (start + first) / kStepsOfX) *
          channels_.count();
      for (std::int64_t n = 0; n < shape_.dstate; ++n) {
        for (std::int64_t c = 0; c < place.channels; ++c)
          store(*x_, (row + place.first_channel + c - channels_.begin) * shape_.dstate + n, states[n].h[c],
                states[n].bound(c));
        Coefficients<S> b = B.of_state(b_values, n);
        b.data += first * b.time;
        scan_tile(*part, states[n], A.data() + n * kBlockChannels, b, b);
      }
    }
  }

  void store_states(const Block& place, const std::vector<ScanState<S>>& states) {
    for (std::int64_t c = 0; c < place.channels; ++c) {
      for (std::int64_t n = 0; n < shape_.dstate; ++n) {
        const std::int64_t channel = place.first_channel + c - channels_.begin;
        const std::int64_t element = (place.index * channels_.count() + channel) * shape_.dstate + n;
        store(last_state_, element, states[n].h[c], states[n].bound(c));
      }
    }
  }

  SelectiveScan shape_;
  std::vector<ScanSequence> sequences_;
  const TensorSet& inputs_;
  IndexRange channels_;
  std::vector<std::int64_t> firsts_;  // of the blocks
  ReferenceOutput& out_;
  ReferenceOutput& last_state_;
  ReferenceOutput* x_;  // null where there is none
};

template <class S>
void scan_all(const Problem& problem, const TensorSet& inputs, const IndexRange& channels,
              ReferenceOutput& out, ReferenceOutput& last_state, ReferenceOutput* x,
              const std::atomic<bool>& stop) {
  Scan<S> scan(problem, inputs, channels, out, last_state, x);
  const std::int64_t blocks = scan.blocks();
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t block = 0; block < blocks; ++block)
    if (!stop) scan.run(block, stop);
  if (stop) throw Interrupted();
}

bool has_response(const SelectiveScan& shape) {
  return shape.batch * shape.dim * shape.seqlen <= kMostResponses;
}

/// Sequential in time, threads over blocks of channels, SIMD lanes over the channels of a block.
class ForwardByChannels : public ReferenceByChannels {
 public:
  ForwardByChannels(const Problem& problem, const TensorSet& inputs) : problem_(problem), inputs_(inputs) {}

  ReferenceOutputs compute(const IndexRange& channels, const std::atomic<bool>& stop) override {
    const SelectiveScan shape(problem_);
    if (shape.dense) return selective_scan_dense_reference(problem_, inputs_, stop);
    Shape state_shape{PackedSequences(problem_).count, channels.count(), shape.dstate};
    if (shape.complex) state_shape.push_back(2);
    ReferenceOutputs outputs;
    auto& out = outputs["out"] = empty_output({shape.batch, channels.count(), shape.seqlen});
    auto& last_state = outputs["last_state"] = empty_output(state_shape);
    ReferenceOutput* x = nullptr;
    if (has_x(problem_)) {
      state_shape.insert(state_shape.begin() + 1, (shape.seqlen + kStepsOfX - 1) / kStepsOfX);
      x = &(outputs["x"] = empty_output(state_shape));
    }
    // For out alone: the states of a channel share the errors of few Δ, which would pass for one of the
    // decays.
    if (has_response(shape)) out.decay_response.resize(out.expected.size());
    const auto scan = shape.complex ? scan_all<std::complex<double>> : scan_all<double>;
    scan(problem_, inputs_, channels, out, last_state, x, stop);
    return outputs;
  }

 private:
  const Problem& problem_;
  const TensorSet& inputs_;
};

std::size_t bytes_of_forward(const Problem& problem, std::int64_t channels) {
  const auto is_out = [](const TensorSpec& output) { return output.name == "out"; };
  const auto none = [](const TensorSpec&) { return false; };
  return output_bytes(problem, {{'d', {0, channels}}},
                      has_response(SelectiveScan(problem)) ? +is_out : +none);
}

std::unique_ptr<ReferenceByChannels> start_forward(const Problem& problem, const TensorSet& inputs) {
  return std::make_unique<ForwardByChannels>(problem, inputs);
}

const ReferenceRegistration forward_registration(
    {.op = "selective_scan_fwd",
     .by_channels = ChannelReference{
         .letter = 'd', .cuts = forward_cuts, .bytes = bytes_of_forward, .start = start_forward}});

}  // namespace
}  // namespace ssmbench
