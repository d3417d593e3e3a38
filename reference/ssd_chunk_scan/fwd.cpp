#include <algorithm>

#include "base/errors.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/sequences.h"
#include "reference/common/activations.h"
#include "reference/common/lane_math.h"
#include "reference/common/sequences.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/bounds.h"

namespace ssmbench {
namespace {

/// One head of one sequence after the other, each with its own state. Outputs are those of `heads`.
class Forward {
 public:
  Forward(const Problem& problem, const TensorSet& inputs, const IndexRange& heads, ReferenceOutputs& outputs)
      : scan_(problem),
        inputs_(inputs),
        heads_(heads),
        out_(outputs.at("out")),
        final_states_(scan_.has_final_states ? &outputs.at("final_states") : nullptr),
        stops_(SsdSequences(problem).stops),
        states_at_(stops_ > 0 ? static_cast<const std::int32_t*>(inputs.at("states_at").data) : nullptr),
        states_(stops_ > 0 ? &outputs.at("states") : nullptr),
        roundings_(roundings_of_sum(scan_.dstate)),
        least_operand_(least_operand(problem.dtype())),
        pass_(scan_.headdim, scan_.dstate, false),
        initial_(scan_.has_initial_states ? scan_.headdim * scan_.dstate : 0),
        x_(kSsdTileSteps, scan_.headdim),
        z_(kSsdTileSteps, scan_.headdim),
        z_exp_(kSsdTileSteps, scan_.headdim),
        v_(kSsdTileSteps, scan_.headdim),
        v_error_(kSsdTileSteps, scan_.headdim),
        B_(kSsdTileSteps, scan_.dstate),
        C_(kSsdTileSteps, scan_.dstate) {}

  /// Sequence `index` of all.
  void run(const SsdStretch& sequence, std::int64_t index, std::int64_t head, const std::atomic<bool>& stop) {
    begin_ = sequence.begin;
    const auto steps = ssd_steps(scan_, inputs_, sequence, head);
    pass_.clear();
    if (scan_.has_initial_states) {
      const TensorView& states = inputs_.at("initial_states");
      for (std::size_t i = 0; i < initial_.size(); ++i)
        initial_[i] = static_cast<float>(
            load_as_double(states.data, state_at(index, head) + static_cast<std::int64_t>(i), states.dtype));
      pass_.start_from(initial_.data());
    }
    for (std::int64_t start = 0; start < sequence.steps && !stop;) {
      if (steps[start].starts) pass_.clear();
      SsdTile tile{.v = v_, .v_error = v_error_, .w = B_, .r = C_, .q = x_, .least_operand = least_operand_};
      std::int64_t t = start;
      do {
        tile.decay[tile.steps] = steps[t].decay;
        tile.decay_error[tile.steps] = steps[t].decay_error;
        tile.cumulative_error[tile.steps] = t == 0 ? 0 : steps[t - 1].cumulative_error;
        tile.least_product[tile.steps] = SsdFloor::of_step(least_operand_, steps[t].delta.value);
        load_step(head, t, tile.steps, steps[t].delta);
        ++tile.steps;
        ++t;
      } while (t < sequence.steps && tile.steps < kSsdTileSteps && !steps[t].starts && !is_stop(t - 1));
      if (scan_.has_z) exp_of_minus_size(z_.data(), tile.steps * z_.stride(), z_exp_.data());
      pass_.advance(tile);
      for (std::int64_t i = 0; i < tile.steps; ++i) store_step(head, start + i, i);
      for (std::int64_t k = 0; k < stops_; ++k)
        if (states_at_[k] == begin_ + t - 1) store_states(*states_, state_of_heads(k, head), t);
      start = t;
    }
    if (final_states_ != nullptr && !stop)
      store_states(*final_states_, state_of_heads(index, head), sequence.steps);
  }

 private:
  std::int64_t state_at(std::int64_t index, std::int64_t head) const {
    return (index * scan_.nheads + head) * scan_.headdim * scan_.dstate;
  }
  /// The same among those of the heads at hand.
  std::int64_t state_of_heads(std::int64_t index, std::int64_t head) const {
    return (index * heads_.count() + head - heads_.begin) * scan_.headdim * scan_.dstate;
  }
  std::int64_t row_at(std::int64_t head, std::int64_t t) const {
    return ((begin_ + t) * scan_.nheads + head) * scan_.headdim;
  }

  /// Step t as the tile's step `into`.
  void load_step(std::int64_t head, std::int64_t t, std::int64_t into, const Rounded<double>& delta) {
    const std::int64_t row = row_at(head, t);
    load_row(inputs_.at("x"), row, scan_.headdim, x_.row(into));
    if (scan_.has_z) load_row(inputs_.at("z"), row, scan_.headdim, z_.row(into));
    const std::int64_t group = head / scan_.heads_per_group();
    const std::int64_t projection = ((begin_ + t) * scan_.groups + group) * scan_.dstate;
    load_row(inputs_.at("B"), projection, scan_.dstate, B_.row(into));
    load_row(inputs_.at("C"), projection, scan_.dstate, C_.row(into));
    const double* x = x_.row(into);
    double* v = v_.row(into);
    double* v_error = v_error_.row(into);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      v[p] = delta.value * x[p];
      v_error[p] = std::abs(x[p]) * delta.error + 2 * std::abs(v[p]);
    }
  }

  /// out = (y + D·x)·silu(z).
  void store_step(std::int64_t head, std::int64_t t, std::int64_t from) {
    const std::int64_t row = ((begin_ + t) * heads_.count() + head - heads_.begin) * scan_.headdim;
    const SsdSkips skips(scan_, inputs_, head);
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      SsdRead sum = read(pass_.of_states(), from, p, roundings_, skips[p] * x_.row(from)[p]);
      if (scan_.has_z) {
        const Rounded<double> gate = gate_of(z_.row(from)[p], z_exp_.row(from)[p]).value;
        const double factor = std::abs(gate.value);
        sum.error = factor * sum.error + std::abs(sum.value) * (gate.error + factor);
        sum.operand_error *= factor;
        sum.value *= gate.value;
      }
      store(out_, row + p, sum.value, sum.error, sum.operand_error);
    }
  }

  /// Whether the state after step t of the sequence is wanted.
  bool is_stop(std::int64_t t) const {
    return std::find(states_at_, states_at_ + stops_, begin_ + t) != states_at_ + stops_;
  }

  /// After `steps` steps. The state of a sequence without steps is the one that it starts from, exactly.
  void store_states(ReferenceOutput& output, std::int64_t first, std::int64_t steps) {
    const bool is_exact = steps == 0;
    const double roundings = 2 + std::sqrt(static_cast<double>(kLongestChunk));
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      for (std::int64_t n = 0; n < scan_.dstate; ++n)
        store(output, first + p * scan_.dstate + n, pass_.state(p, n),
              is_exact ? 0 : pass_.error(p, n) + roundings * pass_.magnitude(p, n),
              is_exact ? 0 : operand_bound(pass_.variance(n), pass_.state(p, n)));
  }

  SsdChunkScan scan_;
  const TensorSet& inputs_;
  IndexRange heads_;
  ReferenceOutput& out_;
  ReferenceOutput* final_states_;
  std::int64_t stops_;
  const std::int32_t* states_at_;  // null where there are none
  ReferenceOutput* states_;
  double roundings_;  // of a sum over states
  double least_operand_;
  std::int64_t begin_ = 0;  // first step of the sequence
  SsdPass pass_;
  std::vector<float> initial_;                      // the state that enters, exact in any dtype
  PaddedRows<double> x_, z_, z_exp_, v_, v_error_;  // of the tile's steps, [step][head dim]
  PaddedRows<double> B_, C_;                        // [step][state]
};

/// Where all sequences are. Throws ContractError for cu_seqlens that mean nothing.
std::vector<SsdStretch> sequences_of(const Problem& problem, const TensorSet& inputs) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  std::vector<SsdStretch> all;
  if (!sequences.packed) {
    for (std::int64_t m = 0; m < sequences.count; ++m) all.push_back({m * scan.seqlen, scan.seqlen});
    return all;
  }
  for (const auto& range : packed_sequences(inputs.at("cu_seqlens"), scan.seqlen))
    all.push_back({range.begin, range.steps});
  for (std::int64_t k = 0; k < sequences.stops; ++k)
    if (const std::int32_t step = static_cast<const std::int32_t*>(inputs.at("states_at").data)[k];
        step < 0 || step >= scan.seqlen)
      throw ContractError("states_at " + std::to_string(step) + ": there are steps 0 to " +
                          std::to_string(scan.seqlen - 1));
  return all;
}

/// The sequential recurrence, whatever the chunk_size.
class ForwardByHeads : public ReferenceByChannels {
 public:
  ForwardByHeads(const Problem& problem, const TensorSet& inputs)
      : problem_(problem), inputs_(inputs), sequences_(sequences_of(problem, inputs)) {}

  ReferenceOutputs compute(const IndexRange& heads, const std::atomic<bool>& stop) override {
    ReferenceOutputs outputs = empty_ssd_outputs(problem_, ssd_heads(heads));
#pragma omp parallel
    {
      Forward forward(problem_, inputs_, heads, outputs);
#pragma omp for schedule(dynamic)
      for (std::int64_t row = 0; row < std::ssize(sequences_) * heads.count(); ++row)
        if (!stop) {
          const std::int64_t index = row / heads.count();
          forward.run(sequences_[index], index, heads.begin + row % heads.count(), stop);
        }
    }
    if (stop) throw Interrupted();
    return outputs;
  }

 private:
  const Problem& problem_;
  const TensorSet& inputs_;
  std::vector<SsdStretch> sequences_;
};

std::size_t bytes_of_forward(const Problem& problem, std::int64_t heads) {
  return output_bytes(problem, ssd_heads({0, heads}), [](const TensorSpec&) { return true; });
}

std::unique_ptr<ReferenceByChannels> start_forward(const Problem& problem, const TensorSet& inputs) {
  return std::make_unique<ForwardByHeads>(problem, inputs);
}

const ReferenceRegistration forward_registration({.op = "ssd_chunk_scan_fwd",
                                                  .by_channels = ChannelReference{.letter = 'h',
                                                                                  .cuts = ssd_cuts,
                                                                                  .bytes = bytes_of_forward,
                                                                                  .start = start_forward},
                                                  .depends_on_dtype = has_least_operand});

}  // namespace
}  // namespace ssmbench
