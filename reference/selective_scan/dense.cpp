// The scan with a matrix per channel, in fp64, with an error bound for implementations that go step by step.
//
// Let u be the roundoff of an implementation, and e_t the error of its state in units of u. To first order
//   e_t = Ā_t·e_{t-1} + ε_t,   |ε_t[n]| ≤ λ_t[n]
// where λ_t is what one step adds (dense_step.h). The magnitudes of Ā must not be multiplied up
// from step to step, as the diagonal scan does: a rotation keeps errors as long as they are, but powers of
// |rotation| grow without limit. Instead the error is kept inside an ellipsoid {x : xᵀ·P⁻¹·x ≤ 1}. A step
// maps it to that of Ā·P·Āᵀ, and adding the ellipsoid of Q = diag(λ²) gives one inside that of
//   (1 + q/p)·Ā·P·Āᵀ + (1 + p/q)·Q,   p² = tr(Ā·P·Āᵀ), q² = tr(Q)
// (the one of the least trace: Kurzhanski & Vályi, "Ellipsoidal Calculus for Estimation and Control" (1997),
// part II). For one state that is |Ā|·e + λ. The ellipsoid of Q takes the errors that one step makes in
// different states for independent of one another; those of different steps may all point the same way. An
// error cᵀ·e of a linear form is at most √(cᵀ·P·c).

#include "reference/selective_scan/dense.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/errors.h"
#include "inputs/packed_sequences.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "reference/common/activations.h"
#include "reference/selective_scan/dense_matrix.h"
#include "reference/selective_scan/dense_step.h"
#include "reference/selective_scan/sequences.h"
#include "reference/selective_scan/step.h"

namespace ssmbench {
namespace {

double trace(const Matrix& m) {
  double sum = 0;
  for (int i = 0; i < m.n; ++i) sum += m[i][i];
  return sum;
}

/// The ellipsoid that holds e_t.
class ErrorEllipsoid {
 public:
  explicit ErrorEllipsoid(int n) : shape_(n) {}

  void advance(const DenseStep& step) {
    shape_ = product(product(step.decay, shape_), transposed(step.decay));
    const double old_size = std::sqrt(trace(shape_));
    double added = 0;
    for (int i = 0; i < shape_.n; ++i) added += step.error[i] * step.error[i];
    const double new_size = std::sqrt(added);
    if (new_size == 0) return;
    const double keep = old_size > 0 ? 1 + new_size / old_size : 1;
    for (double& value : shape_.values) value *= keep;
    for (int i = 0; i < shape_.n; ++i)
      shape_[i][i] += (1 + old_size / new_size) * step.error[i] * step.error[i];
  }

  /// Errors of state i, and of cᵀ·h.
  double error(int i) const { return std::sqrt(shape_[i][i]); }
  double error(const Vector& c) const {
    const Vector image = product(shape_, c);
    double sum = 0;
    for (int i = 0; i < shape_.n; ++i) sum += c[i] * image[i];
    return std::sqrt(std::max(sum, 0.0));
  }

 private:
  Matrix shape_;
};

/// Scans rows (b, d) one at a time.
class DenseScan {
 public:
  DenseScan(const Problem& problem, const TensorSet& inputs, ReferenceOutput& out,
            ReferenceOutput& last_state)
      : shape_(problem),
        sequences_(scan_sequences(problem, inputs)),
        n_(static_cast<int>(shape_.dstate)),
        inputs_(inputs),
        out_(out),
        last_state_(last_state) {}

  /// Rows of states: (sequence, channel).
  std::int64_t rows() const { return std::ssize(sequences_) * shape_.dim; }

  /// Returns the first step without a solution; seqlen if there is none.
  std::int64_t run(std::int64_t row, const std::atomic<bool>& stop) {
    const ScanSequence& sequence = sequences_[static_cast<std::size_t>(row / shape_.dim)];
    const std::int64_t b = sequence.batch;
    const std::int64_t d = row % shape_.dim;
    const DenseSystem system(shape_.method, matrix(d));
    Vector h = initial_state(row);
    ErrorEllipsoid ellipsoid(n_);
    for (std::int64_t t = sequence.begin; t < sequence.end; ++t) {
      if (stop) return shape_.seqlen;
      const double bias = optional("delta_bias", {d});
      const StepSize size =
          step_size(at("delta", {b, d, t}), shape_.has_delta_bias ? &bias : nullptr, shape_.delta_softplus);
      const double u = at("u", {b, d, t});
      Vector input = projection("B", shape_.variable_b, b, d, t);
      for (int i = 0; i < n_; ++i) input[i] *= u;
      Vector error{};
      for (int i = 0; i < n_; ++i) error[i] = ellipsoid.error(i);
      const auto step = system.step(size, h, error, input);
      if (!step) {
        undefined_from(row, {b, d, t}, sequence.end);
        return t;
      }
      h = step->state;
      ellipsoid.advance(*step);
      store_out(b, d, t, h, ellipsoid, u);
    }
    for (int i = 0; i < n_; ++i) {
      last_state_.expected[row * n_ + i] = h[i];
      last_state_.bound[row * n_ + i] = static_cast<float>(ellipsoid.error(i));
    }
    return shape_.seqlen;
  }

 private:
  double at(const char* name, const Shape& index) const {
    const TensorView& view = inputs_.at(name);
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * view.strides[axis];
    return load_as_double(view.data, offset, view.dtype);
  }
  /// 0 for an absent tensor.
  double optional(const char* name, const Shape& index) const {
    return inputs_.find(name) == nullptr ? 0 : at(name, index);
  }

  Matrix matrix(std::int64_t d) const {
    Matrix A(n_);
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) A[i][j] = at("A", {d, i, j});
    return A;
  }

  Vector initial_state(std::int64_t row) const {
    Vector h{};
    for (int i = 0; i < n_; ++i) h[i] = optional("initial_state", {row / shape_.dim, row % shape_.dim, i});
    return h;
  }

  /// B or C at one step.
  Vector projection(const char* name, bool variable, std::int64_t b, std::int64_t d, std::int64_t t) const {
    Vector values{};
    for (int i = 0; i < n_; ++i)
      values[i] = variable ? at(name, {b, d / shape_.channels_per_group(), i, t}) : at(name, {d, i});
    return values;
  }

  void store_out(std::int64_t b, std::int64_t d, std::int64_t t, const Vector& h,
                 const ErrorEllipsoid& ellipsoid, double u) {
    const Vector C = projection("C", shape_.variable_c, b, d, t);
    StateSum y{0, 0, ellipsoid.error(C)};
    for (int i = 0; i < n_; ++i) {
      y.value += C[i] * h[i];
      y.magnitude += std::abs(C[i] * h[i]);
    }
    const double skip = optional("D", {d}) * u;
    const Rounded<double> gate = gate_of(optional("z", {b, d, t})).value;
    const BoundedValue value = scan_output(y, roundings_of_output(shape_.dstate),
                                           shape_.has_D ? &skip : nullptr, shape_.has_z ? &gate : nullptr);
    const std::int64_t element = (b * shape_.dim + d) * shape_.seqlen + t;
    out_.expected[element] = value.value;
    out_.bound[element] = static_cast<float>(value.error);
  }

  /// The outputs of `row` from the step at `index` (b, d, t) on.
  void undefined_from(std::int64_t row, const Shape& index, std::int64_t steps_end) {
    const auto fill = [](ReferenceOutput& output, std::int64_t begin, std::int64_t end) {
      std::fill(output.expected.begin() + begin, output.expected.begin() + end,
                std::numeric_limits<double>::quiet_NaN());
      std::fill(output.bound.begin() + begin, output.bound.begin() + end,
                std::numeric_limits<float>::infinity());
    };
    const std::int64_t first = (index[0] * shape_.dim + index[1]) * shape_.seqlen;
    fill(out_, first + index[2], first + steps_end);
    fill(last_state_, row * n_, (row + 1) * n_);
  }

  SelectiveScan shape_;
  std::vector<ScanSequence> sequences_;
  int n_;
  const TensorSet& inputs_;
  ReferenceOutput& out_;
  ReferenceOutput& last_state_;
};

/// `first_without[row]`: the step from which row (sequence, channel) has no solution; seqlen if it has one
/// throughout.
std::string singular_note(const std::vector<std::int64_t>& first_without, const Problem& problem) {
  const SelectiveScan shape(problem);
  const auto is_singular = [&](std::int64_t t) { return t < shape.seqlen; };
  const auto first = std::ranges::find_if(first_without, is_singular);
  if (first == first_without.end()) return "";
  const std::int64_t row = first - first_without.begin();
  const auto others = std::count_if(first + 1, first_without.end(), is_singular);
  return fmt::format("I - delta*A/2 is singular at (b, d, t) = ({}, {}, {}){}: no value from there on",
                     PackedSequences(problem).packed ? 0 : row / shape.dim, row % shape.dim, *first,
                     others == 0 ? "" : fmt::format(" and in {} more (b, d)", others));
}

}  // namespace

ReferenceOutputs selective_scan_dense_reference(const Problem& problem, const TensorSet& inputs,
                                                const std::atomic<bool>& stop) {
  const SelectiveScan shape(problem);
  ReferenceOutputs outputs;
  auto& out = outputs["out"] = empty_output({shape.batch, shape.dim, shape.seqlen});
  auto& last_state = outputs["last_state"] =
      empty_output({PackedSequences(problem).count, shape.dim, shape.dstate});
  DenseScan scan(problem, inputs, out, last_state);
  std::vector<std::int64_t> first_without(scan.rows());
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t row = 0; row < scan.rows(); ++row)
    if (!stop) first_without[row] = scan.run(row, stop);
  if (stop) throw Interrupted();
  out.note = last_state.note = singular_note(first_without, problem);
  return outputs;
}

}  // namespace ssmbench
