#pragma once

#include "model/implementation.h"

namespace ssmbench {

/// What a scan by chunks of up to 64 steps has to do at least: bytes and exponentials as ssd_work.
/// Multiply-adds of an update of a state element: one for the state behind a chunk and one for C·h of the
/// state before it, where these are used. Within chunks: the lower triangles of C·Bᵀ, once per group, and of
/// its product with x. Chunked: all of it by f32 multiply-adds; tensor: on tensor cores.
Work ssd_chunked_work(const Problem& problem);
Work ssd_tensor_work(const Problem& problem);

/// The same for the gradients: the states and their adjoints, what they give to dB, dC and dx, and with z
/// also to y. Triangles: C·Bᵀ, what the loss has of it (per head), and the products of either that make dx,
/// and of the latter's sum over heads that make dB and dC; with z also y.
Work ssd_bwd_chunked_work(const Problem& problem);
Work ssd_bwd_tensor_work(const Problem& problem);

}  // namespace ssmbench
