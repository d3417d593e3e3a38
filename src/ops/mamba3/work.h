#pragma once

#include "model/arithmetic.h"
#include "model/problem.h"
#include "model/work.h"

namespace ssmbench {

/// The least work of Mamba-3's forward operations (OpSpec::least_work). Exponentials: the decay and σ of each
/// step and head, tanh, sine and cosine of each angle, and the gate. Multiply-adds: those of the recurrence,
/// or of a scan by chunks of 64/R steps, whichever are fewer. By the recurrence an update of a state element
/// takes one for the decay and, for each rank, one for what is added and one for what is read. By chunks it
/// takes one per rank for the state behind a chunk and one for what is read of the state before it, where
/// these are used; within chunks there are the lower triangles of Q·Kᵀ and of its product with V, for each
/// pair of ranks. On tensor cores, products are those of chunks.
Work mamba3_least_work(const Problem& problem, Math math);

/// The same of the gradients. By the recurrence an update takes two for the decays of the state and of its
/// adjoint, one for their product and, for each rank, two for what is added to them, three for dQ, dK and dV,
/// and with Z one for y. By chunks: the states and their adjoints, what they give to dQ, dK and dV, and with Z
/// also to y; within chunks the triangles of Q·Kᵀ and of what the loss has of it, and the products of either
/// that make dV, dQ and dK, and with Z y.
Work mamba3_bwd_least_work(const Problem& problem, Math math);

}  // namespace ssmbench
