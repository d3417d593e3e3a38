// cuda-step: the kernels of coded_heads.cuh.

#include "kernels/selective_state_update/step/coded_heads.cuh"

#include "kernels/selective_state_update/step/instances.cuh"

namespace ssmbench::step {
namespace {

template <DType kState, bool kStochastic>
CodedHeadsKernel heads_of(std::int64_t dstate) {
  return dstate == 64 ? coded_heads<kState, kStochastic, 4> : coded_heads<kState, kStochastic, 8>;
}
template <DType kState>
CodedHeadsKernel heads_of(bool is_stochastic, std::int64_t dstate) {
  return is_stochastic ? heads_of<kState, true>(dstate) : heads_of<kState, false>(dstate);
}

}  // namespace

CodedHeadsKernel coded_heads_kernel(DType state, bool is_stochastic, std::int64_t dstate) {
  return state == DType::i8 ? heads_of<DType::i8>(is_stochastic, dstate)
                            : heads_of<DType::e4m3>(is_stochastic, dstate);
}

}  // namespace ssmbench::step
