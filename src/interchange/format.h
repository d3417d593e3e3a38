#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/problem.h"

namespace ssmbench {

using Axes = std::map<std::string, AxisValue>;

/// Throws the UsageError that every complaint about an input file is: "FILE: WHERE: WHAT" on one line,
/// whatever characters the file put into its names. `where` is an HDF5 path and names case and dataset; it
/// may be empty.
[[noreturn]] void reject_file(const std::string& file, const std::string& where, const std::string& what);

std::vector<TensorSpec> tensors_of(const Problem& problem, Role role);
/// The outputs in f64; complex ones with a further axis, innermost, of (real, imaginary), so that numpy reads
/// them with .view(complex).
std::vector<TensorSpec> reference_tensors_of(const Problem& problem);

/// A dataset as the file describes it.
struct StoredInput {
  Shape shape;        ///< as stored
  std::string dtype;  ///< its attribute, empty when absent
};

/// What inputs a case in a file has.
class StoredInputs {
 public:
  /// `group` is the HDF5 path of the datasets.
  StoredInputs(std::string file, std::string group, std::map<std::string, StoredInput> inputs)
      : file_(std::move(file)), group_(std::move(group)), inputs_(std::move(inputs)) {}

  bool has(const std::string& name) const { return inputs_.contains(name); }
  /// Throws UsageError when the dataset is missing.
  const StoredInput& at(const std::string& name) const;
  /// Throws UsageError when the dataset is missing or has another rank.
  const Shape& shape(const std::string& name, std::size_t rank) const;
  [[noreturn]] void reject(const std::string& name, const std::string& what) const;

 private:
  std::string file_, group_;
  std::map<std::string, StoredInput> inputs_;
};

/// How the axes of an operation are kept in a file: some as attributes of the case, named like the axis, the
/// others in which datasets there are and in their shapes. A further operation is one more of these, in its
/// own file and in the table of format.cpp.
struct OpFormat {
  const OpSpec& op;
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
};

/// Null for an operation that the format does not cover.
const OpFormat* find_format(std::string_view op);

const OpFormat& selective_scan_fwd_format();
const OpFormat& selective_scan_bwd_format();
const OpFormat& selective_state_update_format();
const OpFormat& linear_scan_format();
const OpFormat& ssd_chunk_scan_fwd_format();
const OpFormat& ssd_chunk_scan_bwd_format();

}  // namespace ssmbench
