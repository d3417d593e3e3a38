// A state cache of more than 2^31 elements: offsets of slots take 64 bits. Only the slot that is used is
// touched.

#include <cstddef>
#include <string>
#include <utility>
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

constexpr std::int64_t kManySlots = 4200;  // of 2^19 states

bool is_of_slots(const std::string& tensor) {
  return tensor == "state" || tensor == "state_scale";
}

/// out, and state and scales of the last of `slots` slots, which one row starts from and is stored into.
std::vector<std::byte> in_last_slot(Device& device, const Implementation& implementation,
                                    const Problem& one_slot, std::int64_t slots) {
  const Problem problem = one_slot.with({{"slots", slots}});
  auto inputs = generate_inputs(one_slot, {}, never_stop);
  TensorSet tensors;
  std::vector<Device::Buffer> buffers;
  std::vector<std::pair<const std::byte*, std::size_t>> results_at;
  for (const auto& spec : problem.tensors()) {
    if (tensors.find(spec.name) != nullptr) continue;  // the state, as an output
    buffers.push_back(device.allocate(spec.bytes()));
    auto* data = static_cast<std::byte*>(buffers.back().get());
    tensors.add(spec.name, TensorView(data, spec));
    if (spec.name == "out") results_at.emplace_back(data, spec.bytes());
    for (const auto& input : inputs) {
      if (input.spec.name != spec.name) continue;
      if (is_of_slots(spec.name)) {
        data += static_cast<std::size_t>(slots - 1) * input.spec.bytes();
        results_at.emplace_back(data, input.spec.bytes());
      }
      auto* const indices = static_cast<std::int32_t*>(input.buffer.data());
      if (spec.dtype == DType::i32)
        for (std::int64_t i = 0; i < element_count(spec.shape); ++i)
          if (indices[i] >= 0) indices[i] = static_cast<std::int32_t>(slots - 1);
      device.copy_in(data, input.buffer.data(), input.spec.bytes());
    }
  }
  implementation.bind(problem, tensors, nullptr)(device.stream());
  device.synchronize();
  std::vector<std::byte> results;
  for (const auto& [data, bytes] : results_at) {
    results.resize(results.size() + bytes);
    device.copy_out(&results[results.size() - bytes], data, bytes);
  }
  return results;
}

void check_large_cache(DeviceKind kind, const char* implementation) {
  const auto device = open_device(kind);
  const Axes axes{{"dtype", "bf16"}, {"slots", size(1)}, {"dt_softplus", true}};
  Axes channels{{"dim", size(1 << 15)}, {"dstate", size(16)}};
  channels.merge(Axes(axes));
  Axes heads{{"nheads", size(64)}, {"headdim", size(64)}, {"dstate", size(128)}};
  heads.merge(Axes(axes));
  for (const Problem& form : {mamba1_step(channels), mamba2_step(heads)})
    for (const char* state_dtype : {"bf16", "i8"})
      for (const std::int64_t tokens : {1, 2}) {
        const Problem problem = form.with({{"tokens", tokens}, {"state_dtype", state_dtype}});
        CAPTURE(problem.id());
        const Implementation& step = find_implementation("selective_state_update", implementation);
        CHECK(in_last_slot(*device, step, problem, kManySlots) == in_last_slot(*device, step, problem, 1));
      }
}

}  // namespace

TEST_CASE("cpu-step takes caches of more than 2^31 states") {
  check_large_cache(DeviceKind::cpu, "cpu-step");
}

TEST_CASE("cuda-step takes caches of more than 2^31 states", "[gpu]") {
  if (gpu_or_skip()) check_large_cache(DeviceKind::cuda, "cuda-step");
}
