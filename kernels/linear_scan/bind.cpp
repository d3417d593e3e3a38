#include "kernels/linear_scan/bind.h"

namespace ssmbench {

LinearScanArgs bind_linear_scan(const Problem& problem, const TensorSet& tensors) {
  check_contract(problem, tensors);
  const LinearScan scan(problem);
  return {.batch = scan.batch,
          .seqlen = scan.seqlen,
          .dim = scan.dim,
          .a = tensors.at("a").data,
          .b = tensors.at("b").data,
          .out = tensors.at("out").data};
}

}  // namespace ssmbench
