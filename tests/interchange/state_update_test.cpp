// Decoding steps in files: the form follows from the state's axes, and the state is both an input and an
// output.

#include <cstring>

#include "catch.h"
#include "files.h"
#include "interchange/reader.h"
#include "model/errors.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void check_same(const std::vector<HostTensor>& read, const std::vector<HostTensor>& written) {
  REQUIRE(read.size() == written.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    CAPTURE(written[i].spec.name);
    CHECK(read[i].spec.name == written[i].spec.name);
    CHECK(read[i].spec.shape == written[i].spec.shape);
    CHECK(std::memcmp(read[i].buffer.data(), written[i].buffer.data(), written[i].spec.bytes()) == 0);
  }
}

const std::map<std::string, AxisValue> kSizes{{"batch", size(2)}, {"dstate", size(5)}};

Problem with_sizes(Problem (*form)(Axes), Axes axes) {
  axes.merge(Axes(kSizes));
  return form(std::move(axes));
}

}  // namespace

TEST_CASE(
    "decoding steps survive a file, in both forms, with one group and several, with and without options") {
  const TemporaryFolder folder;
  std::vector<Problem> problems;
  for (const std::int64_t groups : {1, 3})
    for (const bool options : {false, true}) {
      const Axes more{{"groups", groups},   {"D", options},           {"z", options},
                      {"dt_bias", options}, {"dt_softplus", options}, {"dtype", options ? "bf16" : "f32"}};
      Axes channels{{"dim", size(6)}};
      channels.merge(Axes(more));
      problems.push_back(with_sizes(mamba1_step, channels));
      Axes heads{{"nheads", size(6)}, {"headdim", size(4)}};
      heads.merge(Axes(more));
      problems.push_back(with_sizes(mamba2_step, heads));
    }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    INFO(problems[i].id());
    const std::string path = folder / std::to_string(i);
    write_one_case(path, problems[i]);
    const CaseRead read = InterchangeFile(path).read_case("a");
    CHECK(read.problem.axes() == problems[i].axes());
    check_same(read.inputs, filled_tensors(problems[i], Role::input));
    check_same(read.outputs, filled_tensors(problems[i], Role::output));
  }
}
