#pragma once

#include <string>
#include <vector>

#include "interchange/writer.h"
#include "support/host_tensors.h"

namespace ssmbench::test {

/// A file with the one case "a", of these inputs and without outputs.
inline void write_case(const std::string& path, const Problem& problem,
                       const std::vector<HostTensor>& inputs) {
  InterchangeWriter writer(path, {.producer = "a test", .device = {}, .created = {}, .argv = {}}, true);
  writer.add_case({.id = "a",
                   .problem = problem,
                   .arithmetic = {},
                   .seed = {},
                   .inputs = views_of(inputs),
                   .outputs = {},
                   .reference = {}});
  writer.finish();
}

}  // namespace ssmbench::test
