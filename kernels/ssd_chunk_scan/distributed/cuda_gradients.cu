// ssd_chunk_scan_bwd over ranks on GPUs: states and their gradients by walk.cuh, then the gradients of each shard
// by the kernels of one device.

#include <memory>
#include <string>

#include "kernels/distributed/gradient_registration.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/distributed/cuda_states.h"
#include "kernels/ssd_chunk_scan/distributed/host_shard.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/halves.h"

namespace ssmbench::cuda_ssd_shards {
namespace {

std::size_t gradient_bytes(const Problem& part) {
  return static_cast<std::size_t>(states_floats(part)) * sizeof(float);
}

std::unique_ptr<LocalScan> states(const Problem& part, const TensorSet& tensors, void* workspace) {
  return std::make_unique<StatesShard>(part, bind_ssd_bwd(part, tensors).in, nullptr,
                                       static_cast<float*>(workspace));
}

std::function<void(const float*, float*, void*)> way_back(const Problem& part, const TensorSet& tensors,
                                                          void* workspace) {
  const SsdBwdArgs args = bind_ssd_bwd(part, tensors);
  return [=](const float* leaving, float* entering, void* stream) {
    walk_back(part, args.in, args.dout, leaving, entering, static_cast<float*>(workspace), stream);
  };
}

/// Of each batch by itself.
void rebase(const TensorView& numbers, std::int32_t* to, void* stream) {
  const std::int64_t steps = numbers.shape.back();
  const auto* from = static_cast<const std::int32_t*>(numbers.data);
  for (std::int64_t b = 0; b < numbers.shape.front(); ++b)
    rebase_numbers(from + b * steps, 0, steps, to + b * steps, stream);
}

const GradientRegistration registration(cuda_ranks(), {.op = "ssd_chunk_scan_bwd",
                                                       .state = "initial_states",
                                                       .dlast_state = "dfinal_states",
                                                       .dlast_axis = "final_states",
                                                       .numbers = "seq_idx",
                                                       .sums_over_time = {"dA", "dD", "ddt_bias"},
                                                       .unsupported = ssd_shards::unsupported,
                                                       .sizes = ssd_shards::sizes,
                                                       .shard_bytes = gradient_bytes,
                                                       .scan = states,
                                                       .go_back = way_back,
                                                       .has_halves = ssd_hopper_bwd::has_halves,
                                                       .halves = ssd_hopper_bwd::halves,
                                                       .halves_bytes = ssd_hopper_bwd::halves_bytes,
                                                       .rebase = rebase});

}  // namespace
}  // namespace ssmbench::cuda_ssd_shards
