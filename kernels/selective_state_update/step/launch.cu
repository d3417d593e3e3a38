// cuda-step: registration and launch. The pictures are in kernel.cuh, tokens.cuh and quantized.cuh.

#include <string>

#include "base/cuda_check.h"
#include "base/errors.h"
#include "kernels/selective_state_update/bind.h"
#include "kernels/selective_state_update/step/instances.cuh"

namespace ssmbench::step {
namespace {

constexpr std::int64_t kMostQuantizedRows = 2147483647;

int state_bytes(const StateUpdate& update) {
  return static_cast<int>(size_of(update.state_dtype));
}

bool is_quantized(const StateUpdate& update) {
  return update.has_scale() || update.stochastic;
}

StepPlan plan_of(const StateUpdate& update) {
  const auto dstate = static_cast<int>(update.dstate);
  if (is_quantized(update)) {
    const QuantizedSteps steps = update.rate_per_state || update.tokens > 1 ? QuantizedSteps::others
                                 : update.stochastic                        ? QuantizedSteps::stochastic
                                                                            : QuantizedSteps::nearest;
    return plan_quantized(update.batch, update.heads, update.headdim, dstate, state_bytes(update), steps);
  }
  return update.rate_per_state ? plan_channels(update.batch, update.groups, update.heads_per_group(), dstate,
                                               state_bytes(update), update.tokens)
                               : plan_heads(update.batch, update.heads, update.headdim, dstate,
                                            state_bytes(update), update.tokens);
}

std::optional<std::string> unsupported(const Problem& problem) {
  const StateUpdate update(problem);
  if (!is_quantized(update) && !has_state_dtype(problem.dtype(), update.state_dtype))
    return "supports states in f32, in the dtype of the sequence, or in f16 with bf16, not " +
           problem.choice("state_dtype") + " with " + problem.choice("dtype");
  if (is_quantized(update) && update.heads > kMostQuantizedRows / update.headdim)
    return "needs at most " + std::to_string(kMostQuantizedRows) + " rows of quantized states in a sequence";
  const StepPlan plan = plan_of(update);
  if (plan.sections > kMaxGridYZ || plan.batch_tiles > kMaxGridYZ || plan.tiles > kMaxGridX)
    return "needs at most " + std::to_string(kMaxGridYZ) + " blocks in an axis of the grid: one per " +
           (update.rate_per_state ? "group, and " + std::to_string(plan.rows) + " sequences"
                                  : "head, and sequence");
  return {};
}

dim3 blocks_of(const StepPlan& plan) {
  return {static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.sections),
          static_cast<unsigned>(plan.batch_tiles)};
}

Launch bind_quantized(DType io, const StateUpdate& update, const StateUpdateArgs& args,
                      const StateStorage& storage, const StepPlan& plan) {
  const QuantizedKernel kernel = quantized_kernel(update.state_dtype, update.stochastic, plan);
  const auto threads = static_cast<unsigned>(plan.threads());
  const auto heads_per_group = static_cast<int>(update.heads_per_group());
  return [=, blocks = blocks_of(plan)](void* stream) {
    kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(args, storage, plan, io,
                                                                      heads_per_group);
    check_cuda(cudaGetLastError());
  };
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-step " + *reason);
  const StateUpdateArgs args = bind_state_update(problem, tensors);
  const StateUpdate update(problem);
  const StepPlan plan = plan_of(update);
  if (is_quantized(update))
    return bind_quantized(problem.dtype(), update, args, bind_state_storage(problem, tensors), plan);
  const bool one = update.tokens == 1;
  const Kernel kernel =
      (one ? step_kernel : tokens_kernel)(problem.dtype(), update.state_dtype, update.rate_per_state, plan);
  const int shared_bytes = one ? 0 : plan.stage_bytes(static_cast<int>(update.dstate), update.rate_per_state);
  const dim3 blocks = blocks_of(plan);
  const auto threads = static_cast<unsigned>(plan.threads());
  const auto heads_per_group = static_cast<int>(update.heads_per_group());
  return [=](void* stream) {
    kernel<<<blocks, threads, static_cast<std::size_t>(shared_bytes), static_cast<cudaStream_t>(stream)>>>(
        args, plan, heads_per_group);
    check_cuda(cudaGetLastError());
  };
}

const Registration registration{{.name = "cuda-step",
                                 .op = "selective_state_update",
                                 .device = DeviceKind::cuda,
                                 .summary = "decoding steps, both forms, the state through registers once",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::step
