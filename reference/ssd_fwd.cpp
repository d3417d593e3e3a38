#include "reference/ssd_fwd.h"

#include "model/errors.h"
#include "reference/activations.h"
#include "reference/ssd_bounds.h"

namespace ssmbench {
namespace {

/// One (batch, head) after the other, each with its own state.
class Forward {
 public:
  Forward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
      : scan_(problem),
        inputs_(inputs),
        out_(outputs.at("out")),
        final_states_(scan_.has_final_states ? &outputs.at("final_states") : nullptr),
        pass_(scan_.headdim, scan_.dstate, false),
        y_(scan_.headdim),
        x_(scan_.headdim),
        v_(scan_.headdim),
        v_error_(scan_.headdim),
        z_(scan_.headdim),
        B_(scan_.dstate),
        C_(scan_.dstate) {}

  void run(std::int64_t batch, std::int64_t head, const std::atomic<bool>& stop) {
    const auto steps = ssd_steps(scan_, inputs_, batch, head);
    pass_.clear();
    if (scan_.has_initial_states)
      pass_.start_from(static_cast<const float*>(inputs_.at("initial_states").data) + state_at(batch, head));
    double cumulative_error = 0;
    for (std::int64_t t = 0; t < scan_.seqlen && !stop; ++t) {
      if (steps[t].starts) pass_.clear();
      load_step(batch, head, t, steps[t].delta);
      pass_.advance(
          {steps[t].decay, steps[t].decay_error, cumulative_error, v_.data(), v_error_.data(), B_.data()},
          {.r = C_.data(), .of_states = &y_});
      cumulative_error = steps[t].cumulative_error;
      store_step(batch, head, t);
    }
    if (final_states_ != nullptr && !stop) store_states(batch, head);
  }

 private:
  std::int64_t state_at(std::int64_t batch, std::int64_t head) const {
    return (batch * scan_.nheads + head) * scan_.headdim * scan_.dstate;
  }
  std::int64_t row_at(std::int64_t batch, std::int64_t head, std::int64_t t) const {
    return ((batch * scan_.seqlen + t) * scan_.nheads + head) * scan_.headdim;
  }

  void load_step(std::int64_t batch, std::int64_t head, std::int64_t t, const Rounded<double>& delta) {
    const std::int64_t row = row_at(batch, head, t);
    load_row(inputs_.at("x"), row, scan_.headdim, x_.data());
    if (scan_.has_z) load_row(inputs_.at("z"), row, scan_.headdim, z_.data());
    const std::int64_t group = head / scan_.heads_per_group();
    const std::int64_t projection = ((batch * scan_.seqlen + t) * scan_.groups + group) * scan_.dstate;
    load_row(inputs_.at("B"), projection, scan_.dstate, B_.data());
    load_row(inputs_.at("C"), projection, scan_.dstate, C_.data());
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      v_[p] = delta.value * x_[p];
      v_error_[p] = std::abs(x_[p]) * delta.error + 2 * std::abs(v_[p]);
    }
  }

  /// out = (y + D·x)·silu(z).
  void store_step(std::int64_t batch, std::int64_t head, std::int64_t t) {
    for (std::int64_t p = 0; p < scan_.headdim; ++p) {
      const double skip =
          float_of(inputs_, "D", scan_.skip == SsdSkip::head ? head : head * scan_.headdim + p);
      SsdRead sum = read(y_, p, scan_.dstate, skip * x_[p]);
      if (scan_.has_z) {
        const Rounded<double> gate = gate_of(z_[p]).value;
        const double factor = std::abs(gate.value);
        sum.error = factor * sum.error + std::abs(sum.value) * (gate.error + factor);
        sum.operand_error *= factor;
        sum.value *= gate.value;
      }
      store(out_, row_at(batch, head, t) + p, sum.value, sum.error, sum.operand_error);
    }
  }

  void store_states(std::int64_t batch, std::int64_t head) {
    const double roundings = 2 + std::sqrt(static_cast<double>(kLongestChunk));
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      for (std::int64_t n = 0; n < scan_.dstate; ++n)
        store(*final_states_, state_at(batch, head) + p * scan_.dstate + n, pass_.state(p, n),
              pass_.error(p, n) + roundings * pass_.magnitude(p, n),
              operand_bound(pass_.variance(n), pass_.state(p, n)));
  }

  SsdChunkScan scan_;
  const TensorSet& inputs_;
  ReferenceOutput& out_;
  ReferenceOutput* final_states_;
  SsdPass pass_;
  SsdContraction y_;
  std::vector<double> x_, v_, v_error_, z_, B_, C_;
};

}  // namespace

ReferenceOutputs ssd_chunk_scan_fwd_reference(const Problem& problem, const TensorSet& inputs,
                                              const std::atomic<bool>& stop) {
  const SsdChunkScan scan(problem);
  ReferenceOutputs outputs;
  for (const auto& tensor : problem.tensors())
    if (tensor.role == Role::output) outputs[tensor.name] = empty_ssd_output(tensor.shape);
#pragma omp parallel
  {
    Forward forward(problem, inputs, outputs);
#pragma omp for schedule(dynamic)
    for (std::int64_t row = 0; row < scan.batch * scan.nheads; ++row)
      if (!stop) forward.run(row / scan.nheads, row % scan.nheads, stop);
  }
  if (stop) throw Interrupted();
  return outputs;
}

}  // namespace ssmbench
