// Sequences that cu_seqlens packs into Mamba-1's scan: tensors, what contradicts itself, how they are drawn, files.

#include <map>

#include "base/errors.h"
#include "catch.h"
#include "interchange/files.h"
#include "interchange/reader.h"
#include "support/input_values.h"
#include "support/scan_problem.h"
#include "support/write_case.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

Problem packed(Axes axes = {}) {
  axes.merge(Axes{{"seqlen", size(30)}, {"cu_seqlens", true}, {"sequences", size(5)}});
  return scan_problem(std::move(axes));
}

std::string complaint(const Axes& axes) {
  return message_of<ContractError>([&] { scan_problem(axes); });
}

}  // namespace

TEST_CASE("packed sequences of a selective scan have a state each") {
  const Problem problem = packed({{"dim", size(3)}, {"dstate", size(4)}, {"initial_state", true}});
  std::map<std::string, std::string> shapes;
  for (const auto& spec : problem.tensors()) shapes[spec.name] = to_string(spec.shape) + " " + spec.axes;
  CHECK(shapes.at("u") == "1×3×30 bdl");
  CHECK(shapes.at("cu_seqlens") == "6 c");
  CHECK(shapes.at("initial_state") == "5×3×4 mdn");
  CHECK(shapes.at("last_state") == "5×3×4 mdn");
  CHECK(problem.id() ==
        scan_problem({{"dim", size(3)}, {"dstate", size(4)}, {"seqlen", size(30)}, {"initial_state", true}})
                .id() +
            "-varlen-m5");
}

TEST_CASE("packed sequences of a selective scan that contradict themselves are refused") {
  CHECK(complaint({{"cu_seqlens", true}, {"batch", size(2)}}) ==
        "batch 2 with cu_seqlens, which packs sequences into a batch of 1");
  CHECK(complaint({{"sequences", size(2)}}) == "sequences 2 without cu_seqlens");
  CHECK(complaint({{"lengths", "equal"}}) == "lengths equal without cu_seqlens");
  CHECK_THROWS_AS(scan_problem({{"cu_seqlens", true}}, selective_scan_bwd()), ContractError);
}

TEST_CASE("borders of a selective scan go from 0 to its end, with a sequence of one step and one without") {
  for (std::int64_t seed = 0; seed < 20; ++seed) {
    const auto borders = input_values(packed({{"lengths", "with-empty"}}), "cu_seqlens",
                                      {.distribution = "mamba", .values = "native", .seed = seed});
    REQUIRE(borders.size() == 6);
    CHECK(borders.front() == 0);
    CHECK(borders.back() == 30);
    int empty = 0;
    for (std::size_t m = 1; m < borders.size(); ++m) {
      CHECK(borders[m] >= borders[m - 1]);
      empty += borders[m] == borders[m - 1] ? 1 : 0;
    }
    CHECK(empty >= 1);
    CHECK(borders[1] == 1);
  }
}

TEST_CASE("packed selective scans are written and read, and wrong borders are refused") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& name, std::int32_t second, const char* layout) {
    const Problem problem = packed({{"layout", layout}, {"initial_state", true}, {"dim", size(2)}});
    const auto inputs = generate_inputs(problem, {}, never_stop);
    for (const auto& input : inputs)
      if (input.spec.name == "cu_seqlens") static_cast<std::int32_t*>(input.buffer.data())[1] = second;
    const std::string path = folder / name;
    write_case(path, problem, inputs);
    const auto found = InterchangeFile(path).read_case("a");
    CHECK(found.problem.id() == problem.id());
  };
  read("time_last", 1, "bdl");
  read("channels_last", 0, "bld");
  const std::string message = message_of<UsageError>([&] { read("wrong", 31, "bdl"); });
  CHECK(message.find("cu_seqlens: decreases from 31 to ") != std::string::npos);
}
