#pragma once

#include <memory>
#include <string>

#include "model/communicator.h"

namespace ssmbench {

/// "2.28.9": of the header that the program was built with; empty where it was built without.
std::string nccl_built_with();
/// The same of the library that this process finds; empty where there is none.
std::string nccl_version();

/// Ranks that exchange memory of their GPUs by NCCL, each on the GPU that is the current one of the calling
/// thread: no two on the same. Collective over `host`, through which barriers and agreements go on, and which
/// has to live as long. Calls enqueue and return. Sums are added in an order of NCCL's. Throws DeviceError.
std::unique_ptr<Communicator> join_nccl(Communicator& host);

}  // namespace ssmbench
