// cpu-scalar against the definition in long double: every method, real and complex, every option.

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "catch.h"
#include "kernels/selective_scan/method_scan.h"
#include "support/axes.h"
#include "support/find_implementation.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Runs into outputs filled with NaN, so that an element left out shows.
double error_of(const Axes& changes) {
  Axes axes{{"dtype", "f32"},
            {"batch", std::int64_t{2}},
            {"dim", std::int64_t{6}},
            {"seqlen", std::int64_t{11}},
            {"dstate", std::int64_t{3}}};
  for (const auto& [name, value] : changes) axes[name] = value;
  const Problem problem(selective_scan_fwd(), axes);
  const auto inputs = moderate_inputs(problem);
  std::vector<HostTensor> outputs;
  TensorSet tensors = views_of(inputs);
  for (const auto& spec : problem.tensors()) {
    if (spec.role != Role::output) continue;
    outputs.emplace_back(spec);
    std::memset(outputs.back().buffer.data(), 0xFF, spec.bytes());
    tensors.add(spec.name, outputs.back().view());
  }
  const Implementation& scalar = find_implementation("selective_scan_fwd", "cpu-scalar");
  REQUIRE(!scalar.unsupported(problem));
  scalar.bind(problem, tensors, nullptr)(nullptr);
  return worst_ratio(tensors, MethodScan(problem, tensors).run());
}

}  // namespace

TEST_CASE("cpu-scalar follows every method, real and complex, in every dtype and layout") {
  for (const auto& method : methods())
    for (const char* A : {"real", "complex"})
      for (const char* dtype : {"f32", "f16", "bf16"})
        for (const char* layout : {"bdl", "bld"}) {
          INFO(method.name << " " << A << " " << dtype << " " << layout);
          CHECK(error_of({{"method", method.name},
                          {"A", A},
                          {"dtype", dtype},
                          {"layout", layout},
                          {"groups", std::int64_t{2}},
                          {"initial_state", true}}) <= 1);
        }
}

TEST_CASE("cpu-scalar follows every combination of options, one sample and two, real and complex") {
  for (const char* method : {"zoh", "foh_exact"})
    for (const char* A : {"real", "complex"})
      for (int bits = 0; bits < 1 << 7; ++bits) {
        const auto on = [bits](int i) { return (bits >> i & 1) != 0; };
        const auto projection = [&on](int i) { return std::string(on(i) ? "constant" : "variable"); };
        INFO(method << " " << A << " " << bits);
        CHECK(error_of({{"method", method},
                        {"A", A},
                        {"D", on(0)},
                        {"z", on(1)},
                        {"delta_bias", on(2)},
                        {"delta_softplus", on(3)},
                        {"initial_state", on(4)},
                        {"B", projection(5)},
                        {"C", projection(6)}}) <= 1);
      }
}
