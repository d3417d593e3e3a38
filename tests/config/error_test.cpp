#include <cstdint>
#include <string>

#include "catch.h"
#include "config/config.h"
#include "config/config_files.h"
#include "support/op_names.h"

using namespace ssmbench;
using namespace ssmbench::test;
using test::config_of;
using test::error_of;
using test::kOneCase;

namespace {

const std::string kAllMethods =
    "zoh, foh, bilinear, bilinear_flipped, poly, highorder, rk4, vim_foh, vim_poly, vim_highorder, "
    "foh_exact, "
    "trapezoidal";

const std::string kAllAxes =
    "shape, method, dtype, layout, batch, dim, seqlen, dstate, groups, A, B, C, D, z, delta_bias, "
    "delta_softplus, initial_state, x, cu_seqlens, sequences, lengths, inputs, values, seed";
const std::string kRange =
    R"(expected a range, {"from": 512, "to": 65536, "times": 2} or {"from": 64, "to": 256, "step": 64})";
const std::string kZipGroup =
    "expected a group of two or more of the sweep's axes, each in one group only and all with equally many "
    "values";
const std::string kOneId = "selective_scan_fwd-f32-b1-d4-l8-n2-D-z-bias-softplus-mamba-native-s0";

/// The error of one case with another axis added.
std::string error_with(const std::string& axis) {
  return error_of(config_of(kOneCase + ", " + axis));
}

std::string override_error(const std::string& text) {
  try {
    parse_override(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the config that the error tests break is right by itself") {
  CHECK(error_of(config_of(kOneCase)).empty());
}

TEST_CASE("a file that cannot be read") {
  const test::TemporaryFolder folder;
  const auto missing = (folder.path() / "missing.json").string();
  CHECK_THROWS_WITH(load_config(missing, {}, false),
                    missing + ": cannot be read (No such file or directory); expected a config file");
  CHECK_THROWS_WITH(load_config(folder.path(), {}, false),
                    folder.path().string() + ": cannot be read (it is a directory); expected a config file");
}

TEST_CASE("text that is not JSON is shown with line and column") {
  CHECK(error_of("{\"format\":\n  nonsense}") ==
        "test.json: not JSON (parse error at line 2, column 4: syntax error while parsing value - invalid "
        "literal; last read: "
        "'\"format\":<U+000A>  no'); expected a config in JSON");
  CHECK(error_of("{\"format\":\n  [1,") ==
        "test.json: not JSON (parse error at line 2, column 6: syntax error while parsing value - unexpected "
        "end of input; "
        "expected '[', '{', or a literal); expected a config in JSON");
  CHECK(error_of(config_of(kOneCase) + '"' + std::string(5000, 'x')).size() < 300);
}

TEST_CASE("every truncation of a config is one UsageError line, and nothing else") {
  const std::string whole = test::read_file(SSMBENCH_SOURCE_DIR "/configs/mamba-370m.json");
  const std::size_t last_brace = whole.rfind('}');
  REQUIRE(last_brace != std::string::npos);
  for (std::size_t length = 0; length <= last_brace; ++length) {
    const std::string message = error_of(whole.substr(0, length));  // anything but UsageError fails the test
    if (message.find("test.json: not JSON (") != 0 || message.find('\n') != std::string::npos)
      FAIL("after " << length << " bytes: " << message);
  }
  CHECK(error_of(whole.substr(0, last_brace + 1)).empty());
}

TEST_CASE("a config with one byte changed is accepted or refused in one line") {
  const std::string whole =
      config_of(kOneCase + R"(, "z": [true, false], "seed": {"from": 0, "to": 2, "step": 1})",
                R"(, "zip": [["batch", "dim"]], "budget_ms": 1)", R"(, "shapes": {"a": {"dim": 8}})");
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const char byte : {'"', '{', ']', '0', '-', '\n', '\xff', '\0'}) {
      std::string text = whole;
      text[at] = byte;
      const std::string message = error_of(text);
      refused += message.empty() ? 0 : 1;
      if (message.find('\n') != std::string::npos) FAIL("byte " << at << ": " << message);
    }
  CHECK(refused > whole.size());
}

TEST_CASE("nesting is limited") {
  const std::string nested = error_of(std::string(100'000, '['));
  CHECK(nested.find("test.json: /0/0/") == 0);
  CHECK(nested.find(": nested too deeply; expected a config, at most a few levels deep") !=
        std::string::npos);
}

TEST_CASE("a key that is there twice") {
  CHECK(error_with(R"("batch": 2)") ==
        R"(test.json: /sweeps/0/axes: the key "batch" is there twice; expected each key once)");
  CHECK(error_of(R"({"shapes": {"a": [0, {"b": 1, "c": {"b": 1}, "b": 2}]}})") ==
        R"(test.json: /shapes/a/1: the key "b" is there twice; expected each key once)");
}

TEST_CASE("foreign JSON") {
  const std::string root = R"(expected an object with "format": "ssmbench-config/1" and a list "sweeps")";
  CHECK(error_of("[1]") == "test.json: /: got [1]; " + root);
  CHECK(error_of(R"({"name": "package", "version": [0]})") == "test.json: /: \"format\" is missing; " + root);
  CHECK(
      error_of(R"({"format": "ssmbench-config/2", "sweeps": [{"op": 0}]})") ==
      R"(test.json: /format: got "ssmbench-config/2"; expected "ssmbench-config/1", the format this build reads)");
  CHECK(error_of(R"({"format": "ssmbench-config/1"})") == "test.json: /: \"sweeps\" is missing; " + root);
  CHECK(error_of(R"({"format": "ssmbench-config/1", "sweeps": []})") ==
        R"(test.json: /sweeps: got []; expected a non-empty list of sweeps, each with "op" and "axes")");
}

TEST_CASE("unknown keys are named, with the known ones and the nearest") {
  CHECK(error_with(R"("seqlne": 3)") ==
        R"(test.json: /sweeps/0/axes: unknown key "seqlne" (did you mean "seqlen"?); expected one of )" +
            kAllAxes);
  CHECK(error_with(R"("temperature": 3)") ==
        R"(test.json: /sweeps/0/axes: unknown key "temperature"; expected one of )" + kAllAxes);
  CHECK(
      error_of(config_of(kOneCase, R"(, "budgetms": 3)")) ==
      R"(test.json: /sweeps/0: unknown key "budgetms" (did you mean "budget_ms"?); expected one of op, description, axes, zip, budget_ms, fps, timing, impl, tolerance)");
  CHECK(
      error_of(config_of(kOneCase, "", R"(, "sweep": [])")) ==
      R"(test.json: /: unknown key "sweep" (did you mean "sweeps"?); expected one of $schema, format, description, shapes, sweeps, studies)");
  CHECK(
      error_of(config_of(kOneCase, "", R"(, "shapes": {"a": {"dmi": 3}})"))
          .starts_with(
              R"(test.json: /shapes/a: unknown key "dmi" (did you mean "dim"?); expected one of batch, dim, )"));
}

TEST_CASE("sizes that are no sizes") {
  const std::string expected = "; expected an integer from 1 to 2147483648";
  CHECK(error_with(R"("groups": 0)") == "test.json: /sweeps/0/axes/groups: got 0" + expected);
  CHECK(error_with(R"("groups": -4)") == "test.json: /sweeps/0/axes/groups: got -4" + expected);
  CHECK(error_with(R"("groups": 1.5)") == "test.json: /sweeps/0/axes/groups: got 1.5" + expected);
  CHECK(error_with(R"("groups": 2147483649)") ==
        "test.json: /sweeps/0/axes/groups: got 2147483649" + expected);
  // past the signed and the unsigned 64-bit integers
  CHECK(error_with(R"("groups": 9223372036854775808)") ==
        "test.json: /sweeps/0/axes/groups: got 9223372036854775808" + expected);
  CHECK(error_with(R"("groups": 18446744073709551617)") ==
        "test.json: /sweeps/0/axes/groups: got 1.8446744073709552e+19" + expected);
  CHECK(error_with(R"("groups": [1, 2, 0])") == "test.json: /sweeps/0/axes/groups/2: got 0" + expected);
  CHECK(error_of(config_of(kOneCase, "", R"(, "shapes": {"a": {"dim": "x"}})")) ==
        R"(test.json: /shapes/a/dim: got "x")" + expected);
  CHECK(
      error_with(R"("groups": "1")") ==
      R"(test.json: /sweeps/0/axes/groups: got "1"; expected an integer from 1 to 2147483648, a non-empty list of them, or a range)");
  CHECK(
      error_with(R"("groups": null)") ==
      R"(test.json: /sweeps/0/axes/groups: got null; expected an integer from 1 to 2147483648, a non-empty list of them, or a range)");
  CHECK(error_with(R"("seed": -1)") ==
        "test.json: /sweeps/0/axes/seed: got -1; expected an integer from 0 to 9007199254740991");
}

TEST_CASE("empty lists") {
  CHECK(error_with(R"("groups": [])") ==
        "test.json: /sweeps/0/axes/groups: got []; expected a non-empty list of integers");
  CHECK(error_with(R"("z": [])") ==
        "test.json: /sweeps/0/axes/z: got []; expected a non-empty list of true or false");
  CHECK(error_with(R"("layout": [])") ==
        "test.json: /sweeps/0/axes/layout: got []; expected a non-empty list of bdl, bld");
  CHECK(error_with(R"("shape": [])") ==
        "test.json: /sweeps/0/axes/shape: got []; expected a non-empty list of shapes");
  CHECK(
      error_with(R"("shape": {})") ==
      R"(test.json: /sweeps/0/axes/shape: got {}; expected a shape: an object of sizes, {"dim": 2048, "dstate": 16})");
}

TEST_CASE("unknown words list the known ones") {
  CHECK(error_with(R"("method": "euler")") ==
        R"(test.json: /sweeps/0/axes/method: got "euler"; expected one of )" + kAllMethods);
  CHECK(error_with(R"("layout": ["bdl", "dbl"])") ==
        R"(test.json: /sweeps/0/axes/layout/1: got "dbl"; expected one of bdl, bld)");
  CHECK(
      error_with(R"("inputs": "normal")") ==
      R"(test.json: /sweeps/0/axes/inputs: got "normal"; expected one of mamba, slow_decay, large_A, tiny_delta, trained)");
  CHECK(error_with(R"("z": ["yes"])") ==
        R"(test.json: /sweeps/0/axes/z/0: got "yes"; expected true or false)");
  CHECK(error_with(R"("z": 1)") ==
        "test.json: /sweeps/0/axes/z: got 1; expected true, false, or a list of both");
  CHECK(error_of(R"({"format": "ssmbench-config/1", "sweeps": [{"op": "scan", "axes": {}}]})") ==
        R"(test.json: /sweeps/0/op: got "scan"; expected one of )" + op_names());
}

TEST_CASE("a sweep that lacks something") {
  CHECK(
      error_of(R"({"format": "ssmbench-config/1", "sweeps": [{"op": "selective_scan_fwd"}]})") ==
      R"(test.json: /sweeps/0: "axes" is missing; expected a sweep: an object with "op" and "axes", and optionally "zip", "budget_ms" or "fps", "timing", "impl", "tolerance", "description")");
  CHECK(error_of(config_of(R"("batch": 1, "dim": 4, "seqlen": 8, "dstate": 2)")) ==
        "test.json: /sweeps/0/axes: selective_scan_fwd needs the axis 'dtype'; expected axes that are "
        "complete and go together");
  CHECK(error_of(config_of(kOneCase, R"(, "budget_ms": 0)")) ==
        "test.json: /sweeps/0/budget_ms: got 0; expected a latency in milliseconds, above 0");
  CHECK(error_of(config_of(kOneCase, R"(, "fps": -60)")) ==
        "test.json: /sweeps/0/fps: got -60; expected frames per second, above 0: a budget of 1000/fps "
        "milliseconds");
  CHECK(error_of(config_of(kOneCase, R"(, "fps": 1e-306)")) ==  // a budget of more than a double holds
        "test.json: /sweeps/0/fps: got 1e-306; expected frames per second, above 0: a budget of 1000/fps "
        "milliseconds");
  CHECK(error_of(config_of(kOneCase, R"(, "fps": 60, "timing": false)")) ==
        "test.json: /sweeps/0/timing: got false, and there is a budget; expected true, or no budget");
  CHECK(error_of(config_of(kOneCase, R"(, "timing": 0)")) ==
        "test.json: /sweeps/0/timing: got 0; expected true or false: whether cases that pass are timed");
  CHECK(error_of(config_of(kOneCase, R"(, "fps": 60, "budget_ms": 16)")) ==
        "test.json: /sweeps/0: \"budget_ms\" and \"fps\" are the same budget; expected one of them");
}

TEST_CASE("a tolerance of the config's own") {
  CHECK(error_of(config_of(kOneCase, R"(, "tolerance": {"out": {"abs": 1e-3}})")) == "");
  CHECK(error_of(config_of(kOneCase, R"(, "tolerance": {"du": {"abs": 1e-3}})")) ==
        "test.json: /sweeps/0/tolerance: no case of the sweep has an output \"du\"; expected one of "
        "last_state, out");
  CHECK(error_of(config_of(kOneCase, R"(, "tolerance": {"out": {"rel": -1}})")) ==
        "test.json: /sweeps/0/tolerance/out/rel: got -1; expected a relative error, 0 or more");
  CHECK(
      error_of(config_of(kOneCase, R"(, "tolerance": {"out": {"rtol": 1}})")) ==
      R"(test.json: /sweeps/0/tolerance/out: unknown key "rtol" (did you mean "rel"?); expected one of abs, rel)");
}

TEST_CASE("long values are shortened") {
  const std::string message = error_with(R"("layout": ")" + std::string(500, 'x') + '"');
  CHECK(message ==
        "test.json: /sweeps/0/axes/layout: got \"" + std::string(56, 'x') + "...; expected one of bdl, bld");
}

TEST_CASE("bad ranges") {
  const std::string place = "test.json: /sweeps/0/axes/groups";
  CHECK(error_with(R"("groups": {"from": 3})") == place + R"(: "to" is missing; )" + kRange);
  CHECK(error_with(R"("groups": {"from": 4, "to": 2, "step": 1})") ==
        place + ": the range is empty: from 4 is above to 2; " + kRange);
  CHECK(error_with(R"("groups": {"from": 1, "to": 2})") == place + R"(: got {"from":1,"to":2}; )" + kRange);
  CHECK(error_with(R"("groups": {"from": 1, "to": 2, "step": 1, "times": 2})") ==
        place + R"(: got {"from":1,"to":2,"step":1,"times":2}; )" + kRange);
  CHECK(error_with(R"("groups": {"from": 1, "to": 2, "times": 1})") ==
        place + "/times: got 1; expected a factor of at least 2");
  CHECK(error_with(R"("groups": {"from": 1, "to": 2, "step": 0})") ==
        place + "/step: got 0; expected an integer from 1 to 2147483648");
  CHECK(error_with(R"("groups": {"from": 1, "to": 2, "by": 1})") ==
        place + R"(: unknown key "by" (did you mean "to"?); expected one of from, to, step, times)");
  CHECK(error_with(R"("groups": {"from": 1, "to": 100001, "step": 1})") ==
        place + ": the range has more than 100000 values; " + kRange);
  CHECK(error_with(R"("seed": {"from": 0, "to": 2, "times": 2})") ==
        R"(test.json: /sweeps/0/axes/seed: unknown key "times"; expected one of from, to, step)");
}

TEST_CASE("shapes that do not fit") {
  const std::string shapes = R"(, "shapes": {"a": {"dim": 8}})";
  CHECK(error_of(config_of(R"("shape": ["a", "b"])", "", shapes)) ==
        R"(test.json: /sweeps/0/axes/shape/1: no shape is named "b"; expected a name that "shapes" defines)");
  CHECK(error_of(config_of(R"("shape": "b")", "", "")) ==
        R"(test.json: /sweeps/0/axes/shape: no shape is named "b"; expected a name that "shapes" defines)");
  CHECK(error_of(config_of(R"("dim": 4, "shape": "a")", "", shapes)) ==
        R"(test.json: /sweeps/0/axes: "dim" is set by "dim" and by "shape"; expected each axis once)");
}

TEST_CASE("bad zips") {
  const std::string place = "test.json: /sweeps/0/zip/";
  CHECK(error_of(config_of(kOneCase, R"(, "zip": [["batch", "groups"]])")) ==
        place + R"(0: the sweep has no axis "groups"; )" + kZipGroup);
  CHECK(error_of(config_of(kOneCase + R"(, "z": [true, false])",
                           R"(, "zip": [["batch", "dim"], ["seqlen", "z"]])")) ==
        place + R"(1: "seqlen" and "z" have 1 and 2 values; )" + kZipGroup);
  CHECK(error_of(config_of(kOneCase, R"(, "zip": [["batch", "dim"], ["dim", "seqlen"]])")) ==
        place + R"(1: "dim" is zipped twice; )" + kZipGroup);
  CHECK(error_of(config_of(kOneCase, R"(, "zip": [["batch"]])")) ==
        place + R"(0: got ["batch"]; )" + kZipGroup);
  CHECK(error_of(config_of(kOneCase, R"(, "zip": ["batch"])")) == place + R"(0: got "batch"; )" + kZipGroup);
}

TEST_CASE("axes that contradict each other") {
  CHECK(error_with(R"("groups": [1, 3])") ==
        "test.json: /sweeps/0/axes: dim 4 is not a multiple of groups 3; expected axes that are complete and "
        "go together");
}

TEST_CASE("axes of decoding that contradict each other, or the form") {
  const auto error_of_step = [](const std::string& axes) {
    return error_of(R"({"format": "ssmbench-config/1", "sweeps": [{"op": "selective_state_update",
        "axes": {"batch": 1, "dtype": "f32", )" +
                    axes + "}}]}");
  };
  const std::string place = "test.json: /sweeps/0/axes: ";
  const std::string expected = "; expected axes that are complete and go together";
  CHECK(error_of_step(R"("form": "mamba2", "nheads": 4, "headdim": 257, "dstate": 16)") ==
        place + "headdim 257 is over the limit of 256" + expected);
  CHECK(error_of_step(R"("form": "mamba2", "nheads": 4, "headdim": 64, "dstate": 300)") ==
        place + "dstate 300 is over the limit of 256" + expected);
  CHECK(error_of_step(R"("form": "mamba2", "nheads": 4, "headdim": 64, "dstate": 16, "groups": 3)") ==
        place + "nheads 4 is not a multiple of groups 3" + expected);
  CHECK(error_of_step(R"("form": "mamba1", "nheads": 4, "dim": 64, "dstate": 16)") ==
        place + "selective_state_update has no axis 'nheads' with form mamba1" + expected);
  CHECK(error_of_step(R"("form": "mamba2", "nheads": 4, "dstate": 16)") ==
        place + "selective_state_update needs the axis 'headdim'" + expected);
}

TEST_CASE("sizes of Mamba-2's scan that there are not, or that contradict each other") {
  const auto error_of_scan = [](const std::string& op, const std::string& axes) {
    return error_of(R"({"format": "ssmbench-config/1", "sweeps": [{"op": ")" + op +
                    R"(", "axes": {"batch": 1, "seqlen": 8, "dtype": "f32", )" + axes + "}}]}");
  };
  const std::string place = "test.json: /sweeps/0/axes: ";
  const std::string expected = "; expected axes that are complete and go together";
  for (const char* op : {"ssd_chunk_scan_fwd", "ssd_chunk_scan_bwd"}) {
    CHECK(error_of_scan(op, R"("nheads": 4, "headdim": 257, "dstate": 16)") ==
          place + "headdim 257 is over the limit of 256" + expected);
    CHECK(error_of_scan(op, R"("nheads": 4, "headdim": 64, "dstate": 257)") ==
          place + "dstate 257 is over the limit of 256" + expected);
    CHECK(error_of_scan(op, R"("nheads": 4, "headdim": 64, "dstate": 16, "groups": 3)") ==
          place + "nheads 4 is not a multiple of groups 3" + expected);
    CHECK(error_of_scan(op, R"("nheads": 4, "headdim": 64, "dstate": 16, "chunk_size": 257)") ==
          place + "chunk_size 257 is over the limit of 256" + expected);
    CHECK(error_of_scan(op, R"("nheads": 4, "headdim": 64, "dstate": 16, "chunk_size": 0)")
              .starts_with("test.json: /sweeps/0/axes/chunk_size: got 0; expected "));
  }
}

TEST_CASE("a case that is there twice, in one sweep or in two files") {
  CHECK(error_with(R"("z": [true, true])") ==
        "test.json: /sweeps/0: the case " + kOneId +
            " is already in test.json: /sweeps/0; expected each case once");
  const test::TemporaryFolder folder;
  const auto one = folder.write("one.json", config_of(kOneCase)),
             two = folder.write("two.json", config_of(kOneCase));
  CHECK_THROWS_WITH(load_configs({one, two}, {}, false), two.string() + ": /sweeps/0: the case " + kOneId +
                                                             " is already in " + one.string() +
                                                             ": /sweeps/0; expected each case once");
}

TEST_CASE("too many cases are refused before they are made") {
  const std::string range = R"({"from": 1, "to": 1000, "step": 1})";
  CHECK(
      error_of(config_of(R"("batch": )" + range + R"(, "dim": )" + range + R"(, "seqlen": )" + range +
                         R"(, "dstate": 2, "dtype": "f32")")) ==
      "test.json: /sweeps/0: the axes multiply to too many cases; expected at most 100000 cases in a sweep");
}

TEST_CASE("tensors that no machine holds, and counts that overflow 64 bits") {
  const std::string large = "2147483648";
  CHECK(error_of(config_of(R"("batch": )" + large + R"(, "dim": )" + large + R"(, "seqlen": )" + large +
                           R"(, "dstate": 256, "dtype": "f32")"))
            .find("test.json: /sweeps/0/axes: the tensors of "
                  "selective_scan_fwd-f32-b2147483648-d2147483648-l2147483648-"
                  "n256-D-z-bias-softplus-mamba-native-s0 take ") == 0);
  // u, delta, z and out in f16 are 8 bytes per element, B and C with one state 4 per step, A, D, bias and
  // last_state 16: 2^31 steps of 1023 channels are just below 16 TiB, of 1024 just above.
  const auto with_dim = [&](const std::string& dim) {
    return error_of(
        config_of(R"("batch": 1, "seqlen": )" + large + R"(, "dstate": 1, "dtype": "f16", "dim": )" + dim));
  };
  CHECK(with_dim("1023").empty());
  CHECK(with_dim("1024").find("take 16.01 TiB; expected at most 16 TiB, more than any machine holds") !=
        std::string::npos);
}

TEST_CASE("malformed --set") {
  const std::string form =
      ": expected axis=value[,value...], where a value may be a range FROM:TO:*FACTOR or FROM:TO:+STEP";
  for (const std::string text : {"seqlen", "=4", "seqlen=", "seqlen=1,,2", "seqlen=1:2", "seqlen=1:2:3",
                                 "seqlen=1:x:*2", "seqlen=1:2:*", "seqlen=1:2:", "seqlen=1:2:*2:3"})
    CHECK(override_error(text) == "--set " + text + form);
  CHECK(
      override_error("seqlen=4:2:*2") ==
      "--set seqlen=4:2:*2: the range is empty: from 4 is above to 2; expected a range such as 512:65536:*2");
  CHECK(override_error("seqlen=4:8:*1") ==
        "--set seqlen=4:8:*1: the range does not advance; expected a range such as 512:65536:*2");
  CHECK(override_error("seed=0:8:*2") ==
        "--set seed=0:8:*2: a range that multiplies does not leave 0; expected a range such as 512:65536:*2");
  CHECK(override_error("seed=-9223372036854775808:9223372036854775807:+1") ==
        "--set seed=-9223372036854775808:9223372036854775807:+1: the range starts below 0, at "
        "-9223372036854775808; "
        "expected a range such as 512:65536:*2");
  // ends at the largest integer: two steps, and no overflow on the way
  CHECK(parse_override("seed=1:9223372036854775807:+9223372036854775806").values.size() == 2);
}

TEST_CASE("option --set of what an axis does not take") {
  const auto config = config_of(kOneCase, "", R"(, "shapes": {"a": {"dim": 8}, "b": {"dim": 9}})");
  CHECK(error_of(config, {"seqlen=0"}) == "--set seqlen=0: got 0; expected an integer from 1 to 2147483648");
  CHECK(error_of(config, {"dtype=f32,f23"}) ==
        R"(--set dtype=f32,f23: got "f23"; expected one of f32, f16, bf16)");
  CHECK(error_of(config, {"z=1"}) == "--set z=1: got 1; expected true or false");
  CHECK(error_of(config, {"nheads=2"}) ==
        R"(--set nheads=2: no sweep has an axis "nheads"; expected one of )" + kAllAxes);
  CHECK(error_of(config, {"shape=c"}) ==
        R"(--set shape=c: test.json has no shape "c"; expected one of: a, b)");
  CHECK(error_of(config, {"batch=1", "batch=2"}) ==
        R"(--set batch=2: "batch" is overridden twice; expected each axis once)");
  CHECK(error_of(config, {"dim=6", "groups=4"}) ==
        "test.json: /sweeps/0/axes: dim 6 is not a multiple of groups 4 (with --set dim=6, --set groups=4); "
        "expected axes "
        "that are complete and go together");
}

TEST_CASE("an override hides no error of the file") {
  CHECK(error_of(config_of(kOneCase + R"(, "groups": 3)"), {"groups=2"}) ==
        "test.json: /sweeps/0/axes: dim 4 is not a multiple of groups 3; expected axes that are complete and "
        "go together");
}

TEST_CASE("check_memory names the sweep, the case, the need and what there is") {
  const test::TemporaryFolder folder;
  const auto file = folder.write("test.json", config_of(kOneCase));
  const auto cases = load_config(file, {}, false);
  constexpr std::size_t kGiB = std::size_t{1} << 30U;
  const MemoryNeed need{3 * kGiB / 2, 5 * kGiB};
  CHECK_THROWS_WITH(check_memory(cases[0], need, kGiB, {}),
                    file.string() + ": /sweeps/0: " + kOneId +
                        " needs 1.5 GiB of host memory; expected at most the 1 GiB "
                        "that are available");
  CHECK_THROWS_WITH(check_memory(cases[0], need, 2 * kGiB, 4 * kGiB),
                    file.string() + ": /sweeps/0: " + kOneId +
                        " needs 5 GiB of device memory; expected at most the 4 GiB that are available");
}
