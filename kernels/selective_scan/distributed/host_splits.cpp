#include "kernels/distributed/splits.h"

namespace ssmbench {
namespace {

const HostSplitRegistration forward("selective_scan_fwd");
const HostSplitRegistration backward("selective_scan_bwd");

}  // namespace
}  // namespace ssmbench
