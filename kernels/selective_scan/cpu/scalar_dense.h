#pragma once

#include "kernels/selective_scan/bind.h"

namespace ssmbench {

/// The launch of cpu-scalar for a problem with dense A.
Launch scalar_dense_scan(const ScanArgs& args, MethodId method, DType dtype);

}  // namespace ssmbench
