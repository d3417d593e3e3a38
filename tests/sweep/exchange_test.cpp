// Two channels or sequences that change places in all inputs do so in the outputs, and nothing else changes.

#include "sweep/exchange.h"

#include <cmath>
#include <set>

#include "catch.h"
#include "device/device.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/problem_of_several_rows.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

void exchange_in(std::vector<HostTensor>& tensors, const Exchange& exchange) {
  std::vector<SlicePair> pairs;
  for (const auto& tensor : tensors)
    if (const auto pair = slices_of(exchange, tensor.spec, tensor.buffer.data())) pairs.push_back(*pair);
  exchange_slices(pairs);
}

/// The values of all outputs, after the exchange of the inputs, in the places that they have without.
std::map<std::string, std::vector<double>> outputs_with(const Problem& problem,
                                                        const std::optional<Exchange>& exchange) {
  auto inputs = generate_inputs(problem, {}, never_stop);
  if (exchange) exchange_in(inputs, *exchange);
  const auto reference = compute_reference(problem, views_of(inputs), never_stop);
  std::map<std::string, std::vector<double>> values;
  for (auto spec : problem.tensors()) {
    if (spec.role != Role::output) continue;
    const Expectation expected = reference.at(spec.name).expectation();
    spec.dtype = DType::f32;
    HostTensor output(spec);
    const TensorView view = output.view();
    const std::int64_t count = element_count(spec.shape);
    for (std::int64_t i = 0; i < count; ++i)
      store_from_double(view.data, offset_in(view, i), view.dtype, expected.values[i]);
    std::vector<HostTensor> one;
    one.push_back(std::move(output));
    if (exchange) exchange_in(one, *exchange);
    for (std::int64_t i = 0; i < count; ++i)
      values[spec.name].push_back(
          load_as_double(one[0].buffer.data(), offset_in(one[0].view(), i), DType::f32));
  }
  return values;
}

}  // namespace

TEST_CASE("outputs follow two channels of a group, and two sequences of the batch, of every operation") {
  std::mt19937_64 random(7);
  for (const OpSpec* op : all_ops()) {
    const Problem problem = problem_of_several_rows(*op);
    INFO(problem.id());
    const auto expected = outputs_with(problem, {});
    const ExchangeDraw draw(problem);
    for (const auto& exchange : {draw.of_channels(random), draw.of_batch(random)}) {
      REQUIRE(exchange);
      CHECK(exchange->first != exchange->second);
      for (const auto& [name, values] : outputs_with(problem, exchange)) {
        INFO(name << ", axis " << exchange->axis << ": " << exchange->first << " and " << exchange->second);
        double worst = 0;
        double largest = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          worst = std::max(worst, std::abs(values[i] - expected.at(name)[i]));
          largest = std::max(largest, std::abs(values[i]));
        }
        CHECK(largest > 0);
        CHECK(worst <= 1e-6 * largest);
      }
    }
  }
}

TEST_CASE("channels of one group alone are exchanged, all pairs of them") {
  const Problem problem = scan_problem({{"dim", size(6)}, {"groups", size(2)}});
  const ExchangeDraw draw(problem);
  std::mt19937_64 random(7);
  std::set<std::pair<std::int64_t, std::int64_t>> drawn;
  for (int i = 0; i < 500; ++i) {
    const auto exchange = draw.of_channels(random);
    REQUIRE(exchange);
    CHECK(exchange->first / 3 == exchange->second / 3);
    drawn.insert(std::minmax(exchange->first, exchange->second));
  }
  CHECK(drawn.size() == 6);
  CHECK_FALSE(draw.of_batch(random));
  CHECK_FALSE(ExchangeDraw(scan_problem({{"dim", size(2)}, {"groups", size(2)}})).of_channels(random));
}
