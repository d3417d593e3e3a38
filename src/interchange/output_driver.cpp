#include "interchange/output_driver.h"

#include <sys/types.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>

namespace ssmbench {
namespace {

/// What the property list carries to the driver.
struct Target {
  TemporaryFile* file;
};

/// An open file as HDF5 sees it. HDF5 fills `base`, which must come first.
struct OpenTarget {
  H5FD_t base;
  TemporaryFile* file;
  haddr_t allocated;  // end of the address space that HDF5 has handed out
};

OpenTarget& opened(H5FD_t* file) {
  return *reinterpret_cast<OpenTarget*>(file);
}
const OpenTarget& opened(const H5FD_t* file) {
  return *reinterpret_cast<const OpenTarget*>(file);
}

H5FD_t* open_target(const char*, unsigned, hid_t properties, haddr_t) {
  const auto* target = static_cast<const Target*>(H5Pget_driver_info(properties));
  if (target == nullptr) return nullptr;
  auto* file = new (std::nothrow) OpenTarget{{}, target->file, 0};
  return file == nullptr ? nullptr : &file->base;
}

herr_t close_target(H5FD_t* file) {
  delete &opened(file);
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* features) {
  *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
              H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) {
  return opened(file).allocated;
}

herr_t allocate(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  opened(file).allocated = end;
  return 0;
}

haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) {
  return opened(file).file->size();
}

herr_t read_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, void* data) {
  opened(file).file->read(offset, data, size);
  return 0;
}

herr_t write_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, const void* data) {
  opened(file).file->write(offset, data, size);
  return 0;
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  opened(file).file->resize(opened(file).allocated);
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver{};
  driver.name = "ssmbench-output";
  driver.maxaddr = static_cast<haddr_t>(std::numeric_limits<off_t>::max());
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(Target);
  driver.open = open_target;
  driver.close = close_target;
  driver.query = query;
  driver.get_eoa = allocated;
  driver.set_eoa = allocate;
  driver.get_eof = end_of_file;
  driver.read = read_bytes;
  driver.write = write_bytes;
  driver.truncate = truncate;
  const H5FD_mem_t all_kinds_alike[H5FD_MEM_NTYPES] = H5FD_FLMAP_SINGLE;
  std::copy(std::begin(all_kinds_alike), std::end(all_kinds_alike), driver.fl_map);
  return driver;
}

hid_t driver_id() {
  static const H5FD_class_t driver = driver_class();
  static const hid_t id = h5::check(H5FDregister(&driver), "register a file driver");
  return id;
}

}  // namespace

h5::File create_hdf5(TemporaryFile& file) {
  const h5::PropertyList access(H5Pcreate(H5P_FILE_ACCESS), "create a property list");
  const Target target{&file};
  h5::check(H5Pset_driver(access, driver_id(), &target), "choose the file driver");
  return {H5Fcreate(file.path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), "create the file"};
}

}  // namespace ssmbench
