#include "ops/selective_scan/selective_scan.h"

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "interchange/files.h"
#include "interchange/reader.h"
#include "model/problem.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "support/write_case.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::string names_of(const Problem& problem) {
  std::string names;
  for (const auto& tensor : problem.tensors())
    names += (names.empty() ? "" : " ") + tensor.name + (tensor.role == Role::output ? ">" : "");
  return names;
}

const Axes kAll{{"D", true}, {"z", true}, {"delta_bias", true}, {"initial_state", true}};

Axes with_dlast_state(Axes axes) {
  axes.emplace("dlast_state", true);
  return axes;
}

}  // namespace

TEST_CASE("the tensors of a selective scan, in the order of the definition") {
  CHECK(names_of(scan_problem()) == "u delta A B C out> last_state>");
  CHECK(names_of(scan_problem(kAll)) == "u delta A B C D z delta_bias initial_state out> last_state>");
  CHECK(names_of(scan_problem({}, selective_scan_bwd())) == "u delta A B C dout du> ddelta> dA> dB> dC>");
  CHECK(names_of(scan_problem(with_dlast_state(kAll), selective_scan_bwd())) ==
        "u delta A B C D z delta_bias initial_state dout dlast_state "
        "du> ddelta> dA> dB> dC> dD> dz> ddelta_bias> dinitial_state>");
}

TEST_CASE("the gradient of last_state has its shape and its type") {
  const auto dlast_state = [](Axes axes) {
    axes.merge(Axes{{"batch", size(2)}, {"dim", size(3)}, {"dstate", size(5)}, {"dtype", "bf16"}});
    for (const auto& tensor : scan_problem(with_dlast_state(axes), selective_scan_bwd()).tensors())
      if (tensor.name == "dlast_state")
        return std::string(name_of(tensor.dtype)) + " " + to_string(tensor.shape) + " " + tensor.axes;
    return std::string();
  };
  CHECK(dlast_state({}) == "f32 2×3×5 bdn");
  CHECK(dlast_state({{"A", "complex"}, {"layout", "bld"}}) == "c64 2×3×5 bdn");
}

TEST_CASE("the states on the way are an output of a scan and an input of its gradients", "[x]") {
  const Axes axes{
      {"x", true}, {"dstate", size(5)}, {"dim", size(3)}, {"seqlen", size(17)}, {"dtype", "bf16"}};
  CHECK(names_of(scan_problem(axes)) == "u delta A B C out> last_state> x>");
  CHECK(names_of(scan_problem(with_dlast_state(axes), selective_scan_bwd())) ==
        "u delta A B C dout dlast_state x du> ddelta> dA> dB> dC>");
  const TensorSpec x = scan_problem(axes).tensors().back();
  CHECK(std::string(name_of(x.dtype)) + " " + to_string(x.shape) + " " + x.axes == "f32 1×3×3×5 bkdn");
  CHECK(scan_problem(axes).id() ==
        scan_problem({{"dstate", size(5)}, {"dim", size(3)}, {"seqlen", size(17)}, {"dtype", "bf16"}}).id() +
            "-x");
  CHECK_THROWS_AS(scan_problem({{"x", true}, {"A", "dense"}, {"method", "foh"}}), ContractError);
  CHECK_THROWS_AS(scan_problem({{"x", true}, {"cu_seqlens", true}, {"sequences", size(1)}}), ContractError);
}

TEST_CASE("files say whether a scan leaves its states on the way, and gradients are given them", "[x]") {
  const TemporaryFolder folder;
  int count = 0;
  const auto read = [&](const Problem& problem, bool says) {
    const std::string path = folder / ("file" + std::to_string(count++));
    write_case(path, problem, generate_inputs(problem, {}, never_stop));
    if (!says) delete_attribute(open_for_change(path), "/cases/a", "x");
    return InterchangeFile(path).read_case("a").problem;
  };
  for (const bool x : {false, true}) {
    const Axes axes{{"x", x}, {"dstate", size(2)}, {"seqlen", size(9)}};
    CHECK(read(scan_problem(axes), true).flag("x") == x);
    CHECK(!read(scan_problem(axes), false).flag("x"));
    CHECK(read(scan_problem(axes, selective_scan_bwd()), true).flag("x") == x);
  }
}

TEST_CASE("only gradients have dlast_state, and it is off unless asked for") {
  CHECK_THROWS_AS(scan_problem({{"dlast_state", true}}), ContractError);
  CHECK(scan_problem({{"dlast_state", false}}, selective_scan_bwd()).id() ==
        scan_problem({}, selective_scan_bwd()).id());
  CHECK(scan_problem({{"dlast_state", true}}, selective_scan_bwd()).id() ==
        scan_problem({}, selective_scan_bwd()).id() + "-dlast");
}
