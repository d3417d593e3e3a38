#include "model/problem.h"

#include <malloc.h>

#include <set>

#include "base/errors.h"
#include "catch.h"
#include "model/case.h"
#include "model/implementation.h"
#include "model/method.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::string error_of(std::map<std::string, AxisValue> axes, const OpSpec& op = selective_scan_fwd()) {
  try {
    scan_problem(std::move(axes), op);
  } catch (const ContractError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a problem checks its axes") {
  CHECK(error_of({{"seqlem", size(3)}}) == "selective_scan_fwd has no axis 'seqlem'");
  CHECK(error_of({{"seqlen", size(0)}}) == "seqlen must be an integer of at least 1, got 0");
  CHECK(error_of({{"seqlen", true}}) == "seqlen must be an integer of at least 1, got true");
  CHECK(error_of({{"z", size(1)}}) == "z must be true or false, got 1");
  CHECK(error_of({{"dtype", "f64"}}) == "dtype must be one of f32, f16, bf16, got f64");
  CHECK(error_of({{"dim", size(10)}, {"groups", size(4)}}) == "dim 10 is not a multiple of groups 4");
  CHECK(error_of({{"dstate", size(257)}}) == "dstate 257 is over the limit of 256");
  CHECK(error_of({{"dstate", size(256)}}) == "");
  CHECK_THROWS_WITH(Problem(selective_scan_fwd(), {{"dtype", "f32"}}),
                    "selective_scan_fwd needs the axis 'batch'");
}

TEST_CASE("a problem takes little more memory than the values of its axes") {
  constexpr std::size_t kProblems = 10'000;
  const Problem problem = scan_problem();
  std::vector<Problem> problems;
  problems.reserve(kProblems);
  const std::size_t before = mallinfo2().uordblks;  // 0, as later, where a sanitizer has the memory
  for (std::size_t i = 0; i < kProblems; ++i) problems.push_back(problem);
  const std::size_t each = (mallinfo2().uordblks - before) / kProblems;
  CHECK(each <= problem.op().axes.size() * sizeof(std::optional<AxisValue>) + 64);
}

TEST_CASE("dense A has two methods, at most 32 states and no gradients") {
  const auto dense = [](std::map<std::string, AxisValue> axes) {
    axes.emplace("A", "dense");
    axes.emplace("method", "foh");
    return axes;
  };
  CHECK(error_of(dense({{"dstate", size(32)}})) == "");
  CHECK(error_of(dense({{"method", "bilinear"}})) == "");
  CHECK(error_of(dense({{"dstate", size(33)}})) == "dstate 33 is over the limit of 32 for A dense");
  for (const auto& method : method_names())
    if (method != "bilinear" && method != "foh")
      CHECK(error_of(dense({{"method", method}})) ==
            "A dense has the methods bilinear and foh, not " + method);
  CHECK(error_of(dense({}), selective_scan_bwd()) == "A dense is forward only");

  const Problem problem = scan_problem(dense({{"dim", size(3)}, {"dstate", size(5)}}));
  for (const auto& spec : problem.tensors())
    if (spec.name == "A") {
      CHECK(spec.shape == Shape{3, 5, 5});
      CHECK(spec.dtype == DType::f32);
    }
}

TEST_CASE("only cpu-scalar and implementations for dense A take one") {
  const Problem problem = scan_problem({{"A", "dense"}, {"method", "foh"}});
  for (const auto& implementation : implementations()) {
    if (implementation.op != "selective_scan_fwd" || implementation.name.starts_with("test-")) continue;
    INFO(implementation.name);
    const bool is_for_dense = implementation.name.ends_with("-dense");
    CHECK(implementation.unsupported(problem).value_or("") ==
          (is_for_dense || implementation.name == "cpu-scalar" ? "" : "has diagonal A only"));
    CHECK((implementation.unsupported(scan_problem()).value_or("") == "has dense A only") == is_for_dense);
  }
}

TEST_CASE("the id tells any two problems apart") {
  std::set<std::string> ids;
  int problems = 0;
  for (const char* axis : {"batch", "dim", "seqlen", "dstate", "groups"})
    for (const std::int64_t value : {2, 4}) {
      ids.insert(
          scan_problem({{axis, size(value)}, {"dim", size(axis == std::string("dim") ? value : 8)}}).id());
      ++problems;
    }
  for (const char* flag : {"D", "z", "delta_bias", "delta_softplus", "initial_state"}) {
    ids.insert(scan_problem({{flag, true}}).id());
    ++problems;
  }
  for (const auto& [axis, value] :
       {std::pair{"B", "constant"}, {"C", "constant"}, {"layout", "bld"}, {"dtype", "f16"}}) {
    ids.insert(scan_problem({{axis, std::string(value)}}).id());
    ++problems;
  }
  CHECK(static_cast<int>(ids.size()) == problems);
  for (const auto& id : ids) CHECK(id.find_first_of("/ *?[]$&|;'\"") == std::string::npos);
}

TEST_CASE("a layout changes strides and stored shape, not the logical shape") {
  const std::map<std::string, AxisValue> axes{{"batch", size(2)}, {"dim", size(3)}, {"seqlen", size(5)}};
  auto in_layout = axes;
  in_layout["layout"] = "bld";
  const auto u = scan_problem(axes).tensors().front();
  const auto u_bld = scan_problem(in_layout).tensors().front();
  REQUIRE(u.name == "u");
  CHECK(u.shape == Shape{2, 3, 5});
  CHECK(u_bld.shape == u.shape);
  CHECK(u.strides() == Shape{15, 5, 1});
  CHECK(u_bld.strides() == Shape{15, 1, 3});
  CHECK(u_bld.stored_shape() == Shape{2, 5, 3});
}

TEST_CASE("check_contract refuses what does not fit, by name") {
  const Problem problem = scan_problem({{"dim", size(3)}, {"seqlen", size(5)}});
  std::vector<HostTensor> tensors;
  for (const auto& spec : problem.tensors()) tensors.emplace_back(spec);
  const auto message = [&](const std::function<void(TensorSet&)>& change) {
    TensorSet set = views_of(tensors);
    change(set);
    try {
      check_contract(problem, set);
    } catch (const ContractError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message([](TensorSet&) {}) == "");
  const auto replaced = [&](const char* name, auto edit) {
    return message([&](TensorSet& set) {
      TensorView view = set.at(name);
      edit(view);
      set.add(name, view);
    });
  };
  CHECK(replaced("u", [](TensorView& v) {
          v.shape = {1, 3, 6};
        }) == "tensor 'u' has shape 1×3×6, selective_scan_fwd needs 1×3×5");
  CHECK(replaced("A", [](TensorView& v) { v.dtype = DType::f16; }) ==
        "tensor 'A' is f16, selective_scan_fwd needs f32");
  CHECK(replaced("B", [](TensorView& v) { v.strides[3] = 7; }) ==
        "tensor 'B' does not lie in memory as its layout says");
  CHECK(replaced("out", [](TensorView& v) { v.data = nullptr; }) == "tensor 'out' has no memory");
  CHECK(message([&](TensorSet& set) { set.add("z", set.at("u")); }) ==
        "selective_scan_fwd has no tensor 'z' with these options");
  CHECK_THROWS_WITH(check_contract(problem, TensorSet()), "tensor 'u' is missing");
}
