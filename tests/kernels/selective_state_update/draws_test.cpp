// Stochastic rounding takes another random number for each state: with states that are all as near to one
// neighbour as to the other, which of them is taken says nothing about the next state, lane, row or head.

#include <cmath>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "support/find_implementation.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/step_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// Of each state after a step from 1 with Δ·x·B = 2^-11: 1 where it is 1 + 2^-10, −1 where it is 1.
std::vector<int> roundings(DeviceKind kind, const char* implementation, const Problem& problem) {
  auto inputs = generate_inputs(problem, {}, never_stop);
  for (const auto& input : inputs) {
    const TensorView view = input.view();
    const double value = input.spec.name == "A" ? 0 : input.spec.name == "x" ? 0x1p-11 : 1;
    for (std::int64_t i = 0; i < element_count(view.shape) && !is_index(view.dtype); ++i)
      store_from_double(view.data, i, view.dtype, value);
  }
  const auto device = open_device(kind);
  TensorSet tensors;
  std::vector<Device::Buffer> buffers;
  const auto add = [&](const TensorSpec& spec) {
    buffers.push_back(device->allocate(spec.bytes()));
    tensors.add(spec.name, TensorView(static_cast<std::byte*>(buffers.back().get()), spec));
  };
  for (const auto& input : inputs) {
    add(input.spec);
    device->copy_in(buffers.back().get(), input.buffer.data(), input.spec.bytes());
  }
  for (const auto& spec : specs_of(problem, Role::output))
    if (tensors.find(spec.name) == nullptr) add(spec);
  find_implementation("selective_state_update", implementation)
      .bind(problem, tensors, nullptr)(device->stream());
  device->synchronize();

  const TensorView& state = tensors.at("state");
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(element_count(state.shape)));
  device->copy_out(bits.data(), state.data, bits.size() * sizeof(std::uint16_t));
  std::vector<int> up;
  for (const auto of_state : bits) {
    REQUIRE((of_state == 0x3C00 || of_state == 0x3C01));
    up.push_back(of_state == 0x3C01 ? 1 : -1);
  }
  return up;
}

void check_independence(DeviceKind kind, const char* implementation) {
  for (const std::int64_t batch : {2, 40})  // few rows, and many
    for (const std::int64_t dstate : {33, 128}) {
      const Problem problem = mamba2_step({{"dtype", "bf16"},
                                           {"state_dtype", "f16"},
                                           {"rounding", "stochastic"},
                                           {"batch", batch},
                                           {"nheads", size(16)},
                                           {"headdim", size(16)},
                                           {"dstate", dstate}});
      CAPTURE(problem.id());
      const std::vector<int> up = roundings(kind, implementation, problem);
      for (const std::int64_t lag :
           {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{4}, std::int64_t{5},
            std::int64_t{6}, std::int64_t{7}, std::int64_t{8}, std::int64_t{16}, std::int64_t{64}, dstate,
            4 * dstate, 16 * dstate, 16 * 16 * dstate}) {
        CAPTURE(lag);
        double sum = 0;
        for (std::size_t i = static_cast<std::size_t>(lag); i < up.size(); ++i)
          sum += up[i] * up[i - static_cast<std::size_t>(lag)];
        CHECK(std::abs(sum) < 6 * std::sqrt(static_cast<double>(up.size())));
      }
    }
}

}  // namespace

TEST_CASE("cpu-step rounds every state on its own") {
  check_independence(DeviceKind::cpu, "cpu-step");
}

TEST_CASE("cuda-step rounds every state on its own", "[gpu]") {
  if (gpu_or_skip()) check_independence(DeviceKind::cuda, "cuda-step");
}
