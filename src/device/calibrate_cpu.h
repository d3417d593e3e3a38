#pragma once

#include "device/ceilings.h"

namespace ssmbench {

/// All threads that OpenMP gives: memory that is read or copied, and multiply-adds of the widest vectors.
Ceilings calibrate_cpu();

}  // namespace ssmbench
