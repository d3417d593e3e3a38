// cuda-step: the kernels of products.cuh.

#include "kernels/selective_state_update/step/instances.cuh"
#include "kernels/selective_state_update/step/products.cuh"

namespace ssmbench::step {
namespace {

template <DType kState, bool kStochastic>
ProductsKernel kernel_of(std::int64_t dstate) {
  if constexpr (has_products(8, 256, 2, kState))
    if (dstate == 256) return tokens_products<kState, kStochastic, 256>;
  return dstate == 64 ? tokens_products<kState, kStochastic, 64> : tokens_products<kState, kStochastic, 128>;
}
template <DType kState>
ProductsKernel kernel_of(bool is_stochastic, std::int64_t dstate) {
  if constexpr (kHasRandom<kState>)
    if (is_stochastic) return kernel_of<kState, true>(dstate);
  return kernel_of<kState, false>(dstate);
}

}  // namespace

ProductsKernel products_kernel(DType state, bool is_stochastic, std::int64_t dstate) {
  switch (state) {
    case DType::f32:
      return kernel_of<DType::f32>(is_stochastic, dstate);
    case DType::f16:
      return kernel_of<DType::f16>(is_stochastic, dstate);
    case DType::bf16:
      return kernel_of<DType::bf16>(is_stochastic, dstate);
    case DType::i8:
      return kernel_of<DType::i8>(is_stochastic, dstate);
    case DType::i16:
      return kernel_of<DType::i16>(is_stochastic, dstate);
    case DType::e4m3:
      return kernel_of<DType::e4m3>(is_stochastic, dstate);
    default:
      throw_logic_error("not a dtype of states");
  }
}

}  // namespace ssmbench::step
