// A row of a problem is a problem of its own: its reference is that of the whole, element for element.

#include "sweep/single_row.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "catch.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/problem_of_several_rows.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "sweep/exchange.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// The parts that a row has of tensors.
std::vector<HostTensor> parts_of(const SingleRow& rows, const Row& row, const std::vector<HostTensor>& all) {
  std::vector<HostTensor> parts;
  for (const auto& tensor : all) parts.push_back(rows.part(row, tensor.spec, tensor.buffer.data()));
  return parts;
}

/// The largest difference between the reference of a row and that of the whole, over the largest value.
double difference_of_row(const Problem& problem, const SingleRow& rows, const Row& row,
                         const std::vector<HostTensor>& inputs, int& compared) {
  const auto whole = compute_reference(problem, views_of(inputs), never_stop);
  const auto parts = parts_of(rows, row, inputs);
  const auto part = compute_reference(*rows.problem(), views_of(parts), never_stop);
  double worst = 0;
  for (const auto& spec : problem.tensors()) {
    if (spec.role != Role::output || !rows.owns_part(spec)) continue;
    const ReferenceOutput& of_row = part.at(spec.name);
    const ReferenceOutput& of_all = whole.at(spec.name);
    double difference = 0;
    double largest = 0;
    const auto count = static_cast<std::int64_t>(of_row.expected.size());
    for (std::int64_t i = 0; i < count; ++i) {
      const Shape index = rows.index_in_whole(row, spec, index_of(i, of_row.shape));
      std::int64_t at = 0;
      for (std::size_t axis = 0; axis < index.size(); ++axis) at = at * of_all.shape[axis] + index[axis];
      difference = std::max(difference, std::abs(of_row.expected[i] - of_all.expected[at]));
      largest = std::max(largest, std::abs(of_all.expected[at]));
    }
    CHECK(largest > 0);
    worst = std::max(worst, difference / largest);
    ++compared;
  }
  return worst;
}

}  // namespace

TEST_CASE("the reference of a row is that of the whole, of every operation, shuffled inputs or not") {
  std::mt19937_64 random(7);
  std::size_t shuffled = 0;
  for (const OpSpec* op : all_ops()) {
    const Problem problem = problem_of_several_rows(*op);
    INFO(problem.id());
    const SingleRow rows(problem);
    REQUIRE(rows.problem());
    auto inputs = generate_inputs(problem, {}, never_stop);
    const ExchangeDraw draw(problem);
    for (const bool shuffles : {false, true}) {
      if (shuffles) {
        std::vector<TensorSpec> specs;
        std::vector<void*> data;
        for (const auto& input : inputs) {
          specs.push_back(input.spec);
          data.push_back(input.buffer.data());
        }
        const auto pairs = draw.stretches(specs, data, random);
        shuffled += pairs.empty() ? 0 : 1;
        exchange_slices(pairs);
      }
      int compared = 0;
      for (const Row row : {Row{0, 0}, Row{3, 2}, Row{1, 7}}) {
        INFO("sequence " << row.sequence << ", channel " << row.channel);
        CHECK(difference_of_row(problem, rows, row, inputs, compared) < 1e-12);
      }
      CHECK(compared >= 3);
    }
  }
  CHECK(shuffled + 1 >= all_ops().size());  // a step of a convolution has nothing that rows share
}

TEST_CASE("outputs that sum over rows belong to none") {
  const auto owned = [](const OpSpec& op, const Axes& axes) {
    const Problem problem = scan_problem(axes, op);
    const SingleRow rows(problem);
    std::map<std::string, bool> all;
    for (const auto& spec : problem.tensors())
      if (spec.role == Role::output) all[spec.name] = rows.owns_part(spec);
    return all;
  };
  const auto of_batch = owned(selective_scan_bwd(), {{"batch", size(2)}, {"dim", size(4)}});
  CHECK(of_batch.at("du"));
  CHECK_FALSE(of_batch.at("dA"));
  CHECK_FALSE(of_batch.at("dB"));
  const auto of_one = owned(selective_scan_bwd(), {{"batch", size(1)}, {"dim", size(4)}});
  CHECK(of_one.at("dA"));
  CHECK_FALSE(of_one.at("dB"));
}

TEST_CASE("stretches that are exchanged do not overlap and are a quarter to half of a shared input each") {
  const auto shuffled_in = [](const Axes& options) {
    Axes axes{{"dim", size(6)}, {"seqlen", size(40)}};
    axes.insert(options.begin(), options.end());
    const Problem problem = scan_problem(axes);
    const ExchangeDraw draw(problem);
    std::mt19937_64 random(7);
    std::vector<TensorSpec> specs;
    std::vector<HostTensor> tensors;
    std::vector<void*> data;
    for (const auto& spec : problem.tensors())
      if (spec.role == Role::input) {
        specs.push_back(spec);
        tensors.emplace_back(spec);
        data.push_back(tensors.back().buffer.data());
      }
    std::map<std::string, std::set<std::pair<std::ptrdiff_t, std::ptrdiff_t>>> drawn;
    for (int i = 0; i < 200; ++i)
      for (const auto& pair : draw.stretches(specs, data, random)) {
        const auto* const at = static_cast<const std::byte*>(pair.first);
        const auto of = std::ranges::find_if(tensors, [&](const HostTensor& tensor) {
          const auto* const begin = static_cast<const std::byte*>(tensor.buffer.data());
          return at >= begin && at < begin + tensor.spec.bytes();
        });
        REQUIRE(of != tensors.end());
        const auto* const begin = static_cast<const std::byte*>(of->buffer.data());
        const auto first = at - begin;
        const auto second = static_cast<const std::byte*>(pair.second) - begin;
        const auto width = static_cast<std::ptrdiff_t>(pair.width);
        const auto bytes = static_cast<std::ptrdiff_t>(of->spec.bytes());
        CHECK((first >= 0 && first + width <= second && second + width <= bytes));
        CHECK((4 * width >= bytes && pair.rows == 1));
        CHECK(first % 4 == 0);
        drawn[of->spec.name].insert({first, second});
      }
    return drawn;
  };
  const auto both = shuffled_in({{"groups", size(2)}});
  CHECK(both.size() == 2);
  CHECK(both.at("B").size() > 50);
  CHECK(both.at("C").size() > 50);
  const auto neither = shuffled_in({{"B", "constant"}, {"C", "constant"}});
  CHECK(neither.size() == 1);
  CHECK(neither.at("u").size() > 50);
}
