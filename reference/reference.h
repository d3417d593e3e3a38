#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/expectation.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// What an output should be, in fp64, and how far an honest implementation may be from it.
/// Both arrays are in logical order (the `bdl` column of the definition), C order, whatever the layout;
/// complex outputs as (real, imaginary) pairs, shape with a last axis of 2.
struct ReferenceOutput {
  Shape shape;
  std::vector<double> expected;
  /// First-order bound on the error of an implementation whose every operation has relative error at most 1:
  /// multiplied by its unit roundoff and a small constant this is the tolerance (docs in verify/tolerance.h).
  std::vector<float> bound;
  /// For operations of matrix products: first-order bound on the error that comes of rounding their operands
  /// with relative error at most 1; empty for other operations.
  std::vector<float> operand_bound = {};
  /// What a relative error of 1 in every decay of the recurrence would do, to first order; empty where this
  /// is not computed. From it a mean error of the decays is estimated (verify/distribution.h).
  std::vector<float> decay_response = {};
  /// Why some elements have no value, with the index where that begins; empty as a rule. The bounds of those
  /// elements are not finite.
  std::string note = {};
  /// For values on a circle, such as angles: whole periods more or less are no error. 0 for all others.
  double period = 0;
  /// Distance of neighbours among the values that can be stored, for outputs in units of a scale; empty for
  /// others. `expected` is then what they stand for.
  std::vector<float> step = {};
  /// Rounded to either neighbour when it is stored, up as often as it is nearer to that one.
  bool stochastic = false;

  Expectation expectation() const {
    return {.values = expected.data(),
            .bound = bound.data(),
            .operand_bound = operand_bound.empty() ? nullptr : operand_bound.data(),
            .decay_response = decay_response.empty() ? nullptr : decay_response.data(),
            .period = period,
            .step = step.empty() ? nullptr : step.data(),
            .stochastic = stochastic};
  }
};

/// Outputs with more elements than this have no decay_response: fewer say all that there is to say.
inline constexpr std::int64_t kMostResponses = std::int64_t{1} << 30;

/// All zeros.
ReferenceOutput empty_output(Shape shape);

using ReferenceOutputs = std::map<std::string, ReferenceOutput>;

/// What computes the reference of one operation.
struct Reference {
  std::string op;
  /// As compute_reference.
  ReferenceOutputs (*compute)(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop);
  /// As reference_bytes.
  std::size_t (*bytes)(const Problem& problem);
  /// As reference_depends_on_dtype; where it never does there is none.
  bool (*depends_on_dtype)(const Problem& problem) = nullptr;
};

/// An operation's reference registers itself with one line: `const ReferenceRegistration registration({…});`
struct ReferenceRegistration {
  explicit ReferenceRegistration(Reference reference);
};

/// Bytes of the arrays of a problem's ReferenceOutputs: the values and their bounds, and for outputs of which
/// `has_third` is true one more array of floats (operand_bound or decay_response).
std::size_t output_bytes(const Problem& problem, bool (*has_third)(const TensorSpec& output));

/// Computes a problem's outputs from the stored values of its inputs, in fp64, on all cores.
/// `inputs` are host tensors. Throws ContractError on wrong shapes, Interrupted once `stop` is true, and
/// std::logic_error for an operation without a reference.
ReferenceOutputs compute_reference(const Problem& problem, const TensorSet& inputs,
                                   const std::atomic<bool>& stop);

/// Whether a reference of other values than f32's has other bounds than one of f32 with the same values: where an
/// implementation may round to the dtype on the way.
bool reference_depends_on_dtype(const Problem& problem);

/// Peak bytes that compute_reference allocates.
std::size_t reference_bytes(const Problem& problem);

}  // namespace ssmbench
