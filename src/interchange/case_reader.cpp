#include "interchange/case_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "model/tensor_map.h"

namespace ssmbench {
namespace {

constexpr std::array<const char*, 3> kGroups{"inputs", "outputs", "reference"};

std::uint64_t memory_of_machine() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Complains when chunks have never been written: HDF5 would make them up, however many a small file claims.
std::optional<std::string> missing_chunks(hid_t dataset, const Shape& shape) {
  const h5::PropertyList properties(H5Dget_create_plist(dataset), "read the properties");
  if (h5::check(H5Pget_layout(properties), "read the layout") != H5D_CHUNKED) return {};
  std::vector<hsize_t> chunk(shape.size());  // zeros stay where a damaged layout has fewer axes
  h5::check(H5Pget_chunk(properties, static_cast<int>(chunk.size()), chunk.data()), "read the chunk shape");
  if (std::ranges::find(chunk, hsize_t{0}) != chunk.end()) return "the chunk shape does not fit";
  hsize_t expected = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    expected *= (static_cast<hsize_t>(shape[axis]) + chunk[axis] - 1) / chunk[axis];
  const h5::DataSpace space(H5Dget_space(dataset), "read the shape");  // HDF5 1.10 counts in no H5S_ALL
  hsize_t found = 0;
  h5::check(H5Dget_num_chunks(dataset, space, &found), "count the chunks");
  if (found == expected) return {};
  return fmt::format("values of {} of {} chunks have been written", found, expected);
}

/// Whether every value of one real dtype is a value of the other.
bool holds(DType wide, DType narrow) {
  if (wide == narrow) return true;
  if (wide == DType::f64) return narrow == DType::f32 || narrow == DType::f16 || narrow == DType::bf16;
  return wide == DType::f32 && (narrow == DType::f16 || narrow == DType::bf16);
}

/// Whether a dataset of another dtype does for `spec` (FileForm::may_have_other_dtype).
bool does_for(DType found, const TensorSpec& spec) {
  return spec.role == Role::output ? is_float(found) : holds(spec.dtype, found);
}

/// The dtype of a dataset that has been checked.
DType dtype_of(hid_t dataset) {
  return parse_dtype(h5::read_text(dataset, "dtype").value()).value();
}

/// The same values in the dtype of `spec`, which holds them exactly.
HostTensor in_dtype_of(const TensorSpec& spec, const HostTensor& stored) {
  HostTensor tensor(spec);
  for (std::int64_t i = 0; i < element_count(spec.shape); ++i)
    store_from_double(tensor.buffer.data(), i, spec.dtype,
                      load_as_double(stored.buffer.data(), i, stored.spec.dtype));
  return tensor;
}

/// What is wrong with a dataset where `spec` is expected, maybe in another shape or dtype; nothing when it
/// fits.
std::optional<std::string> misfit(hid_t dataset, const TensorSpec& spec, const std::optional<Shape>& other,
                                  bool other_dtype) {
  const auto name = h5::read_text(dataset, "dtype");
  if (!name) return "the attribute 'dtype' is missing";
  const auto dtype = parse_dtype(*name);
  if (!dtype) return fmt::format("unknown dtype '{}'", *name);
  const h5::DataType type(H5Dget_type(dataset), "read the type");
  if (!h5::stores(type, *dtype))
    return fmt::format("the attribute 'dtype' says {}, but values are stored as {}", *name,
                       h5::describe(type));
  if (*dtype != spec.dtype && !(other_dtype && does_for(*dtype, spec)))
    return fmt::format("expected {}, found {}", name_of(spec.dtype), *name);
  const Shape stored = h5::extents(dataset);
  const Shape expected = stored == other ? stored : spec.stored_shape();
  if (stored.size() != expected.size())
    return fmt::format("expected {} axes, found {}", expected.size(), stored.size());
  if (stored != expected)
    return fmt::format("expected shape {}, found {}", to_string(expected), to_string(stored));
  H5D_space_status_t status = H5D_SPACE_STATUS_ERROR;
  h5::check(H5Dget_space_status(dataset, &status), "look for the values");
  if (status == H5D_SPACE_STATUS_NOT_ALLOCATED) return "no values have been written";
  return missing_chunks(dataset, stored);
}

}  // namespace

std::string require_text(const std::string& file, const std::string& where, hid_t object,
                         const std::string& name) {
  auto text = h5::read_text(object, name);
  if (!text) reject_file(file, where, fmt::format("the attribute '{}' is missing", name));
  return *std::move(text);
}

CaseReader::CaseReader(std::string file, hid_t root, const std::string& id)
    : file_(std::move(file)), id_(id), path_("/cases/" + id), group_(h5::open_group(root, path_)) {}

CaseRead CaseReader::read() const {
  check_members();
  const Problem problem = read_problem();
  check_size(problem);
  const auto inputs = open_tensors("inputs", tensors_of(problem, Role::input));
  const auto outputs = open_tensors("outputs", tensors_of(problem, Role::output));
  open_tensors("reference", reference_tensors_of(problem));
  CaseRead read{.id = id_,
                .problem = problem,
                .arithmetic = read_arithmetic(),
                .seed = h5::read_integer(group_, "seed"),
                .inputs = load("inputs", inputs),
                .outputs = load("outputs", outputs)};
  check_values(read.inputs);
  check_scales(read.outputs);
  return read;
}

void CaseReader::check_values(const std::vector<HostTensor>& inputs) const {
  const auto wrong_values = read_op().file.wrong_values;
  if (wrong_values == nullptr) return;
  for (const auto& input : inputs)
    if (const auto wrong = wrong_values(input)) reject_file(file_, where("inputs", input.spec.name), *wrong);
}

void CaseReader::check_scales(const std::vector<HostTensor>& outputs) const {
  for (const auto& output : outputs)
    if (!output.spec.scaled_by.empty() && find_tensor(outputs, output.spec.scaled_by) == nullptr)
      reject_file(file_, where("outputs", output.spec.name),
                  fmt::format("is in units of {}, which is missing", output.spec.scaled_by));
}

void CaseReader::check_members() const {
  for (const auto& name : h5::members(group_))
    if (std::ranges::find(kGroups, name) == kGroups.end())
      reject_file(file_, path_ + "/" + name, fmt::format("unknown; a case has {}", fmt::join(kGroups, ", ")));
}

Problem CaseReader::read_problem() const {
  const OpSpec& op = read_op();
  Axes axes;
  for (const auto& name : op.file.attributes) axes[name] = read_axis(*op.find_axis(name));
  op.file.infer(stored_inputs(), axes);
  for (const auto& name : op.file.repeated_attributes) {
    if (const auto held = axes.find(name); held != axes.end())
      check_repeated(name, held->second);
    else if (h5::read_integer(group_, name))  // a flag that no dataset shows; off where it is left out
      axes[name] = read_axis(*op.find_axis(name));
  }
  return {op, axes};
}

const OpSpec& CaseReader::read_op() const {
  const std::string op = require_text(file_, path_, group_, "op");
  if (const OpSpec* spec = find_op(op)) return *spec;
  std::vector<std::string> known;
  for (const OpSpec* spec : all_ops()) known.push_back(spec->name);
  reject_file(file_, path_, fmt::format("unknown op '{}'; this build knows {}", op, fmt::join(known, ", ")));
}

AxisValue CaseReader::read_axis(const AxisSpec& axis) const {
  if (axis.kind == AxisKind::choice) return require_text(file_, path_, group_, axis.name);
  if (axis.kind == AxisKind::interval) return read_interval(axis.name);
  const auto number = h5::read_integer(group_, axis.name);
  if (!number) reject_file(file_, path_, fmt::format("the attribute '{}' is missing", axis.name));
  if (axis.kind == AxisKind::size) return *number;
  if (*number != 0 && *number != 1)
    reject_file(file_, path_, fmt::format("the attribute '{}' must be 0 or 1, got {}", axis.name, *number));
  return *number == 1;
}

void CaseReader::check_repeated(const std::string& name, const AxisValue& found) const {
  const auto word = h5::read_text(group_, name);
  if (word && *word != to_string(found))
    reject_file(file_, path_,
                fmt::format("the attribute '{}' says {}, the datasets {}", name, *word, to_string(found)));
}

std::string CaseReader::read_interval(const std::string& name) const {
  const auto pair = h5::read_pair(group_, name);
  if (!pair) reject_file(file_, path_, fmt::format("the attribute '{}' is missing", name));
  return to_string(Interval{(*pair)[0], (*pair)[1]});  // Problem says what is no interval
}

Arithmetic CaseReader::read_arithmetic() const {
  const std::string name = require_text(file_, path_, group_, "math");
  const auto math = parse_math(name);
  if (!math)
    reject_file(file_, path_,
                fmt::format("unknown math '{}'; this build knows {}", name, fmt::join(math_names(), ", ")));
  if (!read_op().file.has_chunk_states) return {.math = *math};
  const std::string state_name = require_text(file_, path_, group_, "state_dtype");
  const auto state_dtype = parse_dtype(state_name);
  if (!state_dtype || !is_float(*state_dtype))
    reject_file(file_, path_,
                fmt::format("unknown state_dtype '{}'; this build knows f32, f64, f16, bf16", state_name));
  return {*math, *state_dtype};
}

StoredInputs CaseReader::stored_inputs() const {
  std::map<std::string, StoredInput> stored;
  if (h5::check(H5Lexists(group_, "inputs", H5P_DEFAULT), "look for the inputs") == 0)
    reject_file(file_, path_ + "/inputs", "the group is missing");
  const h5::Group inputs = open_part("inputs");
  for (const auto& name : h5::members(inputs))
    reading(file_, where("inputs", name), [&] {
      const h5::Dataset dataset = h5::open_dataset(inputs, name);
      stored[name] = {h5::extents(dataset), h5::read_text(dataset, "dtype").value_or("")};
    });
  return {file_, path_ + "/inputs", std::move(stored)};
}

void CaseReader::check_size(const Problem& problem) const {
  const std::uint64_t memory = memory_of_machine();
  std::uint64_t left = memory;
  for (const auto& spec : problem.tensors()) {
    std::uint64_t bytes = size_of(spec.dtype);
    for (const std::int64_t extent : spec.shape)
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes) || bytes > left)
        reject_file(file_, path_,
                    fmt::format("tensors up to '{}' ({}) need more than this machine's memory of {} bytes",
                                spec.name, to_string(spec.shape), memory));
    left -= bytes;
  }
}

h5::Group CaseReader::open_part(const std::string& name) const {
  return reading(file_, path_ + "/" + name, [&] { return h5::open_group(group_, name); });
}

std::vector<CaseReader::OpenTensor> CaseReader::open_tensors(const std::string& group,
                                                             const std::vector<TensorSpec>& specs) const {
  if (h5::check(H5Lexists(group_, group.c_str(), H5P_DEFAULT), "look for a group") == 0) return {};
  const h5::Group opened = open_part(group);
  const auto present = h5::members(opened);
  for (const auto& name : present)
    if (std::ranges::find(specs, name, &TensorSpec::name) == specs.end()) {
      std::vector<std::string> known;
      for (const auto& spec : specs) known.push_back(spec.name);
      reject_file(file_, where(group, name),
                  fmt::format("unknown tensor; with these options there are {}", fmt::join(known, ", ")));
    }
  std::vector<OpenTensor> tensors;
  for (const auto& spec : specs) {
    if (std::ranges::find(present, spec.name) != present.end())
      tensors.push_back({spec, open_checked(group, spec)});
    else if (spec.role == Role::input)
      reject_file(file_, where(group, spec.name), "the dataset is missing");
  }
  return tensors;
}

h5::Dataset CaseReader::open_checked(const std::string& group, const TensorSpec& spec) const {
  const std::string place = where(group, spec.name);
  return reading(file_, place, [&] {
    h5::Dataset dataset = h5::open_dataset(group_, place);
    const auto other_shape = read_op().file.other_shape;
    const auto other = other_shape == nullptr ? std::nullopt : other_shape(spec);
    const auto may_have_other_dtype = read_op().file.may_have_other_dtype;
    const bool other_dtype = may_have_other_dtype != nullptr && may_have_other_dtype(spec);
    if (const auto wrong = misfit(dataset, spec, other, other_dtype)) reject_file(file_, place, *wrong);
    return dataset;
  });
}

std::vector<HostTensor> CaseReader::load(const std::string& group,
                                         const std::vector<OpenTensor>& tensors) const {
  std::vector<HostTensor> loaded;
  for (const auto& open : tensors)
    reading(file_, where(group, open.spec.name), [&] {
      TensorSpec stored = open.spec;
      stored.dtype = dtype_of(open.dataset);
      HostTensor tensor(stored);
      const h5::DataType type = h5::native_type_of(stored.dtype);
      h5::check(H5Dread(open.dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.buffer.data()),
                "read the values");
      const bool as_stored = stored.dtype == open.spec.dtype || open.spec.role == Role::output;
      loaded.push_back(as_stored ? std::move(tensor) : in_dtype_of(open.spec, tensor));
    });
  return loaded;
}

}  // namespace ssmbench
