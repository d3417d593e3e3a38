#include "kernels/distributed/splits.h"

namespace ssmbench {
namespace {

const SplitRegistration scan_forward(host_ranks(), "selective_scan_fwd");
const SplitRegistration scan_backward(host_ranks(), "selective_scan_bwd");

}  // namespace
}  // namespace ssmbench
