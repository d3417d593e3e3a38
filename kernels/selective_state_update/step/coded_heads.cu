// cuda-step: the kernels of coded_heads.cuh.

#include "kernels/selective_state_update/step/coded_heads.cuh"

#include "kernels/selective_state_update/step/instances.cuh"

namespace ssmbench::step {
namespace {

template <DType kState>
CodedHeadsKernel heads_of(std::int64_t dstate) {
  return dstate == 64 ? coded_heads<kState, 64> : coded_heads<kState, 128>;
}

}  // namespace

CodedHeadsKernel coded_heads_kernel(DType state, std::int64_t dstate) {
  return state == DType::i8 ? heads_of<DType::i8>(dstate) : heads_of<DType::e4m3>(dstate);
}

}  // namespace ssmbench::step
