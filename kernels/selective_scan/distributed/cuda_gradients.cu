// selective_scan_bwd over ranks on GPUs: cuda-fused's gradients in two halves, with the exchange between them.

#include "kernels/distributed/gradient_registration.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/distributed/cuda_shard.h"
#include "kernels/selective_scan/distributed/host_shard.h"
#include "kernels/selective_scan/fused_bwd_general/halves.h"

namespace ssmbench::cuda_scan_shards {
namespace {

std::optional<std::string> gradients_unsupported(const Problem& whole) {
  if (auto reason = scan_shards::unsupported(whole)) return reason;
  return fused_bwd_general::halves_unsupported(whole);
}

const GradientRegistration registration(
    cuda_ranks(),
    {.op = "selective_scan_bwd",
     .state = "initial_state",
     .dlast_state = "dlast_state",
     .dlast_axis = "dlast_state",
     .numbers = nullptr,
     .sums_over_time = {"dA", "dD", "ddelta_bias"},
     .unsupported = gradients_unsupported,
     .sizes = scan_shards::sizes,
     .shard_bytes = passed_bytes,
     .scan = [](const Problem& part, const TensorSet& tensors,
                void* workspace) { return passed(part, bind_scan_gradients(part, tensors).scan, workspace); },
     .has_halves = [](const Problem& /*problem*/) { return true; },
     .halves = fused_bwd_general::halves,
     .halves_bytes = fused_bwd_general::halves_bytes});

}  // namespace
}  // namespace ssmbench::cuda_scan_shards
