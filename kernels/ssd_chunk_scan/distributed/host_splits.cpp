#include "kernels/distributed/splits.h"

namespace ssmbench {
namespace {

const SplitRegistration forward(host_ranks(), "ssd_chunk_scan_fwd");
const SplitRegistration backward(host_ranks(), "ssd_chunk_scan_bwd");

}  // namespace
}  // namespace ssmbench
