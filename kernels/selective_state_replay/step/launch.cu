// cuda-step of replays: registration and launch. The pictures are in kernel.cuh and
// products.cuh.

#include <optional>
#include <string>

#include "base/cuda_check.h"
#include "base/errors.h"
#include "kernels/common/mma_device.h"
#include "kernels/selective_state_replay/bind.h"
#include "kernels/selective_state_replay/step/kernel.cuh"
#include "kernels/selective_state_replay/step/products.cuh"

namespace ssmbench::replay {
namespace {

using Kernel = void (*)(StateReplayArgs, StepPlan, DType io, int heads_per_group);
using ProductsKernel = void (*)(StateReplayArgs, int heads_per_group);

template <DType kState>
ProductsKernel products_of(std::int64_t dstate) {
  return dstate == 64 ? replay_products<kState, 64> : replay_products<kState, 128>;
}
ProductsKernel products_kernel(DType state, std::int64_t dstate) {
  if (state == DType::f32) return products_of<DType::f32>(dstate);
  return state == DType::f16 ? products_of<DType::f16>(dstate) : products_of<DType::bf16>(dstate);
}

/// Whether tensor cores take it.
bool has_products(const Problem& problem, const StateUpdate& step) {
  return problem.dtype() == DType::bf16 && ssmbench::has_products(step.headdim, step.dstate, step.tokens) &&
         device_has_mma();
}

template <class State, RowShape kShape>
Kernel kernel_of_shape(int rows) {
  if (rows == 1) return replay_heads<State, kShape, 1>;
  return replay_heads<State, kShape, most_rows(kShape, sizeof(State), true)>;
}

template <class State>
Kernel kernel_of(const StepPlan& plan) {
  if (plan.shape == RowShape::one_vector) return kernel_of_shape<State, RowShape::one_vector>(plan.rows);
  if constexpr (sizeof(State) == 4)
    if (plan.shape == RowShape::two_vectors) return kernel_of_shape<State, RowShape::two_vectors>(plan.rows);
  if constexpr (sizeof(State) < 4)
    if (plan.shape == RowShape::scalars) return replay_heads<State, RowShape::scalars, 1>;
  return kernel_of_shape<State, RowShape::words>(plan.rows);
}

StepPlan plan_of(const Problem& problem, const StateReplay& replay) {
  const StateUpdate& step = replay.step;
  if (has_products(problem, step))
    return plan_products(step.batch, step.heads, step.headdim, 1, kStepHeadWarps);
  return plan_heads(step.batch, step.heads, step.headdim, static_cast<int>(step.dstate),
                    static_cast<int>(size_of(step.state_dtype)), replay.ring());
}

std::optional<std::string> unsupported(const Problem& problem) {
  const StepPlan plan = plan_of(problem, StateReplay(problem));
  if (plan.sections <= kMaxGridYZ && plan.batch_tiles <= kMaxGridYZ) return {};
  return "needs at most " + std::to_string(kMaxGridYZ) +
         " blocks in an axis of the grid: one per head, and sequence";
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-step " + *reason);
  const StateReplayArgs args = bind_state_replay(problem, tensors);
  const StateReplay replay(problem);
  const StepPlan plan = plan_of(problem, replay);
  const dim3 blocks(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.sections),
                    static_cast<unsigned>(plan.batch_tiles));
  const auto threads = static_cast<unsigned>(plan.threads());
  const auto heads_per_group = static_cast<int>(replay.step.heads_per_group());
  if (has_products(problem, replay.step))
    return [=, kernel = products_kernel(replay.step.state_dtype, replay.step.dstate)](void* stream) {
      kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(args, heads_per_group);
      check_cuda(cudaGetLastError());
    };
  const Kernel kernel =
      with_io_type(replay.step.state_dtype,
                   [&]<class State>(std::type_identity<State>) -> Kernel { return kernel_of<State>(plan); });
  const auto shared_bytes =
      static_cast<std::size_t>(plan.stage_bytes(static_cast<int>(replay.step.dstate), false));
  return [=, io = problem.dtype()](void* stream) {
    kernel<<<blocks, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(args, plan, io,
                                                                                 heads_per_group);
    check_cuda(cudaGetLastError());
  };
}

const Registration registration{{.name = "cuda-step",
                                 .op = "selective_state_replay",
                                 .device = DeviceKind::cuda,
                                 .summary = "the checkpoint through registers once, tokens in shared memory",
                                 .unsupported = unsupported,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::replay
