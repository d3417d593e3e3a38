// libssmbench_kernels.so has what the program has: the same implementations, claims, reasons and bits.

#ifdef SSMBENCH_KERNELS_LIBRARY
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "catch.h"
#include "device/device.h"
#include "inputs/inputs.h"
#include "plugin/plugin.h"
#include "support/find_implementation.h"
#include "support/gpu.h"
#include "support/random_cases.h"
#include "support/run_command.h"
#include "sweep/prepared_run.h"

using namespace ssmbench;
using namespace ssmbench::test;
using Json = nlohmann::json;

namespace {

const std::atomic<bool> kNever{false};
const std::string kPrefix = "lib-";

const std::vector<Implementation>& in_library() {
  static const auto all = load_plugin(SSMBENCH_KERNELS_LIBRARY);
  return all;
}

const Implementation& built_in(const Implementation& of_library) {
  REQUIRE(of_library.name.starts_with(kPrefix));
  return find_implementation(of_library.op, of_library.name.substr(kPrefix.size()));
}

bool same_bits(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].buffer.data(), b[i].buffer.data(), a[i].spec.bytes()) != 0) return false;
  return true;
}

/// Draws cases of every operation for every implementation of the kind.
void check_bits(DeviceKind kind, int cases_per_implementation) {
  const auto device = open_device(kind);
  CaseDraw draw(22);
  std::set<std::string> compared;
  for (const auto& implementation : in_library()) {
    if (implementation.device != kind) continue;
    const Implementation& own = built_in(implementation);
    for (int i = 0; i < cases_per_implementation; ++i) {
      const Case drawn = draw.draw(*find_op(implementation.op));
      INFO(implementation.name << " on " << drawn.id());
      const auto reason = own.unsupported(drawn.problem);
      CHECK(implementation.unsupported(drawn.problem) == reason);
      if (reason) continue;
      CHECK(implementation.workspace_bytes(drawn.problem) == own.workspace_bytes(drawn.problem));
      if (!own.deterministic) continue;
      const auto inputs = generate_inputs(drawn.problem, drawn.inputs, kNever);
      CHECK(same_bits(run_once(*device, implementation, drawn.problem, inputs),
                      run_once(*device, own, drawn.problem, inputs)));
      compared.insert(implementation.op);
    }
  }
  for (const OpSpec* op : ops_on(kind)) {
    INFO(op->name);
    CHECK(compared.contains(op->name));
  }
}

}  // namespace

TEST_CASE("the library has every implementation, with the claims that the program knows", "[library]") {
  // Those of the program, since these tests have one of their own.
  std::set<std::string> of_program;
  for (const auto& listed : Json::parse(run_ssmbench("list impls --json").out))
    of_program.insert(listed.at("op").get<std::string>() + " " + listed.at("name").get<std::string>());
  std::set<std::string> of_library;
  for (const auto& implementation : in_library())
    of_library.insert(implementation.op + " " + implementation.name.substr(kPrefix.size()));
  CHECK(of_library == of_program);
  for (const auto& implementation : in_library()) {
    INFO(implementation.op << " " << implementation.name);
    const Implementation& own = built_in(implementation);
    CHECK(implementation.device == own.device);
    CHECK(implementation.summary == own.summary);
    CHECK(implementation.deterministic == own.deterministic);
    for (const DType io : {DType::f32, DType::f16, DType::bf16})
      CHECK(implementation.arithmetic(io) == own.arithmetic(io));
  }
}

TEST_CASE("what the library computes has the bits of what is built in", "[library]") {
  check_bits(DeviceKind::cpu, 12);
}

TEST_CASE("what the library computes on a GPU has the bits of what is built in", "[library][gpu]") {
  if (gpu_or_skip()) check_bits(DeviceKind::cuda, 6);
}

TEST_CASE("the library exports the functions of a plugin and nothing else", "[library]") {
  const CommandResult symbols =
      run_shell("nm -D --defined-only '" SSMBENCH_KERNELS_LIBRARY "' | grep -v ' ssmbench_plugin_' | wc -l",
                SSMBENCH_SOURCE_DIR);
  CHECK(symbols.out == "0\n");
}
#endif
