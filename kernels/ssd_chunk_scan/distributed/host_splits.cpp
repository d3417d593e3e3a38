#include "kernels/distributed/splits.h"

namespace ssmbench {
namespace {

const HostSplitRegistration forward("ssd_chunk_scan_fwd");
const HostSplitRegistration backward("ssd_chunk_scan_bwd");

}  // namespace
}  // namespace ssmbench
