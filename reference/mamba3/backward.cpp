#include "reference/mamba3/backward.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/errors.h"

namespace ssmbench::mamba3_gradients {

Backward::Backward(const Problem& problem, const TensorSet& inputs, ReferenceOutputs& outputs)
    : Mamba3Head(problem, inputs, "Input_", true),
      outputs_(outputs),
      dV_(outputs.at("dV")),
      dAngles_(outputs.at("dAngles")),
      dZ_(scan_.has_z ? &outputs.at("dZ") : nullptr),
      over_headdims_(roundings_of_sum(scan_.headdim)),
      tile_(kSsdTileSteps / ((scan_.has_norm ? 4 : 2) * scan_.rank - 1)),
      cosines_(scan_.seqlen * scan_.angles),
      sines_(cosines_.size()),
      drifts_(scan_.seqlen),
      sizes_(scan_.seqlen),
      angle_errors_(scan_.dstate),
      dout_(scan_.rank * scan_.headdim),
      dy_(scan_.seqlen * scan_.rank * scan_.headdim),
      turns_(cosines_.size()),
      owns_(scan_.seqlen),
      alphas_(scan_.seqlen),
      scales_(scan_.seqlen + 1),
      before_sizes_(scan_.seqlen),
      differences_(scan_.seqlen),
      turned_(scan_.seqlen),
      column_(scan_.dstate),
      dQ_(scan_.seqlen * scan_.rank * scan_.dstate),
      dK_(dQ_.value.size()) {
  for (auto& step : tile_) {
    step.q.assign(scan_.rank, Mamba3Vector(scan_.dstate));
    step.k = step.q;
    step.raised.resize(scan_.rank * scan_.headdim);
    step.reading.v.resize(scan_.headdim);
    step.reading.z.resize(scan_.headdim);
  }
}

void Backward::run(const Mamba3Sequence& sequence, std::int64_t first, std::int64_t last, HeadSums* sums,
                   const std::atomic<bool>& stop) {
  dQ_.clear();
  dK_.clear();
  for (std::int64_t head = first; head < last && !stop; ++head) {
    choose(sequence, head);
    if (length() == 0) {
      if (scan_.has_initial_states) pass_through();
      continue;
    }
    sums_ = sums + head;
    steps_ = mamba3_steps(scan_, inputs_, sequence, head);
    turn();
    if (scan_.has_norm)
      go_forward(false, stop);  // for y, of which dy is made
    else
      make_dy();
    go_forward(true, stop);
    go_back(stop);
    store_scalars();
  }
}

void Backward::add_projections() {
  for (const auto& [name, sums] : {std::pair{"dQ", &dQ_}, std::pair{"dK", &dK_}}) {
    ReferenceOutput& to = outputs_.at(name);
    const std::int64_t group = head_ / scan_.heads_per_group();
    for (std::int64_t row = 0; row < length() * scan_.rank; ++row) {
      const std::int64_t time = sequence_.batch * scan_.seqlen + sequence_.begin;
      const std::int64_t at = ((time * scan_.rank + row) * scan_.groups + group) * scan_.dstate;
      for (std::int64_t n = 0; n < scan_.dstate; ++n) {
        const std::int64_t from = row * scan_.dstate + n;
        to.expected[at + n] += sums->value[from];
        to.bound[at + n] += sums->error[from];
        add_variance(to.operand_bound[at + n], sums->variance[from]);
      }
    }
  }
}

void Backward::turn() {
  Mamba3Angles angles(scan_.angles, scan_.has_initial_states
                                        ? floats("Input_Angle_State") + state_at(scan_.angles)
                                        : nullptr);
  std::vector<double> rates(scan_.angles);
  for (std::int64_t i = 0; i < length(); ++i) {
    load_row(inputs_.at("Angles"), step_at(time_of(i)) * scan_.angles, scan_.angles, rates.data());
    angles.advance(steps_[i].dt.value, rates.data());
    std::copy_n(angles.cosines(), scan_.angles, cosines_.begin() + i * scan_.angles);
    std::copy_n(angles.sines(), scan_.angles, sines_.begin() + i * scan_.angles);
    drifts_[i] = angles.drift();
    sizes_[i] = angles.size();
  }
  for (std::int64_t pair = 0; pair < scan_.angles; ++pair)
    angle_errors_[scan_.first_of_pair(pair)] = angle_errors_[scan_.second_of_pair(pair)] = angles.error(pair);
}

void Backward::load_step(std::int64_t i, TileStep& into) {
  const std::int64_t t = time_of(i);
  into.i = i;
  make_vectors(t, cosines_.data() + i * scan_.angles, sines_.data() + i * scan_.angles, into.q, into.k);
  Mamba3Reading& reading = into.reading;
  reading.t = t;
  reading.angle_size = sizes_[i];
  reading.own = steps_[i].own;
  load_row(inputs_.at("V"), step_at(t) * scan_.headdim, scan_.headdim, reading.v.data());
  if (scan_.has_z) load_row(inputs_.at("Z"), step_at(t) * scan_.headdim, scan_.headdim, reading.z.data());
  for (std::int64_t r = 0; r < scan_.rank; ++r)
    for (std::int64_t p = 0; p < scan_.headdim; ++p)
      into.raised[r * scan_.headdim + p] = reading.v[p] * up(r, p);
  reading.scores = scores_of(into.q, into.k);
}

void Backward::make_crosses(TileStep& step) const {
  step.crosses.clear();
  for (std::int64_t r = 0; r < scan_.rank; ++r)
    for (std::int64_t other = 0; other < scan_.rank; ++other) {
      Dot dot;
      for (std::int64_t p = 0; p < scan_.headdim; ++p) {
        Mamba3Value term = dy(step.i, r)[p];
        scale(term, exactly(step.raised[other * scan_.headdim + p]));
        term.variance += roundings_of_operands_.parts * term.value * term.value;
        dot.add(term);
      }
      step.crosses.push_back(dot.over(scan_.headdim));
    }
}

Mamba3Value Backward::read_states(std::int64_t update, std::int64_t p, std::int64_t i) const {
  Mamba3Value value = value_of(update, p);
  value.error += (over_states_ + kRotationError + 2 * sizes_[i]) * value.magnitude;
  return value;
}

Backward::StateSize Backward::size_of_state(std::int64_t update) const {
  double error = 0;
  double magnitude = 0;
  for (std::int64_t p = 0; p < scan_.headdim; ++p) {
    const Mamba3Read read = pass_.read(update, p);
    error += read.error;
    magnitude += read.magnitude;
  }
  return {pass_.fourths(update),
          static_cast<double>(scan_.headdim) * pass_.spread().squared_diagonals[update],
          pass_.is_long() ? pass_.relative_error()
          : magnitude > 0 ? error / magnitude
                          : 0,
          pass_.is_long()};
}

namespace {

/// Slabs that the heads of each group are cut into: a task for every sequence, group and slab.
std::int64_t slabs_of(const Mamba3& scan) {
  return std::clamp<std::int64_t>(kGradientTasks / (scan.sequences * scan.groups), 1, scan.heads_per_group());
}

/// dADT is a difference of sums over time, which carries a NaN to steps that it does not enter, as far as the
/// implementation's sums go: nothing is said of a (batch, head) that has one. `seqlen` numbers each.
void leave_out_nan(std::int64_t seqlen, ReferenceOutput& gradient) {
  const std::int64_t rows = std::ssize(gradient.expected) / std::max<std::int64_t>(seqlen, 1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto first = gradient.expected.begin() + row * seqlen;
    if (std::any_of(first, first + seqlen, [](double value) { return std::isnan(value); }))
      std::fill_n(gradient.bound.begin() + row * seqlen, seqlen, std::numeric_limits<float>::infinity());
  }
}

ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  const Mamba3 scan(problem);
  const auto sequences = mamba3_sequences(scan, inputs);
  ReferenceOutputs outputs = empty_ssd_outputs(problem);
  std::vector<HeadSums> heads(scan.sequences * scan.nheads, HeadSums(scan));
  const std::int64_t slabs = slabs_of(scan);
  const std::int64_t slab = (scan.heads_per_group() + slabs - 1) / slabs;
#pragma omp parallel
  {
    Backward backward(problem, inputs, outputs);
#pragma omp for ordered schedule(dynamic)
    for (std::int64_t task = 0; task < scan.sequences * scan.groups * slabs; ++task) {
      const std::int64_t group = task / slabs % scan.groups;
      const Mamba3Sequence& sequence = sequences[task / (slabs * scan.groups)];
      const std::int64_t end = (group + 1) * scan.heads_per_group();
      const std::int64_t first = std::min(end, group * scan.heads_per_group() + task % slabs * slab);
      HeadSums* const sums = heads.data() + sequence.index * scan.nheads;
      if (!stop) backward.run(sequence, first, std::min(end, first + slab), sums, stop);
#pragma omp ordered
      if (first < end) backward.add_projections();
    }
  }
  if (stop) throw Interrupted();
  for (const char* name : {"dQ", "dK"}) {
    ReferenceOutput& output = outputs.at(name);
    for (std::size_t i = 0; i < output.expected.size(); ++i) {
      const double deviation = output.operand_bound[i];
      output.operand_bound[i] = static_cast<float>(operand_bound(deviation * deviation, output.expected[i]));
    }
  }
  store_head_sums(scan, heads, outputs);
  leave_out_nan(scan.seqlen, outputs.at("dADT"));
  return outputs;
}

/// What is allocated beside the outputs at the peak.
std::size_t working_bytes(const Problem& problem) {
  const Mamba3 scan(problem);
  const std::int64_t threads =
      std::min<std::int64_t>(omp_get_max_threads(), scan.sequences * scan.groups * slabs_of(scan));
  const std::size_t of_step = sizeof(Mamba3Value) * (scan.rank * scan.headdim + scan.angles + 4) +
                              sizeof(double) * (2 * scan.angles + 6) +
                              2 * scan.rank * scan.dstate * (2 * sizeof(double) + sizeof(float)) +
                              sizeof(Mamba3Step);
  const std::size_t of_head =
      sizeof(TimeSum) * (2 * scan.rank * scan.dstate + (3 * scan.rank + 1) * scan.headdim);
  return static_cast<std::size_t>(threads * scan.seqlen) * of_step +
         static_cast<std::size_t>(scan.sequences * scan.nheads) * of_head;
}

std::size_t bytes(const Problem& problem) {
  return working_bytes(problem) + output_bytes(problem, [](const TensorSpec&) { return true; });
}

const ReferenceRegistration siso_registration({.op = "mamba3_siso_bwd", .compute = compute, .bytes = bytes});
const ReferenceRegistration mimo_registration(
    {.op = "mamba3_mimo_bwd", .compute = compute, .bytes = bytes, .depends_on_dtype = has_least_operand});

}  // namespace
}  // namespace ssmbench::mamba3_gradients
