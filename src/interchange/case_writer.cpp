#include "interchange/case_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/errors.h"

namespace ssmbench {
namespace {

constexpr std::size_t kLargestContiguous = 65536;  // the format's limit for plain datasets
constexpr std::size_t kChunkBytes = 1 << 20;       // what HDF5's chunk cache of a reader holds by default
constexpr unsigned kGzipLevel = 1;  // shuffled exponents compress at any level, random mantissas at none

const TensorSpec& find_spec(const std::vector<TensorSpec>& specs, const std::string& name,
                            const Problem& problem) {
  const auto found = std::ranges::find(specs, name, &TensorSpec::name);
  if (found == specs.end())
    throw ContractError(fmt::format("{} has no tensor '{}' with these options", problem.op().name, name));
  return *found;
}

std::string layout_words(const Problem& problem) {
  const AxisSpec* layout = problem.find_axis(AxisRole::layout);
  return layout == nullptr ? "" : " in layout " + problem.choice(layout->name);
}

std::vector<CheckedTensor> check_tensors(const std::vector<TensorSpec>& specs, const TensorSet& tensors,
                                         const Problem& problem) {
  std::vector<CheckedTensor> all;
  for (const auto& [name, view] : tensors.all()) {
    const TensorSpec& spec = find_spec(specs, name, problem);
    if (view.dtype != spec.dtype || view.shape != spec.shape || view.strides != spec.strides())
      throw ContractError(fmt::format("tensor '{}' is not as {} has it: {} {}{}", name, problem.id(),
                                      name_of(spec.dtype), to_string(spec.shape), layout_words(problem)));
    all.push_back({spec, view.data});
  }
  return all;
}

/// Values in logical order put into the order that `spec` is stored in.
std::vector<double> in_stored_order(std::span<const double> logical, const TensorSpec& spec) {
  TensorSpec plain = spec;
  std::ranges::sort(plain.storage_order);
  const Shape logical_strides = plain.strides();
  const Shape extents = spec.stored_shape();
  std::vector<std::int64_t> index(extents.size(), 0);  // in stored axes
  std::vector<double> stored(logical.size());
  for (double& value : stored) {
    std::int64_t from = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis)
      from += index[axis] * logical_strides[spec.storage_order[axis]];
    value = logical[from];
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < extents[axis]) break;
      index[axis] = 0;
    }
  }
  return stored;
}

/// Halves the extents from the outside in until a chunk is small enough, so that it stays a run of memory.
std::vector<hsize_t> chunk_shape(std::vector<hsize_t> shape, std::size_t element_bytes) {
  const auto bytes = [&] {
    return std::accumulate(shape.begin(), shape.end(), hsize_t{element_bytes}, std::multiplies<>());
  };
  for (hsize_t& extent : shape)
    while (extent > 1 && bytes() > kChunkBytes) extent = (extent + 1) / 2;
  return shape;
}

h5::PropertyList creation_properties(const TensorSpec& spec, const std::vector<hsize_t>& shape,
                                     bool compress) {
  h5::PropertyList properties(H5Pcreate(H5P_DATASET_CREATE), "create a property list");
  if (!compress || spec.bytes() <= kLargestContiguous) return properties;
  const auto chunk = chunk_shape(shape, size_of(spec.dtype));
  h5::check(H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data()), "set the chunk shape");
  h5::check(H5Pset_shuffle(properties), "set the shuffle filter");
  h5::check(H5Pset_deflate(properties, kGzipLevel), "set the gzip filter");
  return properties;
}

void write_dataset(hid_t group, const CheckedTensor& tensor, bool compress) {
  const TensorSpec& spec = tensor.spec;
  const std::string action = fmt::format("write dataset '{}'", spec.name);
  const Shape stored = spec.stored_shape();
  const std::vector<hsize_t> shape(stored.begin(), stored.end());
  const h5::DataSpace space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), action);
  const h5::DataType type = h5::native_type_of(spec.dtype);
  const h5::PropertyList properties = creation_properties(spec, shape, compress);
  const h5::Dataset dataset(
      H5Dcreate2(group, spec.name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT), action);
  h5::write_attribute(dataset, "dtype", std::string(name_of(spec.dtype)));
  h5::check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.data), action);
}

void write_axis(hid_t group, const AxisSpec& axis, const Problem& problem) {
  const std::string& name = axis.name;
  const AxisValue& value = problem.value(name);
  if (axis.kind == AxisKind::interval)
    h5::write_attribute(group, name, std::array{problem.interval(name).low, problem.interval(name).high});
  else if (const auto* word = std::get_if<std::string>(&value))
    h5::write_attribute(group, name, *word);
  else if (const auto* flag = std::get_if<bool>(&value))
    h5::write_attribute(group, name, std::int64_t{*flag});
  else
    h5::write_attribute(group, name, std::get<std::int64_t>(value));
}

void write_attributes(hid_t group, const CaseToWrite& the_case) {
  const OpSpec& op = the_case.problem.op();
  h5::write_attribute(group, "op", op.name);
  h5::write_attribute(group, "math", std::string(name_of(the_case.arithmetic.math)));
  if (op.file.has_chunk_states)
    h5::write_attribute(group, "state_dtype", std::string(name_of(the_case.arithmetic.state_dtype)));
  if (the_case.seed) h5::write_attribute(group, "seed", *the_case.seed);
  for (const auto* names : {&op.file.attributes, &op.file.repeated_attributes})
    for (const auto& axis : *names) write_axis(group, *op.find_axis(axis), the_case.problem);
}

TensorSpec reference_spec(const CaseToWrite& the_case, const std::string& name,
                          std::span<const double> values) {
  TensorSpec spec = find_spec(reference_tensors_of(the_case.problem), name, the_case.problem);
  if (static_cast<std::int64_t>(values.size()) != element_count(spec.shape))
    throw ContractError(fmt::format("the reference of '{}' has {} values, {} has {}", name, values.size(),
                                    the_case.problem.id(), to_string(spec.shape)));
  return spec;
}

void write_tensors(hid_t parent, const std::string& name, const std::vector<CheckedTensor>& tensors,
                   bool compress, const TemporaryFile& disk) {
  const h5::Group group = h5::create_group(parent, name);
  for (const auto& tensor : tensors) {
    write_dataset(group, tensor, compress);
    disk.check();  // here, so that a full disk is noticed before gigabytes are compressed for nothing
  }
}

void write_reference(hid_t parent, const CheckedCase& checked, bool compress, const TemporaryFile& disk) {
  const h5::Group group = h5::create_group(parent, "reference");
  for (const auto& [spec, values] : checked.reference) {
    write_dataset(group, {spec, in_stored_order(values, spec).data()}, compress);
    disk.check();
  }
}

}  // namespace

CheckedCase check_case(const CaseToWrite& the_case) {
  if (the_case.id.empty() || the_case.id == "." || the_case.id.find('/') != std::string::npos)
    throw ContractError(fmt::format("'{}' cannot be the id of a case", the_case.id));
  const Problem& problem = the_case.problem;
  const auto inputs = tensors_of(problem, Role::input);
  for (const auto& spec : inputs) the_case.inputs.at(spec.name);
  CheckedCase checked{check_tensors(inputs, the_case.inputs, problem),
                      check_tensors(tensors_of(problem, Role::output), the_case.outputs, problem),
                      {}};
  for (const auto& [name, values] : the_case.reference)
    checked.reference.emplace_back(reference_spec(the_case, name, values), values);
  return checked;
}

void write_case(hid_t cases, const CaseToWrite& the_case, const CheckedCase& checked, bool compress,
                const TemporaryFile& disk) {
  const h5::Group group = h5::create_group(cases, the_case.id);
  write_attributes(group, the_case);
  write_tensors(group, "inputs", checked.inputs, compress, disk);
  write_tensors(group, "outputs", checked.outputs, compress, disk);
  if (!checked.reference.empty()) write_reference(group, checked, compress, disk);
}

}  // namespace ssmbench
