#include "files.h"

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

}  // namespace ssmbench::test
