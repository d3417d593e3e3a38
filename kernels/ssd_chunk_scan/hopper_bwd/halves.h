#pragma once

#include <cstddef>

#include "kernels/distributed/gradient_registration.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"
#include "model/problem.h"
#include "model/tensor.h"

// cuda-hopper's gradients in two halves, for shards of time: the pass of states goes over all parts of both
// walks, the last ones too, which gives what leaves the shard both ways. Images and gradients follow once it
// is known what enters it. Where time is not cut by itself, nothing but what leaves the shard is taken from
// the pass: it is cut for that, and goes over no more chunks than reach the shard's end, of the walks that
// are asked for.

namespace ssmbench::ssd_hopper_bwd {

/// Whether cuda-hopper does the problem.
bool has_halves(const Problem& problem);
std::size_t halves_bytes(const Problem& problem);
/// Of a problem with initial states and dfinal_states in memory of the current device; `workspace` has
/// halves_bytes(problem). Throws ContractError.
GradientHalves halves(const Problem& problem, const TensorSet& tensors, void* workspace);

/// The steps of all chunks, and the states of all parts of both walks from zeros. Throw DeviceError.
template <class Io>
void launch_all_parts(const Walks& walks, cudaStream_t stream);
/// The images, from the states that enter parts.
template <class Io>
void launch_images(const Walks& walks, cudaStream_t stream);

}  // namespace ssmbench::ssd_hopper_bwd
