// cuda-step: the kernels of coded_heads.cuh.

#include "kernels/selective_state_update/step/coded_heads.cuh"

#include "kernels/selective_state_update/step/instances.cuh"

namespace ssmbench::step {
namespace {

template <DType kState, bool kStochastic>
CodedHeadsKernel heads_of(std::int64_t dstate) {
  return dstate == 64 ? coded_heads<kState, kStochastic, 4> : coded_heads<kState, kStochastic, 8>;
}

}  // namespace

CodedHeadsKernel coded_heads_kernel(DType state, bool is_stochastic, std::int64_t dstate) {
  if (state == DType::i8) return heads_of<DType::i8, true>(dstate);
  return is_stochastic ? heads_of<DType::e4m3, true>(dstate) : heads_of<DType::e4m3, false>(dstate);
}

}  // namespace ssmbench::step
