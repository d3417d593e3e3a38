#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"

#include "base/errors.h"
#include "catch.h"
#include "model/arithmetic.h"
#include "model/problem.h"
#include "support/ssd_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::string error_of(Axes axes) {
  try {
    ssd_problem(std::move(axes));
  } catch (const ContractError& error) {
    return error.what();
  }
  return "";
}

std::string names_of(const Problem& problem) {
  std::string names;
  for (const auto& tensor : problem.tensors())
    names += (names.empty() ? "" : " ") + tensor.name + (tensor.role == Role::output ? ">" : "");
  return names;
}

const Axes kAll{{"D", "headdim"},       {"z", true},      {"dt_bias", true}, {"initial_states", true},
                {"final_states", true}, {"seq_idx", true}};

}  // namespace

TEST_CASE("a chunked scan checks its axes") {
  CHECK(error_of({{"headdim", size(257)}}) == "headdim 257 is over the limit of 256");
  CHECK(error_of({{"dstate", size(257)}}) == "dstate 257 is over the limit of 256");
  CHECK(error_of({{"headdim", size(256)}, {"dstate", size(256)}}) == "");
  CHECK(error_of({{"nheads", size(10)}, {"groups", size(4)}}) == "nheads 10 is not a multiple of groups 4");
  CHECK(error_of({{"nheads", size(4)}, {"groups", size(4)}}) == "");
  CHECK(error_of({{"chunk_size", size(0)}}) == "chunk_size must be an integer of at least 1, got 0");
  CHECK(error_of({{"chunk_size", size(257)}}) == "chunk_size 257 is over the limit of 256");
  for (const char* limit : {"", "1", "..", "0..", "0..x", "1..0", "nan..1", "0....1", "0..1 "})
    CHECK(error_of({{"dt_limit", limit}}) ==
          "dt_limit must be two numbers LOW..HIGH with LOW at most HIGH, got " + std::string(limit));
}

TEST_CASE("an interval has one spelling") {
  CHECK(ssd_problem({{"dt_limit", "0.0010..1e-1"}}).id() == ssd_problem({{"dt_limit", "0.001..0.1"}}).id());
  CHECK(ssd_problem({{"dt_limit", "-0..inf"}}).id() == ssd_problem().id());
  CHECK(ssd_problem({{"dt_limit", "0.001..0.1"}}).id() != ssd_problem().id());
  const SsdChunkScan scan(ssd_problem({{"dt_limit", "-inf..1e300"}}));
  CHECK(scan.dt_low == -std::numeric_limits<double>::infinity());
  CHECK(scan.dt_high == 1e300);
}

TEST_CASE("the tensors of a chunked scan, in the order of the definition") {
  CHECK(names_of(ssd_problem()) == "x dt A B C out>");
  CHECK(names_of(ssd_problem(kAll)) == "x dt A B C D z dt_bias initial_states seq_idx out> final_states>");
  CHECK(names_of(ssd_problem(kAll, ssd_chunk_scan_bwd())) ==
        "x dt A B C D z dt_bias initial_states seq_idx dout dfinal_states "
        "dx> ddt> dA> dB> dC> dD> dz> ddt_bias> dinitial_states>");
  CHECK(names_of(ssd_problem({}, ssd_chunk_scan_bwd())) == "x dt A B C dout dx> ddt> dA> dB> dC>");
}

TEST_CASE("shapes and dtypes of a chunked scan's tensors") {
  Axes axes{{"dtype", "bf16"},    {"batch", size(2)},  {"seqlen", size(3)}, {"nheads", size(8)},
            {"headdim", size(5)}, {"dstate", size(6)}, {"groups", size(4)}};
  axes.insert(kAll.begin(), kAll.end());
  std::map<std::string, std::string> shapes;
  for (const auto& tensor : ssd_problem(axes, ssd_chunk_scan_bwd()).tensors()) {
    CHECK(tensor.stored_shape() == tensor.shape);
    shapes[tensor.name] = std::string(name_of(tensor.dtype)) + " " + to_string(tensor.shape);
  }
  const std::map<std::string, std::string> wanted{
      {"x", "bf16 2×3×8×5"}, {"dt", "bf16 2×3×8"},  {"A", "f32 8"},
      {"B", "bf16 2×3×4×6"}, {"C", "bf16 2×3×4×6"}, {"D", "f32 8×5"},
      {"z", "bf16 2×3×8×5"}, {"dt_bias", "f32 8"},  {"initial_states", "f32 2×8×5×6"}};
  for (const auto& [name, shape] : wanted) {
    CHECK(shapes.at(name) == shape);
    CHECK(shapes.at("d" + name) == shape);
  }
  CHECK(shapes.at("seq_idx") == "i32 2×3");
  CHECK_FALSE(shapes.contains("dseq_idx"));
  CHECK(shapes.at("dout") == shapes.at("x"));
  CHECK(shapes.at("dfinal_states") == shapes.at("initial_states"));
}

TEST_CASE("claims of arithmetic") {
  for (const auto name : math_names()) CHECK(name_of(*parse_math(name)) == name);
  CHECK_FALSE(parse_math("fp8"));
  CHECK(unit_roundoff(Math::tf32) == 0x1p-11);
  CHECK(Arithmetic{Math::tf32, DType::f32}.operand_roundoff() == 0x1p-11);
  CHECK(Arithmetic{Math::f32, DType::bf16}.operand_roundoff() == 0x1p-8);
}
