#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <string>
#include <vector>

#include "catch.h"
#include "config/config.h"
#include "config/config_files.h"
#include "config/sweep.h"
#include "ops/selective_scan/selective_scan.h"

using namespace ssmbench;
using test::config_of;
using test::kOneCase;
using test::load;

namespace {

/// One axis of all cases, in order, "1 2 4".
std::string column(const std::vector<Case>& cases, const std::string& axis) {
  std::vector<std::string> values;
  for (const auto& one : cases) values.push_back(to_string(one.problem.value(axis)));
  return fmt::format("{}", fmt::join(values, " "));
}

const std::string kRest = R"("dim": 4, "dstate": 2)";  // what most tests do not vary

/// How often a sweep asks its operation.
struct Asked {
  std::atomic<std::size_t> tensors = 0, contradiction = 0;
} asked;

/// selective_scan_fwd that counts.
const OpSpec& counting_op() {
  static const OpSpec spec = [] {
    OpSpec op = selective_scan_fwd();
    op.tensors = [](const Problem& problem) {
      ++asked.tensors;
      return selective_scan_fwd().tensors(problem);
    };
    op.contradiction = [](const Problem& problem) {
      ++asked.contradiction;
      return selective_scan_fwd().contradiction(problem);
    };
    return op;
  }();
  return spec;
}

Axis sizes_of(const std::string& name, std::int64_t count) {
  Axis axis{name, {}};
  for (std::int64_t i = 1; i <= count; ++i) axis.points.push_back({{name, i}});
  return axis;
}

}  // namespace

TEST_CASE("an operation is asked once for each case of a sweep, and for no tensors where they are checked") {
  constexpr std::size_t kCases = 3000;
  Sweep sweep;
  sweep.op = &counting_op();
  sweep.axes = {sizes_of("batch", 5),
                {"dtype", {{{"dtype", "f32"}}, {{"dtype", "bf16"}}}},
                sizes_of("dim", 10),
                {"dstate", {{{"dstate", std::int64_t{2}}}}},
                sizes_of("seqlen", 30)};
  for (const Checks checks : {Checks::all, Checks::none}) {
    asked.tensors = asked.contradiction = 0;
    const auto cases = expand(sweep, checks);
    REQUIRE(cases.size() == kCases);
    CHECK(asked.contradiction == kCases);
    CHECK(asked.tensors == (checks == Checks::all ? kCases : 0));
    for (std::size_t i = 0; i < kCases; ++i) {  // across the borders of what a thread does
      CHECK(cases[i].problem.size("seqlen") == static_cast<std::int64_t>(i % 30 + 1));
      CHECK(cases[i].problem.size("dim") == static_cast<std::int64_t>(i / 30 % 10 + 1));
      CHECK(cases[i].problem.choice("dtype") == (i / 300 % 2 == 0 ? "f32" : "bf16"));
      CHECK(cases[i].problem.size("batch") == static_cast<std::int64_t>(i / 600 + 1));
    }
  }
}

TEST_CASE("what a shape sets does not stay for the next shape, which is silent about it") {
  const auto cases = load(config_of(R"("batch": 1, "dtype": "f32", "seqlen": [3, 5],
      "shape": [{"dim": 4, "dstate": 2, "groups": 2}, {"dim": 6, "dstate": 3}])"));
  CHECK(column(cases, "seqlen") == "3 3 5 5");
  CHECK(column(cases, "dim") == "4 6 4 6");
  CHECK(column(cases, "groups") == "2 1 2 1");
}

TEST_CASE("axes are crossed in file order, the last one fastest") {
  const auto cases = load(config_of(kRest + R"(, "seqlen": [9, 7], "dtype": "f32", "batch": [3, 1, 2])"));
  CHECK(column(cases, "seqlen") == "9 9 9 7 7 7");
  CHECK(column(cases, "batch") == "3 1 2 3 1 2");
}

TEST_CASE("sweeps follow each other, each case with its sweep's place and budget") {
  const std::string sweep =
      R"({"op": "selective_scan_fwd", "axes": {"dim": 4, "dstate": 2, "batch": 1, "dtype": "f32", )";
  const auto cases =
      load(R"({"format": "ssmbench-config/1", "sweeps": [)" + sweep + R"("seqlen": 5}, "timing": false}, )" +
           sweep + R"("seqlen": 3}, "budget_ms": 2.5}]})");
  REQUIRE(cases.size() == 2);
  CHECK(column(cases, "seqlen") == "5 3");
  CHECK(cases[0].source.pointer == "/sweeps/0");
  CHECK(cases[1].source.pointer == "/sweeps/1");
  CHECK(cases[1].source.file.find("test.json") != std::string::npos);
  CHECK_FALSE(cases[0].budget_ms);
  CHECK(cases[1].budget_ms == 2.5);
  CHECK_FALSE(cases[0].timed);
  CHECK(cases[1].timed);
}

TEST_CASE("a budget can be given as frames per second") {
  const auto cases =
      load(config_of(kRest + R"(, "seqlen": 9, "dtype": "f32", "batch": 1)", R"(, "fps": 50)"));
  CHECK(cases.at(0).budget_ms == 20);
}

TEST_CASE("ranges multiply or add and end at or before their end") {
  const auto lengths = [](const std::string& range) {
    return column(load(config_of(kRest + R"(, "batch": 1, "dtype": "f32", "seqlen": )" + range)), "seqlen");
  };
  CHECK(lengths(R"({"from": 512, "to": 8192, "times": 4})") == "512 2048 8192");
  CHECK(lengths(R"({"from": 3, "to": 23, "times": 2})") == "3 6 12");
  CHECK(lengths(R"({"from": 64, "to": 192, "step": 64})") == "64 128 192");
  CHECK(lengths(R"({"from": 1, "to": 9, "step": 5})") == "1 6");
  CHECK(lengths(R"({"from": 7, "to": 7, "times": 2})") == "7");
}

TEST_CASE("a range may end at the largest size without overflow") {
  const auto cases = load(config_of(R"("dim": 1, "dstate": 1, "batch": 1, "dtype": "f32",
                                       "seqlen": {"from": 1073741824, "to": 2147483648, "times": 2})"));
  CHECK(column(cases, "seqlen") == "1073741824 2147483648");
}

TEST_CASE("zipped axes advance together, at the place of the first of them") {
  const auto cases =
      load(config_of(kRest + R"(, "batch": [1, 2], "dtype": ["f32", "f16"], "seqlen": [10, 20])",
                     R"(, "zip": [["seqlen", "batch"]])"));
  CHECK(column(cases, "batch") == "1 1 2 2");
  CHECK(column(cases, "seqlen") == "10 10 20 20");
  CHECK(column(cases, "dtype") == "f32 f16 f32 f16");
}

TEST_CASE("shapes set several axes, by name or inline, and can be zipped") {
  const std::string shapes = R"(, "shapes": {"a": {"dim": 8, "dstate": 16}, "b": {"dim": 6, "dstate": 3}})";
  const std::string axes =
      R"("shape": ["b", {"dim": 5, "dstate": 1}, "a"], "batch": 1, "seqlen": [7, 8, 9], "dtype": "f32")";
  const auto zipped = load(config_of(axes, R"(, "zip": [["shape", "seqlen"]])", shapes));
  CHECK(column(zipped, "dim") == "6 5 8");
  CHECK(column(zipped, "dstate") == "3 1 16");
  CHECK(column(zipped, "seqlen") == "7 8 9");
  CHECK(column(load(config_of(axes, "", shapes)), "dim") == "6 6 6 5 5 5 8 8 8");
}

TEST_CASE("input axes describe the inputs, and are silent by default") {
  const auto silent = load(config_of(kOneCase));
  REQUIRE(silent.size() == 1);
  CHECK(silent[0].inputs.distribution == "mamba");
  CHECK(silent[0].inputs.values == "native");
  CHECK(silent[0].inputs.seed == 0);
  const auto cases = load(config_of(
      kOneCase + R"(, "inputs": "large_A", "values": "shared", "seed": {"from": 0, "to": 10, "step": 5})"));
  REQUIRE(cases.size() == 3);
  CHECK(cases[1].inputs.distribution == "large_A");
  CHECK(cases[1].inputs.values == "shared");
  CHECK(cases[1].inputs.seed == 5);
}

TEST_CASE("option --set replaces an axis in its place") {
  const auto config = config_of(kRest + R"(, "seqlen": [9, 7], "dtype": "f32", "batch": [3, 1])");
  const auto cases = load(config, {"seqlen=2:8:*2,5"});
  CHECK(column(cases, "seqlen") == "2 2 4 4 8 8 5 5");
  CHECK(column(cases, "batch") == "3 1 3 1 3 1 3 1");
  CHECK(column(load(config, {"batch=64:256:+96"}), "batch") == "64 160 256 64 160 256");
}

TEST_CASE("option --set adds an axis that the sweep is silent about") {
  const auto cases = load(config_of(kOneCase), {"z=true,false", "seed=4", "layout=bld"});
  CHECK(column(cases, "z") == "true false");
  CHECK(column(cases, "layout") == "bld bld");
  CHECK(cases.at(0).inputs.seed == 4);
}

TEST_CASE("option --set replaces what a shape sets, and keeps the rest of the shape") {
  const auto config = config_of(
      R"("shape": [{"dim": 8, "dstate": 16}, {"dim": 6, "dstate": 16}], "batch": 1, "seqlen": 7, "dtype": "f32")");
  const auto cases = load(config, {"dim=10"});  // the two shapes become one
  CHECK(column(cases, "dim") == "10");
  CHECK(column(cases, "dstate") == "16");
}

TEST_CASE("option --set of a shape replaces the sizes that it sets") {
  const auto config = config_of(kOneCase, "", R"(, "shapes": {"a": {"dim": 12, "dstate": 3}})");
  const auto cases = load(config, {"shape=a"});
  CHECK(column(cases, "dim") == "12");
  CHECK(column(cases, "dstate") == "3");
  CHECK(column(cases, "seqlen") == "8");
}

TEST_CASE("an axis that is set leaves its zip group") {
  const auto config =
      config_of(kRest + R"(, "batch": [1, 2, 3], "seqlen": [10, 20, 30], "dtype": ["f32", "f16", "bf16"])",
                R"(, "zip": [["batch", "seqlen", "dtype"]])");
  const auto cases = load(config, {"seqlen=5,6"});
  CHECK(column(cases, "batch") == "1 1 2 2 3 3");
  CHECK(column(cases, "dtype") == "f32 f32 f16 f16 bf16 bf16");
  CHECK(column(cases, "seqlen") == "5 6 5 6 5 6");
}

TEST_CASE("option --set reaches every sweep of every file that has the axis") {
  const test::TemporaryFolder folder;
  const auto one =
      folder.write("one.json", config_of(kRest + R"(, "batch": 1, "dtype": "f32", "seqlen": 5)"));
  const auto two =
      folder.write("two.json", config_of(kRest + R"(, "batch": 1, "dtype": "f16", "seqlen": 6)"));
  const auto cases = load_configs({one, two}, {parse_override("seqlen=3")}, false);
  CHECK(column(cases, "dtype") == "f32 f16");
  CHECK(column(cases, "seqlen") == "3 3");
}

TEST_CASE("option --set of an axis that goes with a choice reaches the sweeps that set it") {
  const std::string sweep = R"({"op": "selective_state_update",
      "axes": {"batch": 1, "dstate": 2, "dtype": "f32", )";
  const auto config = R"({"format": "ssmbench-config/1", "sweeps": [)" + sweep +
                      R"("form": "mamba1", "dim": 4}}, )" + sweep +
                      R"("form": "mamba2", "shape": {"nheads": 3, "headdim": 2}}}]})";
  const auto cases = load(config, {"nheads=5,6"});
  CHECK(column(cases, "form") == "mamba1 mamba2 mamba2");
  CHECK(cases.at(0).problem.size("dim") == 4);
  CHECK(cases.at(1).problem.size("nheads") == 5);
  CHECK(cases.at(2).problem.size("nheads") == 6);
}

TEST_CASE("quick keeps batch 1 and the shortest seqlen of each sweep") {
  const auto config =
      config_of(kRest + R"(, "batch": [2, 8], "seqlen": [64, 16, 32], "dtype": ["f32", "f16"])");
  const auto cases = load(config, {}, true);
  CHECK(column(cases, "batch") == "1 1");
  CHECK(column(cases, "seqlen") == "16 16");
  CHECK(column(cases, "dtype") == "f32 f16");
}

TEST_CASE("quick keeps what stands beside the smallest batch and the shortest seqlen in a zip") {
  const auto quick = [](const std::string& axes, const std::string& zip) {
    return load(config_of(kRest + axes, R"(, "zip": [)" + zip + "]"), {}, true);
  };
  auto cases =
      quick(R"(, "batch": [8, 2], "seqlen": [64, 16], "dtype": ["f32", "f16"])", R"(["batch", "dtype"])");
  CHECK(column(cases, "batch") == "1");
  CHECK(column(cases, "dtype") == "f16");
  cases = quick(R"(, "batch": [2, 4, 8], "seqlen": [64, 16, 16], "dtype": ["f32", "f16", "bf16"])",
                R"(["dtype", "seqlen"])");
  CHECK(column(cases, "batch") == "1 1");
  CHECK(column(cases, "seqlen") == "16 16");
  CHECK(column(cases, "dtype") == "f16 bf16");
  cases = quick(R"(, "batch": [1, 4, 8], "seqlen": [64, 16, 16], "dtype": ["f32", "f16", "bf16"])",
                R"(["dtype", "seqlen", "batch"])");  // the shortest first
  CHECK(column(cases, "dtype") == "f16");
}

TEST_CASE("quick finds the shortest seqlen in shapes too") {
  const auto config = config_of(
      R"("shape": [{"seqlen": 9, "dim": 4}, {"seqlen": 5, "dim": 8}], "dstate": 2, "batch": 4, "dtype": "f32")");
  const auto cases = load(config, {}, true);
  CHECK(column(cases, "seqlen") == "5 5");
  CHECK(column(cases, "dim") == "4 8");
  CHECK(column(cases, "batch") == "1 1");
}

TEST_CASE("option --set wins over quick") {
  const auto cases =
      load(config_of(kRest + R"(, "batch": [2, 8], "seqlen": [64, 16], "dtype": "f32")"), {"batch=4"}, true);
  CHECK(column(cases, "batch") == "4");
  CHECK(column(cases, "seqlen") == "16");
}

TEST_CASE("check_memory lets through what just fits") {
  const auto cases = load(config_of(kOneCase));
  const MemoryNeed need{100, 50};
  CHECK_NOTHROW(check_memory(cases[0], need, 100, 50));
  CHECK_NOTHROW(check_memory(cases[0], need, 100, std::nullopt));
  CHECK_THROWS_AS(check_memory(cases[0], need, 99, 50), UsageError);
  CHECK_THROWS_AS(check_memory(cases[0], need, 100, 49), UsageError);
}
