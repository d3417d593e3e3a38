// cuda-chunked for the gradients of Mamba-3's MIMO scan: registration.

#include "kernels/mamba3/tensor_bwd/launch.cuh"

namespace ssmbench::mamba3_bwd::mimo {
namespace {

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  if (scan.rank > kMaxRanks || (scan.rank & (scan.rank - 1)) != 0)
    return "needs a rank of 1, 2, 4 or 8: chunks are 64 rows of steps and ranks";
  if (scan.has_norm) return "does not support outproj_norm: dy would need y before the products";
  return unsupported_size(problem);
}

template <class Form>
Launch bind_form(const Mamba3BwdArgs& args, void* workspace) {
  return bind_with<Form>(args, workspace, {HeadSums::kernel, chunked_states, chunked_gradients<Form>});
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-chunked " + *reason);
  const Mamba3BwdArgs args = bind_aligned(problem, tensors);
  switch (args.in.scan.rank) {
    case 1:
      return bind_form<Mimo<1>>(args, workspace);
    case 2:
      return bind_form<Mimo<2>>(args, workspace);
    case 4:
      return bind_form<Mimo<4>>(args, workspace);
    default:
      return bind_form<Mimo<8>>(args, workspace);
  }
}

const Registration chunked{
    {.name = "cuda-chunked",
     .op = "mamba3_mimo_bwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 rows of steps and ranks by SSD's products on tensor cores",
     .arithmetic = [](DType) { return Arithmetic{.math = Math::bf16, .state_dtype = DType::bf16}; },
     .unsupported = unsupported,
     .workspace_bytes = [](const Problem& problem) { return Plan(Mamba3(problem), HeadSums::kernel).bytes; },
     .bind = bind}};

}  // namespace
}  // namespace ssmbench::mamba3_bwd::mimo
