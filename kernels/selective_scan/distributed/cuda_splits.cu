#include "kernels/distributed/splits.h"

namespace ssmbench::scan_cuda_splits {
namespace {

const SplitRegistration forward(cuda_ranks(), "selective_scan_fwd");
const SplitRegistration backward(cuda_ranks(), "selective_scan_bwd");

}  // namespace
}  // namespace ssmbench::scan_cuda_splits
