#pragma once

#include <string>

#include "model/implementation.h"

namespace ssmbench {

/// An implementation of tensors that are f32 where the axis `dtype` says so, as one of 16 bits, too. For
/// those it computes the problem in f32, on copies of these tensors in front of its workspace, made anew by
/// each launch; outputs are rounded once, after it. For tensors that another pass over does not count: those of
/// kernels with f32 multiply-adds, which are then compiled once and not for each dtype, or states.
Implementation with_f32_copies(Implementation of_f32, const std::string& dtype = "dtype");

}  // namespace ssmbench
