// The index maps and the elementwise functions of cuda-fused's fast kernel.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.h"
#include "device/device.h"
#include "inputs/inputs.h"
#include "kernels/common/activations.h"
#include "kernels/selective_scan/fused/map.h"
#include "ops/selective_scan/x.h"
#include "reference/reference.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/scan_problem.h"
#include "sweep/prepared_run.h"
#include "verify/compare.h"

using namespace ssmbench;
using namespace ssmbench::fused;
using namespace ssmbench::test;

namespace {

template <class Call>
void for_shapes(const Call& call) {
  for (const ThreadShape shape : {ThreadShape{2, 8, 1}, ThreadShape{4, 4, 1}, ThreadShape{4, 4, 2},
                                  ThreadShape{4, 4, 4}, ThreadShape{4, 8, 1}}) {
    INFO(shape.states << " states on " << shape.lanes << " lanes, slices: " << shape.slices);
    with_shape<4>(shape, [&](auto states, auto lanes, auto slices) {
      CHECK(ThreadShape{states, lanes, slices} == shape);
      call(ThreadMap<states, lanes, slices>());
    });
  }
  INFO("complex states");
  call(ComplexThreadMap());
}

/// The same with each raw tile.
template <class Call>
void for_raw_tiles(const Call& call) {
  for_shapes([&]<class Map>(Map map) {
    const auto with = [&]<bool kAlongTime, int bytes>(std::bool_constant<kAlongTime> along_time,
                                                      std::integral_constant<int, bytes>) {
      INFO(bytes << " bytes, along time: " << kAlongTime);
      if constexpr (Map::kStateFloats == 1 || bytes == 4) call(map, along_time, SharedLayout<Map, bytes>());
    };
    with(std::true_type(), std::integral_constant<int, 2>());
    with(std::true_type(), std::integral_constant<int, 4>());
    with(std::false_type(), std::integral_constant<int, 2>());
    with(std::false_type(), std::integral_constant<int, 4>());
  });
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

TEST_CASE("consumers of the fast kernel take each lane of each channel once") {
  for_shapes([]<class Map>(Map) {
    std::set<std::pair<int, int>> taken;
    for (int thread = 0; thread < kConsumerThreads; ++thread) {
      const int channel = Map::channel_of(thread);
      const int lane = Map::lane_of(thread);
      CHECK((channel >= 0 && channel < Map::kChannels && lane >= 0 && lane < Map::kLanes));
      taken.insert({channel, lane});
      // Lanes write parts where other lanes have read: one warp has all of a channel.
      CHECK(channel / (32 / Map::kLanes) == thread / 32);
      // Partners of the exchange.
      CHECK(Map::channel_of(thread ^ Map::kFirstLaneBit) == channel);
      CHECK(Map::lane_of(thread ^ Map::kFirstLaneBit) == (lane ^ 1));
    }
    CHECK(taken.size() == kConsumerThreads);
  });
}

TEST_CASE("producers of the fast kernel take each 8 elements of a tile once") {
  for_raw_tiles([]<class Map, bool kAlongTime, class Memory>(Map, std::bool_constant<kAlongTime>, Memory) {
    using Coordinates = ProjectionCoordinates<Map, kAlongTime>;
    std::set<std::pair<int, int>> sequences;
    std::set<std::pair<int, int>> projections;
    for (int thread = 0; thread < kProducerThreads; ++thread) {
      const SequenceCoordinates<Map, kAlongTime, Memory::kElementBytes> sequence(thread);
      const Coordinates projection(thread);
      CHECK((kAlongTime ? sequence.step : sequence.channel) % 8 == 0);
      CHECK((kAlongTime ? projection.step : projection.state) % Coordinates::kOfItem == 0);
      for (int k = 0; k < 8; ++k)
        sequences.insert({sequence.channel + (kAlongTime ? 0 : k), sequence.step + (kAlongTime ? k : 0)});
      for (int k = 0; k < Coordinates::kOfItem; ++k) {
        for (int i = 0; i < Coordinates::kItems; ++i)
          projections.insert({projection.state + (kAlongTime ? 0 : k),
                              projection.step + i * Coordinates::kStepsApart + (kAlongTime ? k : 0)});
      }
    }
    CHECK(sequences.size() == std::size_t{Map::kChannels * Map::kSteps});
    CHECK(sequences.rbegin()->first < Map::kChannels);
    CHECK(projections.size() == std::size_t{Coordinates::kStates * Map::kSteps});
    CHECK(projections.rbegin()->first < Coordinates::kStates);
  });
}

TEST_CASE("tiles of the fast kernel do not overlap, and 16-byte accesses are aligned") {
  for_shapes([]<class Map>(Map) {
    Uses steps(Map::kSequenceFloats);
    Uses partials(Map::kSequenceFloats);
    Uses projection(Map::kProjectionFloats);
    for (int step = 0; step < Map::kSteps; ++step) {
      for (int channel = 0; channel < Map::kChannels; ++channel) {
        steps.add(Map::step_at(channel, step), 2);
        CHECK(Map::step_at(channel, step) == Map::step_at(channel, step & ~7) + 2 * (step % 8));
        if (step % 2 == 0) CHECK(Map::step_at(channel, step) % 4 == 0);
        for (int part = 0; part < Map::kPartials; ++part) {
          partials.add(Map::partial_at(part, channel, step));
          if (step % 4 == 0) CHECK(Map::partial_at(part, channel, step) % 4 == 0);
          CHECK(Map::partial_at(part, channel, step) == Map::partial_at(part, channel, step & ~7) + step % 8);
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
    CHECK(partials.at_most_once());
    CHECK(projection.at_most_once());
  });
}

TEST_CASE("the fast kernel's partial sums of y overwrite what has been read") {
  // The parts of 4 steps are stored once {Δ, Δ·u} of these and of the next 4 are read.
  for_shapes([]<class Map>(Map) {
    std::map<int, std::pair<int, int>> owner;  // of a float: channel, step
    for (int channel = 0; channel < Map::kChannels; ++channel)
      for (int step = 0; step < Map::kSteps; ++step)
        for (int i = 0; i < 2; ++i) owner[Map::step_at(channel, step) + i] = {channel, step};
    for (int channel = 0; channel < Map::kChannels; ++channel)
      for (int step = 0; step < Map::kSteps; ++step)
        for (int part = 0; part < Map::kPartials; ++part) {
          const auto found = owner.find(Map::partial_at(part, channel, step));
          if (found == owner.end()) continue;
          CHECK(found->second.first == channel);
          CHECK(found->second.second / 4 <= step / 4 + 1);
        }
  });
}

TEST_CASE("what producers of the fast kernel stage over has been read by their own warp") {
  for_raw_tiles([]<class Map, bool kAlongTime, class Memory>(Map, std::bool_constant<kAlongTime>, Memory) {
    std::map<int, int> reader;  // the warp that adds up the part at a float
    const auto elements = [](const auto& call) {
      for (int thread = 0; thread < kProducerThreads; ++thread) {
        const SequenceCoordinates<Map, kAlongTime, Memory::kElementBytes> at(thread);
        for (int k = 0; k < 8; ++k)
          call(thread / 32, at.channel + (kAlongTime ? 0 : k), at.step + (kAlongTime ? k : 0));
      }
    };
    elements([&](int warp, int channel, int step) {
      for (int part = 0; part < Map::kPartials; ++part) reader[Map::partial_at(part, channel, step)] = warp;
    });
    elements([&](int warp, int channel, int step) {
      for (int i = 0; i < 2; ++i) {
        const auto found = reader.find(Map::step_at(channel, step) + i);
        CHECK((found == reader.end() || found->second == warp));
      }
    });
  });
}

namespace {

/// Whether shared memory serves `threads` accesses of `floats` each at once: no bank has two addresses.
template <class Address>
bool at_once(int first, int threads, int floats, const Address& address) {
  std::map<int, int> of_bank;
  for (int thread = first; thread < first + threads; ++thread)
    for (int i = 0; i < floats; ++i) {
      const int at = address(thread) + i;
      if (of_bank.emplace(at % 32, at).first->second != at) return false;
    }
  return true;
}

/// The same for each `threads` neighbours of `all`.
template <class Address>
bool all_at_once(int all, int threads, int floats, const Address& address) {
  for (int first = 0; first < all; first += threads)
    if (!at_once(first, threads, floats, address)) return false;
  return true;
}

}  // namespace

TEST_CASE("the fast kernel's accesses to sequences and partial sums have no bank conflicts") {
  for_shapes([]<class Map>(Map) {
    CHECK(all_at_once(kConsumerThreads, 16, 4,
                      [](int thread) { return Map::step_at(Map::channel_of(thread), 2); }));
    CHECK(all_at_once(kConsumerThreads, 16, 4,
                      [](int thread) { return Map::projection_at(4, 0) + 4 * Map::lane_of(thread); }));
    constexpr bool kOfLane = Map::kPartials == Map::kLanes;
    CHECK(all_at_once(kConsumerThreads, kOfLane ? 8 : 16, kOfLane ? 4 : 2, [](int thread) {
      const int lane = Map::lane_of(thread);
      const int channel = Map::channel_of(thread);
      return kOfLane ? Map::partial_at(lane, channel, 4)
                     : Map::partial_at(lane >> 1, channel, 4) + lane % 2 * 2;
    }));
  });
  for_raw_tiles([]<class Map, bool kAlongTime, class Memory>(Map, std::bool_constant<kAlongTime>, Memory) {
    using Coordinates = SequenceCoordinates<Map, kAlongTime, Memory::kElementBytes>;
    const auto step_at = [](int thread) {
      return Map::step_at(Coordinates(thread).channel, Coordinates(thread).step);
    };
    const auto partial_at = [](int thread) {
      return Map::partial_at(1, Coordinates(thread).channel, Coordinates(thread).step);
    };
    CHECK(all_at_once(kProducerThreads, kAlongTime ? 8 : 16, kAlongTime ? 4 : 2, step_at));
    using Projections = ProjectionCoordinates<Map, kAlongTime>;
    if (!kAlongTime && Map::kPaddedStates == 16)  // vectors of kStates states
      CHECK(all_at_once(Projections::kThreads, 32 / Map::kStates, Map::kStates, [](int thread) {
        return Map::projection_at(Projections(thread).step, Projections(thread).state);
      }));
    CHECK(all_at_once(kProducerThreads, kAlongTime ? 8 : 32, kAlongTime ? 4 : 1, partial_at));
  });
}

TEST_CASE("raw tiles of the fast kernel keep their ring slots while they are needed") {
  for_raw_tiles([]<class Memory>(auto /*map*/, auto /*along_time*/, Memory) {
    for (unsigned staged = 2; staged < 20; ++staged) {
      // All that has been copied and may not have been read until `staged` is staged.
      Uses of_slice(Memory::kSliceRawBytes);
      Uses common(Memory::kCommonRawBytes);
      for (unsigned tile = staged - 2; tile < staged + Memory::kDepth; ++tile) {
        of_slice.add(Memory::u_at(tile), Memory::kSequenceBytes);
        if (tile < staged - 2 + Memory::kDepth) of_slice.add(Memory::z_at(tile), Memory::kSequenceBytes);
        if (tile < staged) continue;
        of_slice.add(Memory::delta_at(tile), Memory::kSequenceBytes);
        for (const int which : {0, 1})
          common.add(Memory::projection_at(which, tile), Memory::kProjectionBytes);
      }
      CHECK(of_slice.at_most_once());
      CHECK(common.at_most_once());
    }
    // Copies are permuted by address.
    CHECK(Memory::kSequenceBytes % 1024 == 0);
    CHECK(Memory::kProjectionBytes % 1024 == 0);
    CHECK(Memory::kSliceBytes % 1024 == 0);
    CHECK(Memory::kCommonBytes % 1024 == 0);
  });
}

TEST_CASE("the largest blocks of the fast kernel fit in an H200's shared memory") {
  for_raw_tiles([]<class Map, class Memory>(Map, auto /*along_time*/, Memory) {
    CHECK((Memory::bytes(Map::kMaxSlices) + 1024) * Map::kBlocks <= 228 * 1024);
    CHECK(Memory::bytes(Map::kMaxSlices) <= 227 * 1024);
    CHECK(Map::kMaxSlices * Map::kThreads <= 1024);
  });
}

TEST_CASE("the fast kernel's blocks leave few slices to one multiprocessor") {
  CHECK(SharedLayout<ThreadMap<4, 4, 4>, 2>::kUsualSlices == 2);
  CHECK(SharedLayout<ThreadMap<4, 4, 4>, 4>::kUsualSlices == 4);
  CHECK(SharedLayout<ThreadMap<4, 4, 2>, 4>::kUsualSlices == 2);
  CHECK(SharedLayout<ThreadMap<4, 4, 2>, 4>::kDepth == 3);
  CHECK(SharedLayout<ThreadMap<2, 8, 1>, 2>::kUsualSlices == 1);
  for (const int usual : {2, 4}) {
    CHECK(slices_per_block(8, 64, usual, 4) == usual);  // 128 blocks of 4 or 256 of 2 are 4 slices in turn
    CHECK(slices_per_block(8, 48, usual, 4) == 3);      // 128 blocks of 3, but 96 of 4 or 192 of 2
    CHECK(slices_per_block(3, 64, usual, 4) == 2);
    CHECK(slices_per_block(2, 64, usual, 4) == 1);
    CHECK(slices_per_block(32, 16, usual, 4) == usual);
    CHECK(slices_per_block(1, 1, usual, 4) == 1);
    CHECK(slices_per_block(std::int64_t{1} << 30, 64, usual, 4) == usual);
  }
  CHECK(slices_per_block(8, 96, 2, 4) == 2);  // three times 2
  CHECK(slices_per_block(8, 96, 4, 4) == 3);  // twice 3, not twice 4
  CHECK(slices_per_block(8, 64, 1, 1) == 1);
  CHECK(slices_per_block(8, 16, 2, 2) == 1);
  CHECK(slices_per_block(4, 64, 2, 2) == 2);
}

TEST_CASE("producers of the fast kernel read raw tiles without bank conflicts") {
  for_raw_tiles([]<class Map, bool kAlongTime, class Memory>(Map, std::bool_constant<kAlongTime>, Memory) {
    using Coordinates = ProjectionCoordinates<Map, kAlongTime>;
    constexpr int kBytes = Memory::kElementBytes;
    const auto elements = []<class Tile>(Tile, int channel, int step, int vector) {
      return Tile::at(kAlongTime ? channel : step, (kAlongTime ? step : channel) * kBytes + 16 * vector);
    };
    Uses sequence(Memory::kSequenceBytes);
    Uses projection(Memory::kProjectionBytes);
    for (int vector = 0; vector < kBytes / 2; ++vector) {
      const auto sequence_at = [&](int thread) {
        const SequenceCoordinates<Map, kAlongTime, Memory::kElementBytes> at(thread);
        return elements(typename Memory::template Sequence<kAlongTime>(), at.channel, at.step, vector);
      };
      const auto projection_at = [&](int thread) {
        const Coordinates at(thread);
        return elements(typename Memory::template Projection<kAlongTime>(),
                        kAlongTime ? at.state : at.state * Map::kStateFloats,
                        kAlongTime ? at.step * Map::kStateFloats : at.step, vector);
      };
      CHECK(all_at_once(kProducerThreads, 8, 4, [&](int thread) { return sequence_at(thread) / 4; }));
      CHECK(all_at_once(Coordinates::kThreads, 8, 4, [&](int thread) { return projection_at(thread) / 4; }));
      for (int thread = 0; thread < kProducerThreads; ++thread) sequence.add(sequence_at(thread), 16);
      for (int thread = 0; thread < Coordinates::kThreads; ++thread)
        projection.add(projection_at(thread), 16);
    }
    CHECK(sequence.at_most_once());
    CHECK(projection.at_most_once());
  });
}

TEST_CASE("the fast kernel has a shape for every number of states") {
  for (const std::size_t element_bytes : {2, 4})
    for (const std::int64_t rows : {1, 2048, 16384, 1 << 20})
      for (int dstate = 1; dstate <= 40; ++dstate) {
        const ThreadShape shape = shape_for(rows, dstate, 2048, element_bytes);
        CHECK(shape.states * shape.lanes >= std::min(dstate, kRoundStates));
      }
  for (const std::size_t element_bytes : {2, 4}) {
    CHECK(shape_for(2112, 16, 65, element_bytes) == ThreadShape{2, 8, 1});
    CHECK(shape_for(8449, 16, 65, element_bytes) == ThreadShape{4, 4, 4});
  }
  CHECK(shape_for(2113, 16, 65, 2) == ThreadShape{4, 4, 4});
  CHECK(shape_for(2113, 16, 65, 4) == ThreadShape{4, 4, 2});
  CHECK(shape_for(8448, 16, 65, 4) == ThreadShape{4, 4, 2});
  CHECK(shape_for(8448, 16, 64, 4) == ThreadShape{4, 4, 2});
  CHECK(shape_for(8449, 16, 64, 4) == ThreadShape{4, 4, 1});
  CHECK(shape_for(8449, 16, 64, 2) == ThreadShape{4, 4, 4});
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

TEST_CASE("the fast kernel leaves x in every shape of up to 16 states, at the steps of its segments", "[x]") {
  for (const std::size_t bytes : {2, 4})
    for (const std::int64_t channels : {8, 64, 96, 128, 2048, 4096, 16384})
      for (const std::int64_t seqlen : {8, 64, 2048, 65536}) {
        const FastPlan plan = plan_for(1, channels, 16, seqlen, bytes);
        INFO(bytes << " bytes, " << channels << " × " << seqlen);
        CHECK(can_leave_x(plan.shape));
        if (plan.segments.count > 1) CHECK(plan.segments.steps % kStepsOfX == 0);
      }
  CHECK(!can_leave_x(plan_for(1, 64, 32, 64, 4).shape));
}

TEST_CASE("the fast softplus and silu keep to what their tolerance counts") {
  // As reference/common/activations.h counts, which tolerances double: 2 roundings, an exponential's 2 and
  // |x| for its argument, a quarter more of which is the rounding of log2(e); a quotient's 3 for silu.
  CHECK(excess(
            fast_softplus, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
            [](double x) { return 4 + (x < 0 ? -1.25 * x : 0); }) <= 0);
  CHECK(excess(
            fast_silu, [](double x) { return x / (1 + std::exp(-x)); },
            [](double x) { return 7 + (x < 0 ? -1.25 * x : 0); }) <= 0);
  CHECK(fast_softplus(200.0F) == 200.0F);
  CHECK(fast_softplus(-200.0F) == 0.0F);
  CHECK(fast_silu(-200.0F) == 0.0F);
  CHECK(fast_silu(200.0F) == 200.0F);
  CHECK(std::isnan(fast_softplus(std::nanf(""))));
}

namespace {

const Implementation& cuda_fused() {
  const auto& all = implementations();
  const auto found = std::ranges::find_if(all, [](const Implementation& implementation) {
    return implementation.name == "cuda-fused" && implementation.op == "selective_scan_fwd";
  });
  REQUIRE(found != all.end());
  return *found;
}

/// With every option, and `axes`.
Problem whole_problem(std::map<std::string, AxisValue> axes) {
  axes.merge(std::map<std::string, AxisValue>{
      {"dstate", size(16)}, {"D", true}, {"z", true}, {"delta_bias", true}, {"delta_softplus", true}});
  return scan_problem(std::move(axes));
}

void check_against_reference(Device& device, const Problem& problem) {
  const auto inputs = make_inputs(problem, [](const std::string& name, std::int64_t i) {
    if (name == "A") return -0.25 * static_cast<double>(1 + i % 7);
    return static_cast<double>(i * 37 % 101) / 101 - 0.4;
  });
  const auto expected = compute_reference(problem, views_of(inputs), never_stop);
  for (const auto& output : run_once(device, cuda_fused(), problem, inputs)) {
    INFO(problem.id() << " " << output.spec.name);
    CHECK(compare_output(real_view(output.view()), expected.at(output.spec.name).expectation(),
                         cuda_fused().arithmetic(problem.dtype()))
              .passed());
  }
}

}  // namespace

// The tests of all implementations have few channels, and so one of the shapes only.
TEST_CASE("cuda-fused is right in every shape of the fast kernel", "[gpu]") {
  if (!gpu_or_skip()) return;
  const auto device = open_device(DeviceKind::cuda);
  const std::int64_t seqlen = 200;  // past two tiles of each shape
  // The second has blocks of two slices, one of which has no channels.
  for (const auto& [batch, dim] : {std::pair{1, 40}, std::pair{24, 280}})
    for (const std::int64_t dstate : {16, 24, 40, 96})
      for (const char* layout : {"bdl", "bld"})
        for (const char* dtype : {"f32", "f16", "bf16"})
          check_against_reference(*device, whole_problem({{"batch", size(batch)},
                                                          {"dim", size(dim)},
                                                          {"seqlen", size(seqlen)},
                                                          {"dstate", size(dstate)},
                                                          {"layout", layout},
                                                          {"dtype", dtype},
                                                          {"initial_state", true}}));
  for (const char* layout : {"bdl", "bld"})
    for (const std::int64_t length : {seqlen, std::int64_t{56}})  // blocks of four slices, and of one
      check_against_reference(
          *device,
          whole_problem(
              {{"batch", size(132)}, {"dim", size(128)}, {"seqlen", size(length)}, {"layout", layout}}));
  for (const char* layout : {"bdl", "bld"})
    for (const char* method : {"zoh", "foh", "bilinear", "rk4", "foh_exact", "trapezoidal"})
      for (const std::int64_t dstate : {8, 16})
        for (const char* dtype : {"f32", "f16", "bf16"})
          check_against_reference(*device, whole_problem({{"A", "complex"},
                                                          {"batch", size(18)},
                                                          {"dim", size(dstate == 8 ? 2 * 120 : 120)},
                                                          {"groups", size(dstate == 8 ? 2 : 1)},
                                                          {"seqlen", size(seqlen)},
                                                          {"dstate", size(dstate)},
                                                          {"dtype", dtype},
                                                          {"layout", layout},
                                                          {"method", method},
                                                          {"initial_state", dstate == 16}}));
  // A channel lies along time in both layouts, B and C do not.
  check_against_reference(*device, whole_problem({{"batch", size(3)},
                                                  {"dim", size(1)},
                                                  {"seqlen", size(64)},
                                                  {"dstate", size(15)},
                                                  {"layout", "bld"}}));
  for (const char* method : {"foh", "bilinear", "vim_highorder"})
    check_against_reference(
        *device, whole_problem(
                     {{"batch", size(54)}, {"dim", size(40)}, {"seqlen", size(seqlen)}, {"method", method}}));
}

TEST_CASE("states of the fast kernel do not add up a bias of the hardware's exponential", "[gpu]") {
  if (!gpu_or_skip()) return;
  const auto device = open_device(DeviceKind::cuda);
  const Problem problem = whole_problem({{"dim", size(256)}, {"seqlen", size(2048)}});
  const auto inputs = generate_inputs(problem, {}, never_stop);
  const auto expected = compute_reference(problem, views_of(inputs), never_stop);
  for (const auto& output : run_once(*device, cuda_fused(), problem, inputs)) {
    INFO(output.spec.name);
    // last_state: 3.03e-7 on an H200, 5.91e-7 without the constant in exponent_of().
    CHECK(compare_output(real_view(output.view()), expected.at(output.spec.name).expectation(),
                         cuda_fused().arithmetic(problem.dtype()))
              .rel_l2 < 4e-7);
  }
}
