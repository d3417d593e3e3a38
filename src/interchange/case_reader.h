#pragma once

#include <string>
#include <vector>

#include "base/errors.h"
#include "interchange/format.h"
#include "interchange/h5.h"
#include "interchange/reader.h"

namespace ssmbench {

/// Runs what reads; what HDF5 or the model find wrong becomes a complaint about `where` in the file.
template <class Read>
auto reading(const std::string& file, const std::string& where, Read read) {
  h5::keep_quiet();
  try {
    return read();
  } catch (const h5::Error& error) {
    reject_file(file, where, error.what());
  } catch (const ContractError& error) {
    reject_file(file, where, error.what());
  }
}

/// A required string attribute.
std::string require_text(const std::string& file, const std::string& where, hid_t object,
                         const std::string& name);

/// Reads the group of one case: first its attributes and which datasets there are, which gives the problem;
/// then every dataset is compared with what the problem asks for, and only then are values loaded.
class CaseReader {
 public:
  /// Throws UsageError, as every member does.
  CaseReader(std::string file, hid_t root, const std::string& id);

  CaseRead read() const;

 private:
  struct OpenTensor {
    TensorSpec spec;
    h5::Dataset dataset;
  };

  std::string where(const std::string& group, const std::string& dataset) const {
    return path_ + "/" + group + "/" + dataset;
  }
  void check_members() const;
  Problem read_problem() const;
  const OpSpec& read_op() const;
  AxisValue read_axis(const AxisSpec& axis) const;
  /// Throws unless the attribute is missing or a word for what the datasets hold.
  void check_repeated(const std::string& name, const AxisValue& found) const;
  std::string read_interval(const std::string& name) const;
  Arithmetic read_arithmetic() const;
  StoredInputs stored_inputs() const;
  void check_size(const Problem& problem) const;
  void check_values(const std::vector<HostTensor>& inputs) const;
  /// Outputs in units of scales need these.
  void check_scales(const std::vector<HostTensor>& outputs) const;
  h5::Group open_part(const std::string& name) const;
  /// The tensors of a group that the file has, in the order of `specs`. Of inputs none may be missing.
  std::vector<OpenTensor> open_tensors(const std::string& group, const std::vector<TensorSpec>& specs) const;
  h5::Dataset open_checked(const std::string& group, const TensorSpec& spec) const;
  std::vector<HostTensor> load(const std::string& group, const std::vector<OpenTensor>& tensors) const;

  std::string file_, id_, path_;
  h5::Group group_;
};

}  // namespace ssmbench
