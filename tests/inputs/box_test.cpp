// The part of a problem's inputs that a rank makes for itself is that part of the whole, bit for bit.

#include <cstring>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "model/box.h"
#include "model/tensor_map.h"
#include "support/host_tensors.h"
#include "support/problem_of_several_rows.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

bool has_same_bytes(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.buffer.data(), b.buffer.data(), a.spec.bytes()) == 0;
}

/// Compares the parts with what a walk through the whole tensors finds.
void check_part(const Problem& problem, const InputSpec& spec, const Box& box) {
  const auto whole = generate_inputs(problem, spec, never_stop);
  const auto parts = generate_inputs(problem, spec, box, never_stop);
  REQUIRE(parts.size() == whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    INFO(problem.id() << " " << whole[i].spec.name);
    const Shape begin = begin_of(whole[i].spec, box);
    const HostTensor wanted =
        gathered(part_of(whole[i].spec, box), whole[i], [&](const Shape& here, Shape& there) {
          for (std::size_t axis = 0; axis < here.size(); ++axis) there[axis] = here[axis] + begin[axis];
        });
    CHECK(parts[i].spec.shape == wanted.spec.shape);
    CHECK(has_same_bytes(parts[i], wanted));
  }
}

/// All parts that two cuts of an axis make, by their letter.
std::vector<Box> parts_along(char letter, std::int64_t extent) {
  const std::int64_t first = extent / 3;
  const std::int64_t second = extent - extent / 4;
  std::vector<Box> boxes;
  for (const auto& [begin, end] : {std::pair(std::int64_t{0}, first), {first, second}, {second, extent}})
    if (end > begin) boxes.push_back({{letter, {begin, end}}});
  return boxes;
}

}  // namespace

TEST_CASE("the inputs of a box are those of the whole problem, whatever the operation") {
  for (const auto* op : all_ops()) {
    const AxisSpec* time = op->find_axis(AxisRole::time);
    if (time == nullptr) continue;
    for (const char* values : {"native", "shared"}) {
      const Problem problem = problem_of_several_rows(*op).with({{time->name, size(1100)}});  // two segments
      for (const Box& box : parts_along('l', 1100))
        check_part(problem, {.distribution = "trained", .values = values, .seed = 3}, box);
      for (const Box& box : parts_along('b', 4)) check_part(problem, {.seed = 3}, box);
    }
  }
}

TEST_CASE("a box may cut several axes, of complex tensors too") {
  for (const char* layout : {"bdl", "bld"}) {
    const Problem problem = problem_of_several_rows(*find_op("selective_scan_bwd"))
                                .with({{"A", "complex"}, {"layout", layout}, {"seqlen", size(90)}});
    check_part(problem, {.seed = 5}, {{'l', {64, 90}}, {'d', {4, 8}}, {'g', {1, 2}}, {'b', {1, 2}}});
  }
}

TEST_CASE("packed sequences keep their numbers in a box") {
  const Problem problem = problem_of_several_rows(*find_op("ssd_chunk_scan_bwd"))
                              .with({{"seqlen", size(300)}, {"seq_idx", true}, {"dt_limit", "0.01..0.1"}});
  for (const Box& box : parts_along('l', 300)) check_part(problem, {.seed = 9}, box);
}

TEST_CASE("one element is NaN in one of the boxes and in no other") {
  for (std::int64_t seed = 0; seed < 12; ++seed) {
    const Problem problem = problem_of_several_rows(*find_op("selective_scan_fwd"));
    for (const Box& box : parts_along('l', 4))
      check_part(problem, {.distribution = "mamba", .values = "nan", .seed = seed}, box);
  }
}

TEST_CASE("a box that reaches past a tensor is refused") {
  const Problem problem = problem_of_several_rows(*find_op("selective_scan_fwd"));
  CHECK_THROWS_AS(generate_inputs(problem, {}, {{'l', {2, 5}}}, never_stop), std::logic_error);
  CHECK_THROWS_AS(generate_inputs(problem, {}, {{'l', {2, 2}}}, never_stop), std::logic_error);
}
