// cuda-step: the kernels of products.cuh.

#include "kernels/selective_state_update/step/instances.cuh"
#include "kernels/selective_state_update/step/products.cuh"

namespace ssmbench::step {
namespace {

template <DType kState>
ProductsKernel kernel_of(std::int64_t dstate) {
  return dstate == 64 ? tokens_products<kState, 64> : tokens_products<kState, 128>;
}

}  // namespace

ProductsKernel products_kernel(DType state, std::int64_t dstate) {
  switch (state) {
    case DType::f32:
      return kernel_of<DType::f32>(dstate);
    case DType::f16:
      return kernel_of<DType::f16>(dstate);
    case DType::bf16:
      return kernel_of<DType::bf16>(dstate);
    case DType::i8:
      return kernel_of<DType::i8>(dstate);
    case DType::i16:
      return kernel_of<DType::i16>(dstate);
    case DType::e4m3:
      return kernel_of<DType::e4m3>(dstate);
    default:
      throw_logic_error("not a dtype of states");
  }
}

}  // namespace ssmbench::step
