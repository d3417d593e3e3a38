#include "kernels/distributed/splits.h"

namespace ssmbench::ssd_cuda_splits {
namespace {

const SplitRegistration forward(cuda_ranks(), "ssd_chunk_scan_fwd");
const SplitRegistration backward(cuda_ranks(), "ssd_chunk_scan_bwd");

}  // namespace
}  // namespace ssmbench::ssd_cuda_splits
