#include "kernels/distributed/splits.h"

namespace ssmbench {
namespace {

const SplitRegistration ssd_forward(host_ranks(), "ssd_chunk_scan_fwd");
const SplitRegistration ssd_backward(host_ranks(), "ssd_chunk_scan_bwd");

}  // namespace
}  // namespace ssmbench
