// cuda-chunked and cuda-hopper for the gradients of Mamba-3's MIMO scan: registration. f16 and f32 are as in
// siso.cu.

#include "base/errors.h"
#include "kernels/mamba3/hopper_bwd/launch.h"
#include "kernels/mamba3/tensor_bwd/launch.cuh"

namespace ssmbench::mamba3_bwd::mimo {
namespace {

std::optional<std::string> unsupported(const Problem& problem) {
  const Mamba3 scan(problem);
  if (scan.rank > kMaxRanks || (scan.rank & (scan.rank - 1)) != 0)
    return "needs a rank of 1, 2, 4 or 8: chunks are 64 rows of steps and ranks";
  if (scan.nheads * scan.rank >= 2147483648 / (kSteps * kMaxHeaddim))
    return "needs less than 524288 heads times ranks: y of a span is indexed by 32 bits";
  if (scan.has_norm) return "does not support outproj_norm: dy would need y before the products";
  return unsupported_size(problem);
}

std::optional<std::string> unsupported_by_hopper(const Problem& problem) {
  if (problem.dtype() != DType::bf16) return "needs bf16 tensors";
  if (auto reason = unsupported(problem)) return reason;
  return unsupported_device();
}

/// Calls bind with Mimo of the ranks.
template <class Bind>
auto for_ranks(std::int64_t ranks, const Bind& bind) {
  switch (ranks) {
    case 1:
      return bind(Mimo<1>());
    case 2:
      return bind(Mimo<2>());
    case 4:
      return bind(Mimo<4>());
    default:
      return bind(Mimo<8>());
  }
}

/// Of problems in f32.
std::optional<std::string> unsupported_in_tf32(const Problem& problem) {
  if (auto reason = unsupported(problem)) return reason;
  const Mamba3 scan(problem);
  return for_ranks(scan.rank, [&]<class Form>(Form) { return unsupported_tiles<Form>(scan); });
}

template <class Element>
Launch bind_chunked(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const auto reason = sizeof(Element) == sizeof(float) ? unsupported_in_tf32(problem) : unsupported(problem);
  if (reason) throw ContractError("cuda-chunked " + *reason);
  const Mamba3BwdArgs args = bind_aligned(problem, tensors);
  return for_ranks(args.in.scan.rank, [&]<class Form>(Form) {
    return bind_with<Element, Form>(
        args, workspace,
        {HeadSums::kernel, false, chunked_states<Element>, chunked_gradients<Element, Form>});
  });
}

Launch bind_hopper(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported_by_hopper(problem)) throw ContractError("cuda-hopper " + *reason);
  const Mamba3BwdArgs args = bind_aligned(problem, tensors);
  return for_ranks(args.in.scan.rank, [&]<class Form>(Form) {
    return bind_with<Bf16, Form>(
        args, workspace,
        {HeadSums::block, true, rank_walks, ranked_hopper_gradients<Form::kRanks>, hopper_sequences});
  });
}

const Registration of_chunked{
    for_dtypes({.name = "cuda-chunked",
                .op = "mamba3_mimo_bwd",
                .device = DeviceKind::cuda,
                .summary = "chunks of 64 rows of steps and ranks, by SSD's products on tensor cores",
                .arithmetic = arithmetic_of,
                .unsupported = unsupported,
                .workspace_bytes = chunked_workspace_bytes<Bf16>,
                .bind = bind_chunked<Bf16>},
               {unsupported_in_tf32, chunked_workspace_bytes<float>, bind_chunked<float>})};

const Registration on_hopper{
    {.name = "cuda-hopper",
     .op = "mamba3_mimo_bwd",
     .device = DeviceKind::cuda,
     .summary = "chunks of 64 rows of steps and ranks, products by wgmma, fed by TMA",
     .arithmetic = [](DType) { return kArithmetic; },
     .unsupported = unsupported_by_hopper,
     .workspace_bytes = hopper_workspace_bytes,
     .bind = bind_hopper}};

}  // namespace
}  // namespace ssmbench::mamba3_bwd::mimo
