#pragma once

#include <functional>

namespace ssmbench {

/// Enqueues the work on a stream (cudaStream_t as void*; ignored on the CPU) and returns. Throws DeviceError.
using Launch = std::function<void(void* stream)>;

}  // namespace ssmbench
