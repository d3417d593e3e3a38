#pragma once

#include <hdf5.h>

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dtype.h"
#include "model/tensor.h"

/// What the interchange needs of the HDF5 C library, with handles that close themselves and failures that
/// throw.
namespace ssmbench::h5 {

/// An HDF5 call failed: what was tried and the library's innermost reason, on one line.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Keeps HDF5 from printing anything by itself, in this thread and from now on: its error stack, and, at the
/// exit of the process, that it cannot close what was open in a damaged file.
void keep_quiet();

/// Throws Error for the HDF5 call that has just failed.
[[noreturn]] void fail(std::string_view action);

/// Throws Error when an HDF5 call returned a negative value, which is how all of them fail.
template <class Result>
Result check(Result result, std::string_view action) {
  if (result < 0) fail(action);
  return result;
}

/// An open HDF5 object.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle(hid_t id, std::string_view action) : id_(check(id, action)) {}
  ~Handle() {
    if (id_ >= 0) Close(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  operator hid_t() const { return id_; }
  /// For where it matters that closing works. Throws Error.
  void close(std::string_view action) { check(Close(std::exchange(id_, -1)), action); }

 private:
  hid_t id_;
};

using File = Handle<H5Fclose>;
using Group = Handle<H5Gclose>;
using Dataset = Handle<H5Dclose>;
using Attribute = Handle<H5Aclose>;
using DataType = Handle<H5Tclose>;
using DataSpace = Handle<H5Sclose>;
using PropertyList = Handle<H5Pclose>;

enum class ByteOrder { little, big };

/// How a dtype is stored: IEEE floats, bf16 as uint16, c64 as the compound {r, i} that h5py uses. The same
/// type describes host memory when the order is the host's.
DataType type_of(DType dtype, ByteOrder order);
DataType native_type_of(DType dtype);
/// True when `type` is how the dtype is stored, in either byte order.
bool stores(hid_t type, DType dtype);
/// "4-byte float", for messages.
std::string describe(hid_t type);

Group create_group(hid_t parent, const std::string& name);
/// Opens what a path of the file leads to, and never anything outside of the file: each link on the way is
/// looked at before it is followed. Soft links are followed. Throws Error when there is no such object, and
/// one that names the target for an external or user-defined link.
Group open_group(hid_t start, const std::string& path);
/// The same for a dataset. Throws Error too when its values are outside of the file or in other datasets:
/// external storage, a virtual dataset.
Dataset open_dataset(hid_t start, const std::string& path);
/// A link that leads out of the file, in words and with its path, wherever the file has one; nothing when
/// there is none. What is too damaged to be listed says so when it is read.
std::optional<std::string> link_out_of(hid_t file);
/// Names of the links in a group, sorted.
std::vector<std::string> members(hid_t group);
/// Extents of a dataset. Throws Error when there is one that an int64 cannot hold or no simple dataspace.
Shape extents(hid_t dataset);

void write_attribute(hid_t object, const std::string& name, const std::string& text);
void write_attribute(hid_t object, const std::string& name, std::int64_t number);
void write_attribute(hid_t object, const std::string& name, const std::array<double, 2>& pair);

/// A string attribute of fixed or variable length; nothing when it is absent. Throws Error when it is no
/// string.
std::optional<std::string> read_text(hid_t object, const std::string& name);
/// An integer or boolean attribute; nothing when it is absent. Throws Error when it is neither.
std::optional<std::int64_t> read_integer(hid_t object, const std::string& name);
/// An attribute of two numbers; nothing when it is absent. Throws Error when it is something else.
std::optional<std::array<double, 2>> read_pair(hid_t object, const std::string& name);

}  // namespace ssmbench::h5
