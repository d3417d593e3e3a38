// References by ranges of channels or heads: their parts are, bit for bit, those of the whole, however many
// there are.

#include <algorithm>
#include <cstring>
#include <set>

#include "catch.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "support/ssd_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Rows of `part`, of elements of one size, into the places that they have in `whole` from index `begin` on.
template <class T>
void put(const std::vector<T>& part, const Shape& part_shape, std::vector<T>& whole, const Shape& whole_shape,
         Shape begin) {
  if (part.empty()) return;
  begin.resize(part_shape.size(), 0);
  for (std::int64_t position = 0; position < element_count(part_shape); ++position) {
    const Shape index = index_of(position, part_shape);
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis)
      at = at * whole_shape[axis] + begin[axis] + index[axis];
    whole.at(static_cast<std::size_t>(at)) = part[static_cast<std::size_t>(position)];
  }
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Computes the reference in parts of `bytes`, checks it against the whole, and returns how many it had.
int parts_agree(const Problem& problem, const std::vector<HostTensor>& inputs, const ReferenceOutputs& whole,
                std::size_t bytes) {
  const TensorSet views = views_of(inputs);
  ReferenceParts parts(problem, views, bytes);
  ReferenceOutputs together;
  std::set<std::string> ended;
  int count = 0;
  for (auto part = parts.next(never_stop); part; part = parts.next(never_stop), ++count)
    for (const auto& [name, output] : part->outputs) {
      const ReferenceOutput& of_whole = whole.at(name);
      ReferenceOutput& all = together[name];
      all.expected.resize(of_whole.expected.size());
      all.bound.resize(of_whole.bound.size());
      all.operand_bound.resize(of_whole.operand_bound.size());
      all.decay_response.resize(of_whole.decay_response.size());
      const auto tensors = problem.tensors();
      const auto spec = std::ranges::find_if(
          tensors, [&](const TensorSpec& each) { return each.role == Role::output && each.name == name; });
      const Shape begin = begin_of(*spec, part->box);
      put(output.expected, output.shape, all.expected, of_whole.shape, begin);
      put(output.bound, output.shape, all.bound, of_whole.shape, begin);
      put(output.operand_bound, output.shape, all.operand_bound, of_whole.shape, begin);
      put(output.decay_response, output.shape, all.decay_response, of_whole.shape, begin);
    }
  REQUIRE(together.size() == whole.size());
  for (const auto& [name, output] : whole) {
    INFO(name);
    CHECK(same_bits(together.at(name).expected, output.expected));
    CHECK(same_bits(together.at(name).bound, output.bound));
    CHECK(same_bits(together.at(name).operand_bound, output.operand_bound));
    CHECK(same_bits(together.at(name).decay_response, output.decay_response));
  }
  return count;
}

/// The numbers of parts with the least memory for them, with more and with enough.
std::vector<int> numbers_of_parts(const Problem& problem) {
  INFO(problem.id());
  const auto inputs =
      generate_inputs(problem, {.distribution = "mamba", .values = "native", .seed = 3}, never_stop);
  const auto whole = compute_reference(problem, views_of(inputs), never_stop);
  const std::size_t all = reference_bytes(problem);
  const std::size_t least = reference_bytes_in_parts(problem, 1);
  CHECK(least <= all);
  std::vector<int> numbers;
  for (const std::size_t bytes : {std::size_t{1}, (least + all) / 2, all}) {
    numbers.push_back(parts_agree(problem, inputs, whole, bytes));
    CHECK(reference_bytes_in_parts(problem, bytes) <= std::max(bytes, least));
  }
  return numbers;
}

}  // namespace

TEST_CASE("the reference of a selective scan in parts is that of the whole") {
  const Axes some{{"dim", size(70)}, {"seqlen", size(150)}, {"dstate", size(3)}, {"D", true}};
  const auto with = [&](Axes axes) {
    axes.merge(Axes(some));
    return axes;
  };
  CHECK(numbers_of_parts(scan_problem(with({{"z", true}}))) == std::vector{5, 3, 1});
  numbers_of_parts(scan_problem(with({{"batch", size(2)}, {"groups", size(2)}, {"layout", "bld"}})));
  numbers_of_parts(scan_problem(with({{"A", "complex"}, {"initial_state", true}})));
  CHECK(numbers_of_parts(
            scan_problem({{"A", "dense"}, {"method", "bilinear"}, {"dim", size(9)}, {"dstate", size(2)}})) ==
        std::vector{1, 1, 1});
}

TEST_CASE("the reference of a selective scan's gradients in parts is that of the whole") {
  const Axes some{{"seqlen", size(150)}, {"dstate", size(3)}, {"D", true}, {"z", true}};
  const auto with = [&](Axes axes) {
    axes.merge(Axes(some));
    return scan_problem(std::move(axes), selective_scan_bwd());
  };
  CHECK(numbers_of_parts(with({{"dim", size(70)}})) == std::vector{5, 3, 1});
  // Two groups of 35 channels: one range ends the first group, and begins the second.
  numbers_of_parts(with({{"dim", size(70)}, {"batch", size(3)}, {"groups", size(2)}}));
  numbers_of_parts(with({{"dim", size(105)}, {"groups", size(3)}, {"initial_state", true}}));
  numbers_of_parts(with({{"dim", size(40)}, {"A", "complex"}, {"dlast_state", true}}));
  numbers_of_parts(with({{"dim", size(40)}, {"B", "constant"}, {"delta_bias", true}}));
}

TEST_CASE("the reference of SSD in parts is that of the whole") {
  const Axes some{{"nheads", size(6)}, {"headdim", size(5)}, {"dstate", size(4)}, {"seqlen", size(100)}};
  const auto with = [&](Axes axes) {
    axes.merge(Axes(some));
    return ssd_problem(std::move(axes));
  };
  CHECK(numbers_of_parts(with({{"z", true}, {"D", "head"}})) == std::vector{6, 2, 1});
  numbers_of_parts(
      with({{"batch", size(2)}, {"groups", size(2)}, {"final_states", true}, {"seq_idx", true}}));
  numbers_of_parts(with({{"cu_seqlens", true},
                         {"sequences", size(3)},
                         {"states_at", size(2)},
                         {"initial_states", true},
                         {"final_states", true}}));
}

TEST_CASE("the reference of SSD's gradients in parts is that of the whole") {
  const auto with = [&](Axes axes) {
    axes.merge(Axes{{"nheads", size(6)},
                    {"headdim", size(5)},
                    {"dstate", size(4)},
                    {"seqlen", size(100)},
                    {"z", true},
                    {"dt_bias", true}});
    return ssd_problem(std::move(axes), ssd_chunk_scan_bwd());
  };
  CHECK(numbers_of_parts(with({{"D", "headdim"}})).front() == 6);
  numbers_of_parts(with({{"batch", size(2)}, {"groups", size(2)}, {"seq_idx", true}, {"D", "head"}}));
  numbers_of_parts(with({{"initial_states", true}, {"final_states", true}, {"groups", size(3)}}));
  numbers_of_parts(with({{"seqlen", size(9000)}, {"seq_idx", true}}));  // spans of 4096 steps
}

TEST_CASE(
    "SSD's gradients are the same bits with any number of threads and in parts, and stop when told to") {
  const Problem problem =
      ssd_problem({{"nheads", size(3)}, {"seqlen", size(5000)}, {"dstate", size(2)}}, ssd_chunk_scan_bwd());
  const auto inputs =
      generate_inputs(problem, {.distribution = "mamba", .values = "native", .seed = 3}, never_stop);
  const std::atomic<bool> stop{true};
  const TensorSet views = views_of(inputs);
  CHECK_THROWS(compute_reference(problem, views, stop));
  ReferenceParts parts(problem, views, 1);
  CHECK_THROWS(parts.next(stop));
}
