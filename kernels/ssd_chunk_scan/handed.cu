// The states between the parts of a scan (handed.h): one thread per 4 elements of a state, one order of sums.

#include "base/cuda_check.h"
#include "kernels/common/hopper/dependent_launch.cuh"
#include "kernels/common/index_math.h"
#include "kernels/ssd_chunk_scan/handed.h"

namespace ssmbench {
namespace {

constexpr int kPartsThreads = 256;
constexpr int kPartsAhead = 8;  ///< states that are loaded at once

__global__ void __launch_bounds__(kPartsThreads)
    ssd_join_parts_kernel(const HandedStates handed, const Parts of) {
  hopper::launch_dependents();
  hopper::wait_for_prerequisites();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kPartsThreads + threadIdx.x;
  const int vectors = of.tiles * of.vectors;  // of a block
  const std::int64_t sequence = index / vectors;
  if (sequence >= of.sequences) return;
  const int vector = static_cast<int>(index - sequence * vectors);
  const std::int64_t first = of.firsts == nullptr ? sequence * of.parts : of.firsts[sequence];
  const int parts = of.firsts == nullptr ? of.parts : static_cast<int>(of.firsts[sequence + 1] - first);
  if (parts == 1) return;
  float4* const states = reinterpret_cast<float4*>(handed.states) + first * vectors + vector;
  const float* const decays = handed.decays + first * of.tiles + vector / of.vectors;
  float4 state = states[0];
  for (int part = 1; part < parts - 1; part += kPartsAhead) {
    float4 own[kPartsAhead];
    float decay[kPartsAhead];
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) {
      if (part + i >= parts - 1) break;
      own[i] = states[static_cast<std::int64_t>(part + i) * vectors];
      decay[i] = decays[(part + i) * of.tiles];
    }
#pragma unroll
    for (int i = 0; i < kPartsAhead; ++i) {
      if (part + i >= parts - 1) break;
      if (__float_as_uint(decay[i]) == __float_as_uint(kStartsAnew))
        state = own[i];
      else
        state = make_float4(state.x * decay[i] + own[i].x, state.y * decay[i] + own[i].y,
                            state.z * decay[i] + own[i].z, state.w * decay[i] + own[i].w);
      states[static_cast<std::int64_t>(part + i) * vectors] = state;
    }
  }
}

}  // namespace

void launch_join_parts(const HandedStates& handed, const Parts& of, cudaStream_t stream) {
  if (of.parts <= 2) return;  // the first part's state is final
  hopper::launch_kernel(hopper::Begin::early, stream, ssd_join_parts_kernel,
                        ceil_div(of.sequences * of.tiles * of.vectors, kPartsThreads), dim3(kPartsThreads), 0,
                        handed, of);
}

}  // namespace ssmbench
