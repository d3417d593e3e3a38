// The index maps and the elementwise functions of cuda-fused's fast kernel.

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "kernels/selective_scan/fused_rows_map.h"
#include "kernels/selective_scan/fused_rows_math.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

template <class Call>
void for_shapes(const Call& call) {
  for (const RowsShape shape : {RowsShape{1, 16}, RowsShape{2, 8}, RowsShape{4, 4}, RowsShape{4, 8}}) {
    INFO(shape.states << " states on " << shape.lanes << " lanes");
    with_rows_shape(shape, [&](auto states, auto lanes) {
      CHECK(RowsShape{states, lanes} == shape);
      call(RowsMap<states, lanes>());
    });
  }
}

/// Counts how often each float of a tile is used.
class Uses {
 public:
  explicit Uses(int floats) : counts_(static_cast<std::size_t>(floats)) {}
  void add(int at, int count = 1) {
    for (int i = 0; i < count; ++i) ++counts_.at(static_cast<std::size_t>(at + i));
  }
  [[nodiscard]] bool at_most_once() const { return std::ranges::max(counts_) == 1; }

 private:
  std::vector<int> counts_;
};

}  // namespace

TEST_CASE("threads of the fast kernel take each lane of each channel once") {
  for_shapes([]<class Map>(Map) {
    std::set<std::pair<int, int>> taken;
    for (int thread = 0; thread < kRowsThreads; ++thread) {
      const int channel = Map::channel_of(thread);
      const int lane = Map::lane_of(thread);
      CHECK((channel >= 0 && channel < Map::kChannels && lane >= 0 && lane < Map::kLanes));
      taken.insert({channel, lane});
      // Partners of the exchanges: the same channel and warp, one bit of the lane apart.
      CHECK(Map::channel_of(thread ^ Map::kFirstLaneBit) == channel);
      CHECK(Map::lane_of(thread ^ Map::kFirstLaneBit) == (lane ^ 1));
      CHECK(Map::channel_of(thread ^ Map::kSecondLaneBit) == channel);
      CHECK(Map::lane_of(thread ^ Map::kSecondLaneBit) == (lane ^ 2));
    }
    CHECK(taken.size() == kRowsThreads);
  });
}

TEST_CASE("tiles of the fast kernel do not overlap, and 16-byte accesses are aligned") {
  for_shapes([]<class Map>(Map) {
    Uses steps(Map::kStepFloats);
    Uses parts(Map::kParts * Map::kPartFloats);
    Uses projection(Map::kProjectionFloats);
    for (int step = 0; step < Map::kSteps; ++step) {
      for (int channel = 0; channel < Map::kChannels; ++channel) {
        steps.add(Map::step_at(channel, step), 2);
        if (step % 2 == 0) CHECK(Map::step_at(channel, step) % 4 == 0);
        for (int part = 0; part < Map::kParts; ++part) {
          parts.add(Map::part_at(part, channel, step));
          if (step % 4 == 0) CHECK(Map::part_at(part, channel, step) % 4 == 0);
          CHECK(Map::part_at(part, channel, step) == Map::part_at(part, channel, step & ~7) + step % 8);
        }
      }
      for (int state = 0; state < Map::kPaddedStates; ++state)
        projection.add(Map::projection_at(step, state));
      // What a thread reads at once: its states in 4/kStates steps.
      if (step % Map::kStepsAtOnce == 0)
        for (int lane = 0; lane < Map::kLanes; ++lane)
          for (int i = 0; i < 4; ++i)
            CHECK(Map::projection_at(step + i / Map::kStates, lane * Map::kStates + i % Map::kStates) ==
                  Map::projection_at(step, 0) + 4 * lane + i);
    }
    CHECK(steps.at_most_once());
    CHECK(parts.at_most_once());
    CHECK(projection.at_most_once());
  });
}

TEST_CASE("the fast kernel has a shape for up to 32 states") {
  for (const std::int64_t rows : {1, 2048, 16384, 1 << 20})
    for (int dstate = 1; dstate <= 40; ++dstate) {
      const auto shape = rows_shape(rows, dstate);
      CHECK(shape.has_value() == (dstate <= kRowsMaxStates));
      if (shape) CHECK(shape->states * shape->lanes >= dstate);
    }
}

namespace {

/// Largest error of `function` over x in roundoffs of f32, relative to the exact value, beyond `allowed`(x).
template <class Function, class Exact, class Allowed>
double excess(const Function& function, const Exact& exact, const Allowed& allowed) {
  double worst = -1e9;
  for (float x = -80.0F; x < 80.0F; x += 0.00037F) {
    const double expected = exact(static_cast<double>(x));
    worst = std::max(worst, std::abs(function(x) - expected) / (std::abs(expected) * 0x1p-24) -
                                allowed(static_cast<double>(x)));
  }
  return worst;
}

}  // namespace

TEST_CASE("the fast softplus and silu keep to what their tolerance counts") {
  // As reference/activations.h counts, which tolerances double: 2 roundings, an exponential's 2 and |x| for
  // its argument, a quarter more of which is the rounding of log2(e); a quotient's 3 for silu.
  CHECK(excess(
            rows::fast_softplus,
            [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
            [](double x) { return 4 + (x < 0 ? -1.25 * x : 0); }) <= 0);
  CHECK(excess(
            rows::fast_silu, [](double x) { return x / (1 + std::exp(-x)); },
            [](double x) { return 7 + (x < 0 ? -1.25 * x : 0); }) <= 0);
  CHECK(rows::fast_softplus(200.0F) == 200.0F);
  CHECK(rows::fast_softplus(-200.0F) == 0.0F);
  CHECK(rows::fast_silu(-200.0F) == 0.0F);
  CHECK(rows::fast_silu(200.0F) == 200.0F);
  CHECK(std::isnan(rows::fast_softplus(std::nanf(""))));
}

// The tests of all implementations have few channels, and so one of the shapes only.
TEST_CASE("cuda-fused is right in every shape of the fast kernel", "[gpu]") {
  if (!no_cuda_reason().empty()) {
    WARN("skipped: no CUDA device");
    return;
  }
  const auto device = open_device(DeviceKind::cuda);
  const auto& all = implementations();
  const auto fused = std::ranges::find_if(all, [](const Implementation& implementation) {
    return implementation.name == "cuda-fused" && implementation.op == "selective_scan_fwd";
  });
  REQUIRE(fused != all.end());
  for (const std::int64_t batch : {1, 80, 160})  // 40, 3200 and 6400 channels
    for (const std::int64_t dstate : {16, 24})
      for (const char* layout : {"bdl", "bld"})
        for (const char* dtype : {"f32", "f16", "bf16"}) {
          const Problem problem = scan_problem({{"batch", size(batch)},
                                                {"dim", size(40)},
                                                {"seqlen", size(40)},
                                                {"dstate", size(dstate)},
                                                {"layout", layout},
                                                {"dtype", dtype},
                                                {"initial_state", true},
                                                {"D", true},
                                                {"z", true},
                                                {"delta_bias", true},
                                                {"delta_softplus", true}});
          const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
            if (name == "A") return -0.25 * static_cast<double>(1 + i % 7);
            return static_cast<double>(i * 37 % 101) / 101 - 0.4;
          });
          const auto expected = compute_reference(problem, views_of(inputs), never_stop);
          for (const auto& output : run_once(*device, *fused, problem, inputs)) {
            INFO(problem.id() << " " << output.spec.name);
            CHECK(compare_output(real_view(output.view()), expected.at(output.spec.name).expectation(),
                                 fused->arithmetic(problem.dtype()))
                      .passed());
          }
        }
}
