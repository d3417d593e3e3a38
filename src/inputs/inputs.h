#pragma once

#include <atomic>
#include <vector>

#include "model/case.h"
#include "model/tensor.h"

namespace ssmbench {

/// All input tensors of the problem, in its layout and dtypes, in the order of Problem::tensors(). Each value
/// is a function of (spec, tensor name, row-major index in TensorSpec::shape): the same bits on every
/// machine, for any number of threads, in either layout, and for tensors that are always f32 or c64 whatever
/// the problem's dtype. Threaded. Throws UsageError for an unknown distribution or value precision,
/// Interrupted once `stop` is true, OutOfMemory.
std::vector<HostTensor> generate_inputs(const Problem& problem, const InputSpec& spec,
                                        const std::atomic<bool>& stop);

}  // namespace ssmbench
