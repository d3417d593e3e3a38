#pragma once

#include <atomic>
#include <vector>

#include "model/box.h"
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

/// The parts of them that lie in the box: the same bits as there are in the whole tensors, none of which is
/// made.
std::vector<HostTensor> generate_inputs(const Problem& problem, const InputSpec& spec, const Box& box,
                                        const std::atomic<bool>& stop);

}  // namespace ssmbench
