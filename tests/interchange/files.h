#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "interchange/h5.h"
#include "interchange/writer.h"
#include "model/case.h"
#include "support/temporary_folder.h"

namespace ssmbench::test {

/// A small selective_scan_fwd problem with no two extents alike (batch 2, dim 6, seqlen 5, dstate 3, groups
/// 2) and every optional input, with some axes changed.
Problem full_problem(const std::map<std::string, AxisValue>& changes = {});

/// The tensors of one role, each filled with other bytes: all bit patterns are to survive, NaNs too.
std::vector<HostTensor> filled_tensors(const Problem& problem, Role role);

/// One case "a" with all tensors but the reference.
void write_one_case(const std::string& path, const Problem& problem, bool compress = true);

h5::File open_for_change(const std::string& path);
void delete_link(hid_t file, const std::string& path);
void delete_attribute(hid_t file, const std::string& object, const std::string& name);
template <class Value>
void replace_attribute(hid_t file, const std::string& object, const std::string& name, const Value& value) {
  delete_attribute(file, object, name);
  const h5::Handle<H5Oclose> opened(H5Oopen(file, object.c_str(), H5P_DEFAULT), "open");
  h5::write_attribute(opened, name, value);
}
/// Makes a dataset of `shape`, without values, in place of one that may be there. In chunks, because HDF5
/// itself refuses absurd sizes in one piece.
h5::Dataset replace_dataset_unwritten(hid_t file, const std::string& path, const std::vector<hsize_t>& shape,
                                      DType stored, const std::string& attribute);
/// The same, filled with zeros; up to 10000 bytes.
void replace_dataset(hid_t file, const std::string& path, const std::vector<hsize_t>& shape, DType stored,
                     const std::string& attribute);

/// The files of tests/golden, sorted: paths whose stems are the ids of their one case.
std::vector<std::filesystem::path> golden_files();

/// The message of the Error that `call` throws.
template <class Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace ssmbench::test
