// libssmbench_kernels.so has what the program has: the same implementations, claims, reasons and bits.

#ifdef SSMBENCH_KERNELS_LIBRARY
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <variant>

#include "base/errors.h"
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

/// With the sizes that tensor cores are used for, where the operation has them and they go together with the
/// others: they are hardly ever drawn.
Problem with_sizes_of_models(const Problem& drawn) {
  Axes sizes;
  for (const auto& [name, value] :
       Axes{{"dtype", std::string("bf16")}, {"headdim", std::int64_t{64}}, {"dstate", std::int64_t{128}}})
    if (drawn.op().find_axis(name) != nullptr) sizes[name] = value;
  try {
    return drawn.with(sizes);
  } catch (const ContractError&) {
    return drawn;
  }
}

/// Cases of an operation, every other one with the sizes of models.
std::vector<Case> draw_cases(CaseDraw& draw, const OpSpec& op) {
  constexpr int kCases = 200;
  std::vector<Case> cases;
  for (int i = 0; i < kCases; ++i) {
    cases.push_back(draw.draw(op, {.most_work = i % 2 == 0 ? 10000 : 1000}));
    if (i % 2 != 0) cases.back().problem = with_sizes_of_models(cases.back().problem);
  }
  return cases;
}

/// What tells kernels apart: dtypes and other choices, flags, and which options are there.
std::set<std::string> features(const Problem& problem) {
  std::set<std::string> features;
  for (const auto& [name, value] : problem.axes()) {
    if (const auto* choice = std::get_if<std::string>(&value)) features.insert(name + "=" + *choice);
    if (const auto* flag = std::get_if<bool>(&value)) features.insert(name + (*flag ? "=true" : "=false"));
    if (const auto* size = std::get_if<std::int64_t>(&value)) features.insert(name + (*size ? "" : "=0"));
  }
  return features;
}

/// Every implementation of the kind, on cases in which there is all that it was drawn with and can do.
void check_bits(DeviceKind kind) {
  const auto device = open_device(kind);
  CaseDraw draw(22);
  std::map<std::string, std::vector<Case>> cases;
  for (const OpSpec* op : ops_on(kind)) cases[op->name] = draw_cases(draw, *op);
  for (const auto& implementation : in_library()) {
    if (implementation.device != kind) continue;
    const Implementation& own = built_in(implementation);
    std::set<std::string> compared;
    for (const Case& drawn : cases.at(implementation.op)) {
      INFO(implementation.op << " " << implementation.name << " on " << drawn.id());
      const auto reason = own.unsupported(drawn.problem);
      REQUIRE(implementation.unsupported(drawn.problem) == reason);
      if (reason) continue;
      REQUIRE(implementation.workspace_bytes(drawn.problem) == own.workspace_bytes(drawn.problem));
      const std::size_t before = compared.size();
      compared.merge(features(drawn.problem));
      if (compared.size() == before || !own.deterministic) continue;
      const auto inputs = generate_inputs(drawn.problem, drawn.inputs, kNever);
      CHECK(same_bits(run_once(*device, implementation, drawn.problem, inputs),
                      run_once(*device, own, drawn.problem, inputs)));
    }
    INFO(implementation.op << " " << implementation.name);
    CHECK(!compared.empty());
  }
}

}  // namespace

TEST_CASE("the library has every implementation, with the claims that the program knows", "[library]") {
  // Those of the program, since these tests have one of their own.
  std::set<std::string> of_program;
  for (const auto& listed : Json::parse(run_ssmbench("list impls --json").out))
    if (!listed.at("device").get<std::string>().ends_with('*'))  // of teams, which a plugin cannot have
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
  check_bits(DeviceKind::cpu);
}

TEST_CASE("what the library computes on a GPU has the bits of what is built in", "[library][gpu]") {
  if (gpu_or_skip()) check_bits(DeviceKind::cuda);
}

TEST_CASE("the library exports the functions of a plugin and nothing else", "[library]") {
  const CommandResult symbols =
      run_shell("nm -D --defined-only '" SSMBENCH_KERNELS_LIBRARY "' | grep -v ' ssmbench_plugin_' | wc -l",
                SSMBENCH_SOURCE_DIR);
  CHECK(symbols.out == "0\n");
}
#endif
