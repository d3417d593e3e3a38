#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/box.h"
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

/// The reference of one problem by ranges of its channels, or heads: parts of it, of which only one is in
/// memory at a time. The problem and its inputs have to live as long.
class ReferenceByChannels {
 public:
  virtual ~ReferenceByChannels() = default;
  ReferenceByChannels() = default;
  ReferenceByChannels(const ReferenceByChannels&) = delete;
  ReferenceByChannels& operator=(const ReferenceByChannels&) = delete;
  ReferenceByChannels(ReferenceByChannels&&) = delete;
  ReferenceByChannels& operator=(ReferenceByChannels&&) = delete;

  /// The parts of outputs that these channels have, and with the last channels outputs that are sums over
  /// channels. Ranges follow one another, from channel 0 on, and begin at cuts. The bits do not depend on
  /// them, but what is left out because of a NaN is left out from its range on.
  virtual ReferenceOutputs compute(const IndexRange& channels, const std::atomic<bool>& stop) = 0;
};

/// What computes an operation's reference by channels.
struct ChannelReference {
  char letter;  ///< of the axis of channels (TensorSpec::axes)
  /// Where ranges of channels may begin and end: 0, …, all of them. Fewer than the axis has where channels
  /// are computed together.
  std::vector<std::int64_t> (*cuts)(const Problem& problem);
  /// Peak bytes with ranges of so many channels.
  std::size_t (*bytes)(const Problem& problem, std::int64_t channels);
  std::unique_ptr<ReferenceByChannels> (*start)(const Problem& problem, const TensorSet& inputs);
};

/// What computes the reference of one operation.
struct Reference {
  std::string op;
  /// As compute_reference; null where there is `by_channels`.
  ReferenceOutputs (*compute)(const Problem& problem, const TensorSet& inputs,
                              const std::atomic<bool>& stop) = nullptr;
  /// As reference_bytes; null where there is `by_channels`.
  std::size_t (*bytes)(const Problem& problem) = nullptr;
  std::optional<ChannelReference> by_channels = {};
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
/// The same of the parts that lie in a box.
std::size_t output_bytes(const Problem& problem, const Box& box, bool (*has_third)(const TensorSpec& output));

/// Computes a problem's outputs from the stored values of its inputs, in fp64, on all cores.
/// `inputs` are host tensors. Throws ContractError on wrong shapes, Interrupted once `stop` is true, and
/// std::logic_error for an operation without a reference.
ReferenceOutputs compute_reference(const Problem& problem, const TensorSet& inputs,
                                   const std::atomic<bool>& stop);

/// The parts of a problem's reference, one after the other.
class ReferenceParts {
 public:
  struct Part {
    Box box;  ///< that each output's part lies in
    ReferenceOutputs outputs;
  };

  /// Parts take as many channels as `bytes` allow, and one cut's at least; all at once where the operation
  /// has no other way. `problem` and `inputs`, as of compute_reference, have to live as long.
  ReferenceParts(const Problem& problem, const TensorSet& inputs, std::size_t bytes);

  /// Nothing after the last one. The part before has to be gone, or is in memory beside it. Throws
  /// Interrupted once `stop` is true.
  std::optional<Part> next(const std::atomic<bool>& stop);

 private:
  const Problem& problem_;
  const TensorSet& inputs_;
  std::unique_ptr<ReferenceByChannels> by_channels_;
  char letter_ = 0;
  std::vector<IndexRange> ranges_;  ///< that are left, the next one last
};

/// Whether a reference of other values than f32's has other bounds than one of f32 with the same values: where an
/// implementation may round to the dtype on the way.
bool reference_depends_on_dtype(const Problem& problem);

/// Peak bytes that compute_reference allocates.
std::size_t reference_bytes(const Problem& problem);
/// The same of ReferenceParts; more than `bytes` where the smallest parts take more.
std::size_t reference_bytes_in_parts(const Problem& problem, std::size_t bytes);

}  // namespace ssmbench
