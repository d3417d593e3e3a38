#include "files.h"
#include "model/dtype.h"
#include "model/problem.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace ssmbench::test {

Problem full_problem(const std::map<std::string, AxisValue>& changes) {
  const Problem problem(*find_op("selective_scan_fwd"), {{"dtype", "f32"},
                                                         {"batch", std::int64_t{2}},
                                                         {"dim", std::int64_t{6}},
                                                         {"seqlen", std::int64_t{5}},
                                                         {"dstate", std::int64_t{3}},
                                                         {"groups", std::int64_t{2}},
                                                         {"initial_state", true}});
  return problem.with(changes);
}

std::vector<HostTensor> filled_tensors(const Problem& problem, Role role) {
  std::vector<HostTensor> tensors;
  unsigned state = 1;
  for (const auto& spec : problem.tensors()) {
    if (spec.role != role) continue;
    HostTensor tensor(spec);
    auto* bytes = static_cast<unsigned char*>(tensor.buffer.data());
    for (std::size_t i = 0; i < spec.bytes(); ++i) {
      state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator: any will do
      bytes[i] = static_cast<unsigned char>(state >> 24U);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void write_one_case(const std::string& path, const Problem& problem, bool compress) {
  const auto inputs = filled_tensors(problem, Role::input);
  const auto outputs = filled_tensors(problem, Role::output);
  InterchangeWriter writer(path, {.producer = "a test", .device = {}, .created = {}, .argv = {}}, compress);
  writer.add_case({.id = "a",
                   .problem = problem,
                   .arithmetic = {},
                   .seed = {},
                   .inputs = views_of(inputs),
                   .outputs = views_of(outputs),
                   .reference = {}});
  writer.finish();
}

h5::File open_for_change(const std::string& path) {
  return {H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "open"};
}

void delete_link(hid_t file, const std::string& path) {
  h5::check(H5Ldelete(file, path.c_str(), H5P_DEFAULT), "delete a link");
}

void delete_attribute(hid_t file, const std::string& object, const std::string& name) {
  h5::check(H5Adelete_by_name(file, object.c_str(), name.c_str(), H5P_DEFAULT), "delete an attribute");
}

h5::Dataset replace_dataset_unwritten(hid_t file, const std::string& path, const std::vector<hsize_t>& shape,
                                      DType stored, const std::string& attribute) {
  if (H5Lexists(file, path.c_str(), H5P_DEFAULT) > 0) delete_link(file, path);
  const int rank = static_cast<int>(shape.size());
  const h5::DataSpace space(H5Screate_simple(rank, shape.data(), nullptr), "make a space");
  const h5::PropertyList properties(H5Pcreate(H5P_DATASET_CREATE), "make properties");
  const std::vector<hsize_t> chunk(shape.size(), 1);
  if (rank > 0) h5::check(H5Pset_chunk(properties, rank, chunk.data()), "set the chunk shape");
  h5::Dataset dataset(
      H5Dcreate2(file, path.c_str(), h5::native_type_of(stored), space, H5P_DEFAULT, properties, H5P_DEFAULT),
      "make a dataset");
  if (!attribute.empty()) h5::write_attribute(dataset, "dtype", attribute);
  return dataset;
}

void replace_dataset(hid_t file, const std::string& path, const std::vector<hsize_t>& shape, DType stored,
                     const std::string& attribute) {
  const h5::Dataset dataset = replace_dataset_unwritten(file, path, shape, stored, attribute);
  const std::vector<char> zeros(10000);
  h5::check(H5Dwrite(dataset, h5::native_type_of(stored), H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()),
            "write");
}

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SSMBENCH_SOURCE_DIR "/tests/golden"))
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace ssmbench::test
