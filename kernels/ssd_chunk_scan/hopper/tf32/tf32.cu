// cuda-hopper: f32, products in tf32.

#include "kernels/ssd_chunk_scan/hopper/tf32/kernel.cuh"
#include "kernels/ssd_chunk_scan/hopper/variants.h"

namespace ssmbench::ssd_hopper {
namespace {

template <int kStates>
Variant variant_of() {
  using Outputs = tf32::Traits<Pass::outputs, kStates>;
  using States = tf32::Traits<Pass::states, kStates>;
  return {.kernel = tf32::ssd_tf32_kernel<Outputs>,
          .shared_bytes = tf32::Layout<Outputs>::kBytes,
          .parts_kernel = tf32::ssd_tf32_kernel<States>,
          .parts_shared_bytes = tf32::Layout<States>::kBytes,
          .threads = tf32::kThreads,
          .parts_threads = tf32::kThreads,
          .state_groups = tf32::kHeads};
}

}  // namespace

Variant tf32_variant(int states) {
  return states == 64 ? variant_of<64>() : variant_of<128>();
}

}  // namespace ssmbench::ssd_hopper
