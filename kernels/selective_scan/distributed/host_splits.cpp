#include "kernels/distributed/splits.h"

namespace ssmbench {
namespace {

const SplitRegistration forward(host_ranks(), "selective_scan_fwd");
const SplitRegistration backward(host_ranks(), "selective_scan_bwd");

}  // namespace
}  // namespace ssmbench
