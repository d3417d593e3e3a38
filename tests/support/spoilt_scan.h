#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/implementation.h"
#include "support/find_implementation.h"

namespace ssmbench::test {

/// What a spoilt implementation can put its hands on after a launch of the honest one.
struct Touch {
  const TensorSet& tensors;
  float* workspace;
  void* stream;
  int launch;  ///< 1, 2, …

  float* at(const char* tensor) const { return static_cast<float*>(tensors.at(tensor).data); }
  /// One past the last element.
  float* end(const char* tensor) const { return at(tensor) + element_count(tensors.at(tensor).shape); }
};

/// An implementation of selective_scan_fwd that is right but for what `spoil` does after each launch.
inline Implementation spoilt_scan(const std::string& name, std::function<void(const Touch&)> spoil,
                                  const std::string& honest_name = "cpu-scalar") {
  const Implementation& honest = find_implementation("selective_scan_fwd", honest_name);
  Implementation spoilt = honest;
  spoilt.name = name;
  spoilt.workspace_bytes = [](const Problem&) { return std::size_t{64}; };
  spoilt.bind = [&honest, spoil = std::move(spoil)](const Problem& problem, const TensorSet& tensors,
                                                    void* workspace) -> Launch {
    return [launch = honest.bind(problem, tensors, nullptr), spoil, tensors, workspace,
            count = std::make_shared<int>(0)](void* stream) {
      launch(stream);
      spoil({tensors, static_cast<float*>(workspace), stream, ++*count});
    };
  };
  return spoilt;
}

}  // namespace ssmbench::test
