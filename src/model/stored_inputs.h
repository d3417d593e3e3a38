#pragma once

#include <map>
#include <string>

#include "model/tensor.h"

namespace ssmbench {

/// Throws the UsageError that every complaint about an input file is: "FILE: WHERE: WHAT" on one line,
/// whatever characters the file put into its names. `where` is an HDF5 path and names case and dataset; it
/// may be empty.
[[noreturn]] void reject_file(const std::string& file, const std::string& where, const std::string& what);

/// A dataset as the file describes it.
struct StoredInput {
  Shape shape;        ///< as stored
  std::string dtype;  ///< its attribute, empty when absent
};

/// What inputs a case in an interchange file has.
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

}  // namespace ssmbench
