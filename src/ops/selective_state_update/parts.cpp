// Mamba-2 as Mamba-1 with as many channels as heads times head dims, and what a head shares repeated for
// each.

#include "ops/selective_state_update/parts.h"

#include "model/problem.h"
#include "model/tensor_map.h"
#include "ops/selective_state_update/selective_state_update.h"

namespace ssmbench {
namespace {

std::optional<std::string> not_heads(const Problem& whole) {
  if (whole.choice("form") != "mamba2") return "form mamba1 has no heads";
  return {};
}

Problem channels_of(const Problem& whole) {
  auto axes = whole.axes();
  const std::int64_t channels = whole.size("nheads") * whole.size("headdim");
  axes.erase("nheads");
  axes.erase("headdim");
  axes["form"] = "mamba1";
  axes["dim"] = channels;
  return {whole.op(), std::move(axes)};
}

/// Where element (…, channel, …) of a Mamba-1 tensor comes from: index (…, head, …) or (…, head, p, …).
HostTensor of_channels(const TensorSpec& spec, const HostTensor& from, std::int64_t headdim) {
  const std::string& name = spec.name;
  return gathered(spec, from, [&](const Shape& here, Shape& there) {
    if (name == "B" || name == "C")
      there = here.size() == 2 ? Shape{here[0], 0, here[1]} : here;
    else if (name == "A" || name == "D" || name == "dt_bias")
      there = {here[0] / headdim};
    else if (name == "dt")
      there = {here[0], here[1] / headdim};
    else if (name == "state")
      there = {here[0], here[1] / headdim, here[1] % headdim, here[2]};
    else
      there = {here[0], here[1] / headdim, here[1] % headdim};
  });
}

std::vector<HostTensor> as_channels(const Problem& whole, const std::vector<HostTensor>& inputs,
                                    const RunPart& run) {
  const Problem channels = channels_of(whole);
  const std::int64_t headdim = whole.size("headdim");
  std::vector<HostTensor> channel_inputs;
  for (const auto& spec : channels.tensors())
    if (spec.role == Role::input)
      channel_inputs.push_back(of_channels(spec, *find_tensor(inputs, spec.name), headdim));
  const auto results = run(channels, channel_inputs);
  std::vector<HostTensor> outputs = blank_outputs(whole);
  for (auto& output : outputs)
    scatter(*find_tensor(results, output.spec.name), output, [&](const Shape& here, Shape& there) {
      there = {here[0], here[1] / headdim, here[1] % headdim};
      if (here.size() == 3) there.push_back(here[2]);
    });
  return outputs;
}

}  // namespace

PartwiseComputation heads_as_channels() {
  return {.check = "mamba1",
          .parts_op = "selective_state_update",
          .summary = "form mamba2 against form mamba1 with dt, A, D and dt_bias repeated over the head",
          .inapplicable = not_heads,
          .compute = as_channels};
}

}  // namespace ssmbench
