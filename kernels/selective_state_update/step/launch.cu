// cuda-step: registration and launch. The pictures are in kernel.cuh, channel_tiles.cuh, tokens.cuh,
// products.cuh, coded_heads.cuh and quantized.cuh.

#include <algorithm>
#include <string>

#include "base/cuda_check.h"
#include "base/errors.h"
#include "kernels/common/mma_device.h"
#include "kernels/selective_state_update/bind.h"
#include "kernels/selective_state_update/step/instances.cuh"

namespace ssmbench::step {
namespace {

constexpr std::int64_t kMostCodedRows = 2147483647;
constexpr std::int64_t kMostSlotBytes = 4294967295;

/// Which kernels a problem takes.
enum class Kernels { one_token, channel_tiles, tokens, products, coded_heads, coded };

StepPlan quantized_plan_of(const StateUpdate& update) {
  return plan_quantized(update.batch, update.heads, update.headdim, static_cast<int>(update.dstate),
                        static_cast<int>(size_of(update.state_dtype)),
                        !update.rate_per_state && update.tokens == 1);
}

std::int64_t slot_bytes(const StateUpdate& update) {
  return update.heads * update.headdim * update.dstate *
         static_cast<std::int64_t>(size_of(update.state_dtype));
}

Kernels kernels_of(const Problem& problem, const StateUpdate& update) {
  const DType io = problem.dtype();
  if (io == DType::bf16 && !update.rate_per_state) {
    if (update.tokens > 1 && has_products(update.headdim, update.dstate, update.tokens, update.state_dtype) &&
        slot_bytes(update) <= kMostSlotBytes && device_has_mma())
      return Kernels::products;
    if (update.tokens == 1 && has_coded_heads(quantized_plan_of(update), update.headdim, update.dstate,
                                              update.state_dtype, update.stochastic))
      return Kernels::coded_heads;
  }
  if (update.has_scale() || update.stochastic || !has_instances(io, update.state_dtype))
    return Kernels::coded;
  if (update.rate_per_state &&
      has_channel_tiles(update.batch, update.groups, update.heads_per_group(), update.dstate))
    return Kernels::channel_tiles;
  return update.tokens == 1 ? Kernels::one_token : Kernels::tokens;
}

int coded_run(const StateUpdate& update) {
  return coded_heads_run(quantized_plan_of(update), update.heads_per_group(), update.stochastic);
}

int product_run_of(const StateUpdate& update) {
  return product_run(update.batch, update.heads, update.headdim, static_cast<int>(update.dstate),
                     update.state_dtype);
}
int product_warp_bytes_of(const StateUpdate& update) {
  return product_warp_bytes(product_run_of(update), static_cast<int>(update.dstate),
                            static_cast<int>(size_of(update.state_dtype)), update.state_dtype,
                            static_cast<int>(update.tokens));
}

StepPlan plan_of(Kernels kernels, const StateUpdate& update) {
  const auto dstate = static_cast<int>(update.dstate);
  const auto state_bytes = static_cast<int>(size_of(update.state_dtype));
  if (kernels == Kernels::products)
    return plan_products(update.batch, update.heads, update.headdim, product_run_of(update),
                         product_warps(product_warp_bytes_of(update)));
  if (kernels == Kernels::channel_tiles)
    return plan_channel_tiles(update.batch, update.groups, update.heads_per_group(), update.tokens);
  if (kernels == Kernels::coded) return quantized_plan_of(update);
  if (kernels == Kernels::coded_heads) {
    StepPlan plan = quantized_plan_of(update);
    plan.sections /= coded_run(update);
    return plan;
  }
  return update.rate_per_state
             ? plan_channels(update.batch, update.groups, update.heads_per_group(), dstate, state_bytes,
                             update.tokens)
             : plan_heads(update.batch, update.heads, update.headdim, dstate, state_bytes, update.tokens);
}

std::optional<std::string> unsupported(const Problem& problem) {
  const StateUpdate update(problem);
  const Kernels kernels = kernels_of(problem, update);
  if (kernels == Kernels::coded && update.heads > kMostCodedRows / update.headdim)
    return "needs at most " + std::to_string(kMostCodedRows) + " rows of such states in a sequence";
  if ((kernels == Kernels::one_token || kernels == Kernels::channel_tiles) && update.rate_per_state &&
      update.heads > kMostSlotBytes / (update.dstate * static_cast<std::int64_t>(sizeof(float))))
    return "needs slots of at most " + std::to_string(kMostSlotBytes) + " bytes in f32";
  const StepPlan plan = plan_of(kernels, update);
  if (plan.sections > kMaxGridYZ || plan.batch_tiles > kMaxGridYZ || plan.tiles > kMaxGridX)
    return "needs at most " + std::to_string(kMaxGridYZ) + " blocks in an axis of the grid: one per " +
           (update.rate_per_state
                ? "group, and " + std::to_string(plan.rows * std::max(plan.turns, 1)) + " sequences"
                : "head, and sequence");
  return {};
}

/// The kernel on the blocks of a plan.
template <class... Arguments>
Launch launch_of_plan(void (*kernel)(Arguments...), const StepPlan& plan, int shared_bytes,
                      const std::type_identity_t<Arguments>&... arguments) {
  const dim3 blocks(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.sections),
                    static_cast<unsigned>(plan.batch_tiles));
  return [=, threads = static_cast<unsigned>(plan.threads())](void* stream) {
    kernel<<<blocks, threads, static_cast<std::size_t>(shared_bytes), static_cast<cudaStream_t>(stream)>>>(
        arguments...);
    check_cuda(cudaGetLastError());
  };
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-step " + *reason);
  const StateUpdateArgs args = bind_state_update(problem, tensors);
  const StateStorage storage = bind_state_storage(problem, tensors);
  const StateUpdate update(problem);
  const Kernels kernels = kernels_of(problem, update);
  const StepPlan plan = plan_of(kernels, update);
  const DType io = problem.dtype();
  const auto heads_per_group = static_cast<int>(update.heads_per_group());
  switch (kernels) {
    case Kernels::products:
      return launch_of_plan(products_kernel(update.state_dtype, update.stochastic, update.dstate), plan,
                            plan.warps * product_warp_bytes_of(update), args, storage, heads_per_group,
                            product_run_of(update));
    case Kernels::coded_heads:
      return launch_of_plan(coded_heads_kernel(update.state_dtype, update.stochastic, update.dstate), plan, 0,
                            args, storage, heads_per_group, coded_run(update));
    case Kernels::coded:
      return launch_of_plan(quantized_kernel(update.state_dtype, update.stochastic, plan), plan, 0, args,
                            storage, plan, io, heads_per_group);
    case Kernels::one_token:
      return launch_of_plan(step_kernel(io, update.state_dtype, update.rate_per_state, plan), plan, 0, args,
                            plan, heads_per_group);
    case Kernels::channel_tiles:
      return launch_of_plan(channel_tiles_kernel(io, update.state_dtype, update.tokens > 1), plan, 0, args,
                            plan, heads_per_group);
    case Kernels::tokens:
      return launch_of_plan(tokens_kernel(io, update.state_dtype, update.rate_per_state, plan), plan,
                            plan.stage_bytes(static_cast<int>(update.dstate), update.rate_per_state), args,
                            plan, heads_per_group);
  }
  throw_logic_error("no such kernels");
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
