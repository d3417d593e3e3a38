#include "interchange/h5.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <sstream>

namespace ssmbench::h5 {
namespace {

/// Upward walk of the error stack: the first entry is the innermost one.
herr_t keep_innermost(unsigned depth, const H5E_error2_t* entry, void* into) {
  if (depth == 0 && entry->desc != nullptr) *static_cast<std::string*>(into) = entry->desc;
  return 0;
}

DataType float16(ByteOrder order) {
  // Made as h5py makes it, because it compares types field by field to recognise float16.
  DataType type(H5Tcopy(order == ByteOrder::little ? H5T_IEEE_F32LE : H5T_IEEE_F32BE), "copy a type");
  check(H5Tset_fields(type, 15, 10, 5, 0, 10), "define float16");
  check(H5Tset_size(type, 2), "define float16");
  check(H5Tset_ebias(type, 15), "define float16");
  return type;
}

DataType complex64(ByteOrder order) {
  DataType type(H5Tcreate(H5T_COMPOUND, 2 * sizeof(float)), "define complex64");
  const DataType part = type_of(DType::f32, order);
  check(H5Tinsert(type, "r", 0, part), "define complex64");
  check(H5Tinsert(type, "i", sizeof(float), part), "define complex64");
  return type;
}

DataType copy_of(ByteOrder order, hid_t little, hid_t big) {
  return {H5Tcopy(order == ByteOrder::little ? little : big), "copy a type"};
}

struct OpenAttribute {
  Attribute attribute;
  DataType type;
};

std::optional<OpenAttribute> open_attribute(hid_t object, const std::string& name, int values = 1) {
  const std::string action = fmt::format("read attribute '{}'", name);
  if (check(H5Aexists(object, name.c_str()), action) == 0) return {};
  Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), action);
  const DataSpace space(H5Aget_space(attribute), action);
  if (H5Sget_simple_extent_npoints(space) != values)
    throw Error(fmt::format("attribute '{}' is not {}", name, values == 1 ? "a single value" : "two values"));
  DataType type(H5Aget_type(attribute), action);
  return OpenAttribute{std::move(attribute), std::move(type)};
}

std::string read_variable_text(const OpenAttribute& open, const std::string& action) {
  struct Reclaim {
    void operator()(char* text) const { H5free_memory(text); }
  };
  // The memory type has the file's character set: HDF5 does not convert between ASCII and UTF-8.
  char* text = nullptr;
  if (H5Tget_size(open.type) != sizeof(text))
    throw Error(fmt::format("cannot {}: its type is damaged", action));
  check(H5Aread(open.attribute, open.type, &text), action);
  const std::unique_ptr<char, Reclaim> owner(text);
  return text == nullptr ? std::string() : std::string(text);
}

std::string read_fixed_text(const OpenAttribute& open, const std::string& action) {
  constexpr std::size_t kLongest = 1 << 20;  // what a damaged size would have allocated
  const std::size_t size = H5Tget_size(open.type);
  if (size > kLongest) throw Error(fmt::format("cannot {}: it claims {} bytes", action, size));
  std::string text(size, '\0');
  check(H5Aread(open.attribute, open.type, text.data()), action);
  text.resize(std::min(text.find('\0'), text.size()));
  if (H5Tget_strpad(open.type) == H5T_STR_SPACEPAD) text.resize(text.find_last_not_of(' ') + 1);
  return text;
}

void write_attribute(hid_t object, const std::string& name, const DataSpace& space, hid_t type,
                     const void* value) {
  const std::string action = fmt::format("write attribute '{}'", name);
  const Attribute attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), action);
  check(H5Awrite(attribute, type, value), action);
}

DataSpace scalar_space() {
  return {H5Screate(H5S_SCALAR), "define a single value"};
}

using Object = Handle<H5Oclose>;

/// What a link that is no hard link holds: a path, or for HDF5 to unpack.
std::string value_of_link(hid_t group, const std::string& name, const H5L_info_t& info) {
  std::string value(info.u.val_size, '\0');
  check(H5Lget_val(group, name.c_str(), value.data(), value.size(), H5P_DEFAULT), "read a link");
  return value;
}

/// "an external link to /object of other.h5".
std::string describe_link_out(hid_t group, const std::string& name, const H5L_info_t& info) {
  if (info.type != H5L_TYPE_EXTERNAL) return "a user-defined link";
  const std::string value = value_of_link(group, name, info);
  const char* file = nullptr;
  const char* object = nullptr;
  check(H5Lunpack_elink_val(value.data(), value.size(), nullptr, &file, &object), "read an external link");
  return fmt::format("an external link to {} of {}", object, file);
}

/// Where a path ends: a hard link in a group.
struct HardLink {
  Object group;
  std::string name;
};

HardLink follow(hid_t start, const std::string& path, int soft_links_left) {
  HardLink at{Object(H5Oopen(start, path.starts_with('/') ? "/" : ".", H5P_DEFAULT), "open a group"), "."};
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '/');) {
    if (name.empty() || name == ".") continue;
    at.group = Object(H5Oopen(at.group, at.name.c_str(), H5P_DEFAULT), "open a group");
    at.name = name;
    H5L_info_t info;
    check(H5Lget_info(at.group, name.c_str(), &info, H5P_DEFAULT), fmt::format("find '{}'", name));
    if (info.type == H5L_TYPE_HARD) continue;
    if (info.type != H5L_TYPE_SOFT)
      throw Error(fmt::format("'{}' is {}; everything has to be in this file", name,
                              describe_link_out(at.group, name, info)));
    if (soft_links_left == 0) throw Error("soft links lead to soft links without end");
    std::string target = value_of_link(at.group, name, info);
    target.resize(std::min(target.find('\0'), target.size()));
    at = follow(at.group, target, soft_links_left - 1);
  }
  return at;
}

HardLink follow(hid_t start, const std::string& path) {
  constexpr int kMostSoftLinks = 16;  // as HDF5 itself
  return follow(start, path, kMostSoftLinks);
}

herr_t find_link_out(hid_t root, const char* path, const H5L_info_t* info, void* found) {
  if (info->type == H5L_TYPE_HARD || info->type == H5L_TYPE_SOFT) return 0;
  try {
    *static_cast<std::optional<std::string>*>(found) =
        fmt::format("/{} is {}", path, describe_link_out(root, path, *info));
  } catch (const Error&) {
    *static_cast<std::optional<std::string>*>(found) = fmt::format("/{} is a damaged link", path);
  }
  return 1;  // ends the visit
}

/// Complains about values that are not in the dataset itself, before anything looks at them.
void check_storage(hid_t dataset) {
  const PropertyList properties(H5Dget_create_plist(dataset), "read the properties");
  if (check(H5Pget_layout(properties), "read the layout") == H5D_VIRTUAL)
    throw Error("is a virtual dataset, whose values are elsewhere; everything has to be in this file");
  if (check(H5Pget_external_count(properties), "read the storage") == 0) return;
  std::array<char, 256> name{};
  check(H5Pget_external(properties, 0, name.size() - 1, name.data(), nullptr, nullptr), "read the storage");
  throw Error(fmt::format("has its values in {}; everything has to be in this file", name.data()));
}

}  // namespace

void keep_quiet() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void fail(std::string_view action) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &reason);
  if (reason.find("version number") != std::string::npos)
    reason += fmt::format(
        "; damaged, or written by an HDF5 that is newer than this program's {}.{}: convert it with h5repack "
        "--low=0 --high=2, or write it with h5py's libver=('earliest', 'v110')",
        H5_VERS_MAJOR, H5_VERS_MINOR);
  throw Error(reason.empty() ? fmt::format("cannot {}", action)
                             : fmt::format("cannot {}: {}", action, reason));
}

DataType type_of(DType dtype, ByteOrder order) {
  switch (dtype) {
    case DType::f32:
      return copy_of(order, H5T_IEEE_F32LE, H5T_IEEE_F32BE);
    case DType::f64:
      return copy_of(order, H5T_IEEE_F64LE, H5T_IEEE_F64BE);
    case DType::f16:
      return float16(order);
    case DType::bf16:
      return copy_of(order, H5T_STD_U16LE, H5T_STD_U16BE);
    case DType::c64:
      return complex64(order);
    case DType::i32:
      return copy_of(order, H5T_STD_I32LE, H5T_STD_I32BE);
    case DType::i64:
      return copy_of(order, H5T_STD_I64LE, H5T_STD_I64BE);
    case DType::i16:
      return copy_of(order, H5T_STD_I16LE, H5T_STD_I16BE);
    case DType::i8:
      return copy_of(order, H5T_STD_I8LE, H5T_STD_I8BE);
    case DType::e4m3:
      return copy_of(order, H5T_STD_U8LE, H5T_STD_U8BE);
  }
  throw std::logic_error("unreachable");
}

DataType native_type_of(DType dtype) {
  return type_of(dtype, std::endian::native == std::endian::little ? ByteOrder::little : ByteOrder::big);
}

bool stores(hid_t type, DType dtype) {
  return std::ranges::any_of(std::array{ByteOrder::little, ByteOrder::big}, [&](ByteOrder order) {
    return check(H5Tequal(type, type_of(dtype, order)), "compare types") > 0;
  });
}

std::string describe(hid_t type) {
  const auto name = [type] {
    switch (H5Tget_class(type)) {
      case H5T_FLOAT:
        return "float";
      case H5T_INTEGER:
        return H5Tget_sign(type) == H5T_SGN_NONE ? "unsigned integer" : "signed integer";
      case H5T_COMPOUND:
        return "compound";
      case H5T_STRING:
        return "string";
      default:
        return "value of another kind";
    }
  };
  return fmt::format("{}-byte {}", H5Tget_size(type), name());
}

Group create_group(hid_t parent, const std::string& name) {
  return {H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
          fmt::format("create group '{}'", name)};
}

Group open_group(hid_t start, const std::string& path) {
  const HardLink link = follow(start, path);
  return {H5Gopen2(link.group, link.name.c_str(), H5P_DEFAULT), "open the group"};
}

Dataset open_dataset(hid_t start, const std::string& path) {
  const HardLink link = follow(start, path);
  Dataset dataset(H5Dopen2(link.group, link.name.c_str(), H5P_DEFAULT), "open the dataset");
  check_storage(dataset);
  return dataset;
}

std::optional<std::string> link_out_of(hid_t file) {
  std::optional<std::string> found;
  H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, find_link_out, &found);
  return found;
}

std::vector<std::string> members(hid_t group) {
  H5G_info_t info;
  check(H5Gget_info(group, &info), "list a group");
  std::vector<std::string> names;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    const auto get = [&](char* into, std::size_t size) {
      return check(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, into, size, H5P_DEFAULT),
                   "list a group");
    };
    std::string name(static_cast<std::size_t>(get(nullptr, 0)), '\0');
    get(name.data(), name.size() + 1);
    names.push_back(std::move(name));
  }
  return names;
}

Shape extents(hid_t dataset) {
  const DataSpace space(H5Dget_space(dataset), "read the shape");
  if (H5Sget_simple_extent_type(space) == H5S_NULL) throw Error("has no elements");
  const int rank = check(H5Sget_simple_extent_ndims(space), "read the shape");
  std::vector<hsize_t> sizes(rank);
  check(H5Sget_simple_extent_dims(space, sizes.data(), nullptr), "read the shape");
  const auto too_large = [](hsize_t size) {
    return size > hsize_t{std::numeric_limits<std::int64_t>::max()};
  };
  if (std::ranges::any_of(sizes, too_large)) throw Error("an extent is out of range");
  return {sizes.begin(), sizes.end()};
}

void write_attribute(hid_t object, const std::string& name, const std::string& text) {
  const DataType type(H5Tcopy(H5T_C_S1), "define a string");
  check(H5Tset_size(type, H5T_VARIABLE), "define a string");
  check(H5Tset_cset(type, H5T_CSET_UTF8), "define a string");
  const char* value = text.c_str();
  write_attribute(object, name, scalar_space(), type, &value);
}

void write_attribute(hid_t object, const std::string& name, std::int64_t number) {
  write_attribute(object, name, scalar_space(), H5T_NATIVE_INT64, &number);
}

void write_attribute(hid_t object, const std::string& name, const std::array<double, 2>& pair) {
  const hsize_t extent = pair.size();
  const DataSpace space(H5Screate_simple(1, &extent, nullptr), "define a pair");
  write_attribute(object, name, space, H5T_NATIVE_DOUBLE, pair.data());
}

std::optional<std::string> read_text(hid_t object, const std::string& name) {
  const auto open = open_attribute(object, name);
  if (!open) return {};
  if (H5Tget_class(open->type) != H5T_STRING)
    throw Error(fmt::format("attribute '{}' is not a string", name));
  const std::string action = fmt::format("read attribute '{}'", name);
  const bool variable = check(H5Tis_variable_str(open->type), action) > 0;
  return variable ? read_variable_text(*open, action) : read_fixed_text(*open, action);
}

std::optional<std::int64_t> read_integer(hid_t object, const std::string& name) {
  const auto open = open_attribute(object, name);
  if (!open) return {};
  const H5T_class_t kind = H5Tget_class(open->type);
  if (kind != H5T_INTEGER && kind != H5T_ENUM)  // h5py stores a bool as an enumeration of FALSE and TRUE
    throw Error(fmt::format("attribute '{}' is neither an integer nor a boolean", name));
  std::int64_t number = 0;
  check(H5Aread(open->attribute, H5T_NATIVE_INT64, &number), fmt::format("read attribute '{}'", name));
  return number;
}

std::optional<std::array<double, 2>> read_pair(hid_t object, const std::string& name) {
  const auto open = open_attribute(object, name, 2);
  if (!open) return {};
  const H5T_class_t kind = H5Tget_class(open->type);
  if (kind != H5T_FLOAT && kind != H5T_INTEGER)
    throw Error(fmt::format("attribute '{}' does not hold numbers", name));
  std::array<double, 2> pair{};
  check(H5Aread(open->attribute, H5T_NATIVE_DOUBLE, pair.data()), fmt::format("read attribute '{}'", name));
  return pair;
}

}  // namespace ssmbench::h5
