// dump, check and compare, from end to end.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "catch.h"
#include "check/difference.h"
#include "interchange/reader.h"
#include "interchange/writer.h"
#include "support/run_command.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::string kSmall = "configs/small.json --dtype f32 --case '*-init-*'";

/// Outputs of an implementation on a few small cases.
std::string outputs_of(const TemporaryFolder& folder, const std::string& implementation) {
  const std::string file = folder / (implementation + ".h5");
  const CommandResult result =
      run_ssmbench("run " + kSmall + " --device cpu --no-timing --quiet --json /dev/null --impl " +
                   implementation + " --dump " + file);
  REQUIRE(result.exit_code == 0);
  return file;
}

/// A copy in which something of each case is changed.
std::string changed_copy(const TemporaryFolder& folder, const std::string& file,
                         const std::function<void(CaseRead&)>& change) {
  const InterchangeFile original(file);
  const std::string copy = folder / "changed.h5";
  InterchangeWriter writer(copy, original.info(), true);
  for (const auto& id : original.case_ids()) {
    CaseRead read = original.read_case(id);
    change(read);
    writer.add_case({.id = id,
                     .problem = read.problem,
                     .arithmetic = read.arithmetic,
                     .seed = read.seed,
                     .inputs = views_of(read.inputs),
                     .outputs = views_of(read.outputs),
                     .reference = {}});
  }
  writer.finish();
  return copy;
}

void spoil_first_output(CaseRead& read) {
  static_cast<float*>(read.outputs[0].buffer.data())[0] += 1;
}

}  // namespace

TEST_CASE("check passes what an implementation wrote, and prints a line per output") {
  const TemporaryFolder folder;
  const CommandResult result = run_ssmbench("check " + outputs_of(folder, "cpu-scalar"));
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  CHECK(result.out.find("pass   out ") != std::string::npos);
  CHECK(result.out.find("pass   last_state ") != std::string::npos);
  CHECK(result.out.find(" 0 fail\n") != std::string::npos);
}

TEST_CASE("check fails what is wrong, says where, and goes on to the next file") {
  const TemporaryFolder folder;
  const std::string right = outputs_of(folder, "cpu-scalar");
  const std::string wrong = changed_copy(folder, right, spoil_first_output);
  const CommandResult result = run_ssmbench("check " + wrong + " " + right + " --json -");
  CHECK(result.exit_code == 1);
  std::istringstream lines(result.out);
  int passed = 0;
  int failed = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.at("status") == "pass") {
      ++passed;
      CHECK(record.at("cause").is_null());
      continue;
    }
    ++failed;
    CHECK(record.at("file") == wrong);
    CHECK(record.at("cause") == "tolerance");
    CHECK(record.at("outputs").at("last_state").at("cause").is_null());
    const auto& out = record.at("outputs").at("out");
    CHECK(out.at("out_of_tolerance") == 1);
    CHECK(out.at("first_bad_index") == nlohmann::json({0, 0, 0}));
    CHECK(out.at("patterns") == nlohmann::json({"one element"}));
    CHECK(record.at("outputs").at("last_state").at("tolerance_ratio") <= 1);
  }
  CHECK(passed > 0);
  CHECK(passed == failed);
}

TEST_CASE("check: what cannot be read is exit code 2, and the rest is judged all the same") {
  const TemporaryFolder folder;
  const std::string right = outputs_of(folder, "cpu-scalar");
  const CommandResult result = run_ssmbench("check " + (folder / "missing.h5") + " " + right);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("missing.h5: no such file") != std::string::npos);
  CHECK(result.out.find("pass   out ") != std::string::npos);
}

TEST_CASE("dump writes cases without outputs, and check says so") {
  const TemporaryFolder folder;
  const std::string file = folder / "inputs.h5";
  const CommandResult dumped = run_ssmbench("dump " + kSmall + " -o " + file);
  REQUIRE(dumped.exit_code == 0);
  const InterchangeFile read(file);
  REQUIRE_FALSE(read.case_ids().empty());
  const CaseRead first = read.read_case(read.case_ids().front());
  CHECK(first.outputs.empty());
  CHECK(first.inputs.size() == 9);
  const CommandResult checked = run_ssmbench("check " + file);
  CHECK(checked.exit_code == 5);
  CHECK(checked.err.find("has no outputs to check") != std::string::npos);
  // The same inputs as a run's.
  const CommandResult compared = run_ssmbench("compare " + file + " " + outputs_of(folder, "cpu-scalar"));
  CHECK(compared.exit_code == 2);
  CHECK(compared.err.find("the files have no output in common") != std::string::npos);
  // The same inputs without a reference.
  const std::string bare = folder / "bare.h5";
  REQUIRE(run_ssmbench("dump --no-reference " + kSmall + " -o " + bare).exit_code == 0);
  CHECK(std::filesystem::file_size(bare) < std::filesystem::file_size(file));
  const CaseRead again = InterchangeFile(bare).read_case(first.id);
  CHECK(different_inputs(first, again).empty());
}

TEST_CASE("compare: equal, agreeing and differing outputs") {
  const TemporaryFolder folder;
  const std::string scalar = outputs_of(folder, "cpu-scalar");
  const CommandResult same = run_ssmbench("compare " + scalar + " " + scalar);
  CHECK(same.exit_code == 0);
  CHECK(same.out.find("equal    out ") != std::string::npos);
  CHECK(same.out.find("agree ") == std::string::npos);

  const CommandResult close = run_ssmbench("compare " + scalar + " " + outputs_of(folder, "cpu-simd"));
  CHECK(close.exit_code == 0);
  CHECK(close.out.find("agree ") != std::string::npos);

  const CommandResult different =
      run_ssmbench("compare " + scalar + " " + changed_copy(folder, scalar, spoil_first_output));
  CHECK(different.exit_code == 1);
  CHECK(different.out.find("differ   out ") != std::string::npos);
  CHECK(different.out.find("most at (b 0, d 0, l 0)") != std::string::npos);
}

TEST_CASE("compare refuses cases whose inputs differ") {
  const TemporaryFolder folder;
  const std::string right = outputs_of(folder, "cpu-scalar");
  const std::string other = changed_copy(
      folder, right, [](CaseRead& read) { static_cast<float*>(read.inputs[0].buffer.data())[0] += 1; });
  const CommandResult result = run_ssmbench("compare " + right + " " + other);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("the inputs differ: u") != std::string::npos);
}

TEST_CASE("compare: files without a common case match nothing") {
  const TemporaryFolder folder;
  const std::string a = folder / "a.h5";
  const std::string b = folder / "b.h5";
  REQUIRE(run_ssmbench("dump " + kSmall + " -o " + a).exit_code == 0);
  REQUIRE(run_ssmbench("dump " + kSmall + " --set seed=1 -o " + b).exit_code == 0);
  const CommandResult result = run_ssmbench("compare " + a + " " + b);
  CHECK(result.exit_code == 5);
  CHECK(result.err.find("only in " + a) != std::string::npos);
  CHECK(result.err.find("have no case in common") != std::string::npos);
}

TEST_CASE("check: inputs that hold NaN are judged only when that is asked for") {
  const TemporaryFolder folder;
  const std::string file = changed_copy(folder, outputs_of(folder, "cpu-scalar"), [](CaseRead& read) {
    static_cast<float*>(read.inputs[0].buffer.data())[0] = std::numeric_limits<float>::quiet_NaN();
  });
  const CommandResult refused = run_ssmbench("check " + file);
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("NaN or Inf in u") != std::string::npos);
  // What a NaN enters has to be NaN: these outputs are those of other inputs.
  const CommandResult judged = run_ssmbench("check --allow-nonfinite " + file);
  CHECK(judged.exit_code == 1);
  CHECK(judged.out.find("expected nan") != std::string::npos);
}

TEST_CASE("check: outputs that are NaN where an input of theirs is pass") {
  const TemporaryFolder folder;
  const std::string config = folder.write("nan.json", R"({"format": "ssmbench-config/1", "sweeps": [
      {"op": "linear_scan",
       "axes": {"batch": 2, "dim": 3, "seqlen": 20, "dtype": "f32", "values": "nan", "seed": [0, 1]}}]})");
  const std::string file = folder / "nan.h5";
  REQUIRE(run_ssmbench("run " + config +
                       " --device cpu --impl cpu-scalar --no-timing --quiet --json /dev/null --dump " + file)
              .exit_code == 0);
  CHECK(run_ssmbench("check --allow-nonfinite " + file).exit_code == 0);
}

namespace {

/// Outputs of one case: five rows in slots, two tokens each.
std::string outputs_with_slots(const TemporaryFolder& folder) {
  const std::string config = folder.write("slots.json", R"({"format": "ssmbench-config/1", "sweeps": [
      {"op": "selective_state_update",
       "axes": {"form": "mamba1", "batch": 5, "dim": 3, "dstate": 4, "dtype": "f32", "tokens": 2,
                "slots": 12, "store": "apart", "pads": 3, "intermediate": true}}]})");
  const std::string file = folder / "slots.h5";
  REQUIRE(run_ssmbench("run " + config + " --device cpu --no-timing --quiet --json /dev/null --dump " + file)
              .exit_code == 0);
  return file;
}

std::int32_t* indices(CaseRead& read, const char* name) {
  for (auto& tensor : read.inputs)
    if (tensor.spec.name == name) return static_cast<std::int32_t*>(tensor.buffer.data());
  return nullptr;
}

}  // namespace

TEST_CASE("states in slots are checked, those that nobody names too") {
  const TemporaryFolder folder;
  const std::string file = outputs_with_slots(folder);
  const CommandResult right = run_ssmbench("check " + file);
  CHECK(right.exit_code == 0);
  CHECK(right.out.find("pass   intermediate ") != std::string::npos);
  const InterchangeFile written(file);
  CaseRead read = written.read_case(written.case_ids().front());
  std::set<std::int32_t> stored;
  for (std::int64_t i = 0; i < 10; ++i) stored.insert(indices(read, "destination")[i]);
  std::int32_t kept = 0;
  while (stored.contains(kept)) ++kept;
  const std::string wrong = changed_copy(folder, file, [&](CaseRead& changed) {
    for (auto& output : changed.outputs) {
      if (output.spec.name != "state") continue;
      float& value = static_cast<float*>(output.buffer.data())[kept * 3 * 4];
      value = std::nextafter(value, 2 * value);
    }
  });
  const CommandResult found = run_ssmbench("check " + wrong);
  CHECK(found.exit_code == 1);
  CHECK(found.out.find("fail   state ") != std::string::npos);
}

TEST_CASE("indices of slots that contradict one another are bad input") {
  const TemporaryFolder folder;
  const std::string file = outputs_with_slots(folder);
  const auto complaint = [&](const std::function<void(CaseRead&)>& change) {
    const TemporaryFolder other;
    const CommandResult result = run_ssmbench("check " + changed_copy(other, file, change));
    CHECK(result.exit_code == 2);
    CHECK(std::ranges::count(result.err, '\n') == 1);
    return result.err.substr(result.err.find("/inputs"));
  };
  CHECK(complaint([](CaseRead& read) { indices(read, "source")[0] = 12; }) ==
        "/inputs: source 12: there are slots 0 to 11, and -1 is none\n");
  CHECK(complaint([](CaseRead& read) { indices(read, "destination")[3] = 2000000000; }) ==
        "/inputs: destination 2000000000: there are slots 0 to 11, and -1 is none\n");
  CHECK(complaint([](CaseRead& read) { indices(read, "destination")[3] = -2; }) ==
        "/inputs/destination: -2 at (b 1, l 1): a slot is at least 0, and -1 is none\n");
  CHECK(complaint([](CaseRead& read) {
          indices(read, "destination")[0] = indices(read, "destination")[3];
        }).find(" is in destination twice") != std::string::npos);
  CHECK(complaint([](CaseRead& read) {
          indices(read, "destination")[3] = indices(read, "source")[0];
        }).find(" is the source of row 0") != std::string::npos);
  CHECK(complaint([](CaseRead& read) {
          indices(read, "source")[1] = -1;
        }).find(" of row 1, whose source says padding") != std::string::npos);
}
