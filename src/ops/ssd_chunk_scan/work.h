#pragma once

#include "model/problem.h"

namespace ssmbench {

/// The least work of ssd_chunk_scan_fwd (OpSpec::least_work). Exponentials: of the decays, of softplus and of
/// the gate. Multiply-adds: those of the sequential definition (three an update of a state element) or of a
/// scan by chunks of 64 steps, whichever are fewer. By chunks an update takes one for the state behind a
/// chunk and one for C·h of the state before it, where these are used; within chunks there are the lower
/// triangles of C·Bᵀ, once per group, and of its product with x. On tensor cores, products are those of
/// chunks.
Work ssd_least_work(const Problem& problem, Math math);

/// The same for the gradients: the states and their adjoints, what they give to dB, dC and dx, and with z
/// also to y. Triangles: C·Bᵀ, what the loss has of it (per head), and the products of either that make dx,
/// and of the latter's sum over heads that make dB and dC; with z also y.
Work ssd_bwd_least_work(const Problem& problem, Math math);

}  // namespace ssmbench
