#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/arithmetic.h"
#include "model/axis.h"
#include "model/input_spec.h"
#include "model/parts.h"
#include "model/stored_inputs.h"
#include "model/tensor.h"
#include "model/work.h"

namespace ssmbench {

class Problem;

using Axes = std::map<std::string, AxisValue>;

/// How the axes of an operation are kept in an interchange file: some as attributes of the case, named like
/// the axis, the others in which datasets there are and in their shapes.
struct FileForm {
  std::vector<std::string> attributes;
  /// Adds the axes that the datasets hold to those that the attributes gave. Whether the datasets agree with
  /// one another is not its concern: the reader compares all of them with what the axes ask for.
  void (*infer)(const StoredInputs& inputs, Axes& axes);
  bool has_chunk_states = false;  ///< the case then has the attribute state_dtype beside math
  /// What is wrong with the values of an input, for inputs that not any values will do for; null otherwise.
  std::optional<std::string> (*wrong_values)(const HostTensor& input) = nullptr;
  /// Axes that the datasets hold and that are written as attributes too, for who looks at those alone. A file
  /// may leave them out, but not contradict its datasets.
  std::vector<std::string> repeated_attributes = {};
  /// Another shape that a dataset may have, of the same elements in the same order; null where there is none.
  std::optional<Shape> (*other_shape)(const TensorSpec& spec) = nullptr;
  /// Whether a dataset may have another dtype: an output any float type, in which it is then judged, an input
  /// one whose values the tensor's dtype holds exactly. Null where none may.
  bool (*may_have_other_dtype)(const TensorSpec& spec) = nullptr;
};

/// An operation: all that the program knows of it but for its reference and its implementations, which
/// register themselves under its name (reference/reference.h, model/implementation.h). Registered in
/// src/ops/<family>/.
struct OpSpec {
  std::string name;
  std::string summary;
  std::vector<AxisSpec> axes;  ///< one of them the io dtype, a choice of the name "dtype"
  std::vector<TensorSpec> (*tensors)(const Problem&);
  /// Why the axes contradict each other ("dim 10 is not a multiple of groups 4"); nothing when they do not.
  std::optional<std::string> (*contradiction)(const Problem&);
  /// How inputs are drawn. Throws UsageError for an unknown distribution.
  InputFill (*inputs)(const Problem&, const InputSpec&);
  /// What an implementation has to move and compute at least, whatever its algorithm, with arithmetic `math`:
  /// matrix products are on tensor cores where that is tf32, f16 or bf16.
  Work (*least_work)(const Problem&, Math math);
  FileForm file;
  /// What a user should know who runs the problem; null where there never is anything.
  std::optional<std::string> (*warning)(const Problem&) = nullptr;
  /// Ways to compute a problem from smaller ones.
  std::vector<PartwiseComputation> parts = {};
  /// Pairs of inputs that are easily swapped. `check` tries whether a swap explains wrong outputs.
  std::vector<std::pair<std::string, std::string>> look_alikes = {};

  /// Null where there is none.
  const AxisSpec* find_axis(std::string_view axis) const;
  const AxisSpec* find_axis(AxisRole role) const;
  const PartwiseComputation* find_parts(std::string_view check) const;
};

/// Every operation of this build, ordered by name.
const std::vector<const OpSpec*>& all_ops();
/// Null where there is none of that name.
const OpSpec* find_op(std::string_view name);

/// An operation registers itself with one line: `const OpRegistration registration(my_operation());`
struct OpRegistration {
  /// `spec` lives as long as the program.
  explicit OpRegistration(const OpSpec& spec);
};

}  // namespace ssmbench
