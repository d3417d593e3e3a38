#pragma once

#include "model/implementation.h"

namespace ssmbench {

/// An implementation of f32 tensors as one of all io dtypes. For those of 16 bits it computes the problem in
/// f32, on copies of the tensors in front of its workspace, made anew by each launch; outputs are rounded
/// once, after it. For kernels with f32 multiply-adds, which take so long that another pass over the tensors
/// does not count: they are compiled once and not for each dtype.
Implementation with_f32_copies(Implementation of_f32);

}  // namespace ssmbench
