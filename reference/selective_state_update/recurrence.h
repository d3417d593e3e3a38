#pragma once

#include <array>
#include <cstdint>

#include "model/tensor.h"
#include "ops/selective_state_update/selective_state_update.h"
#include "reference/selective_scan/step.h"

// One token of the recurrence in fp64, with the error bound of selective_state_update.cpp.

namespace ssmbench {

/// The states of a row: values h, the sums of absolute values on the way, and how far h may be off, in
/// roundoffs.
struct StateRow {
  std::array<double, kMaxStepDState> value, magnitude, error;
};

/// What the rows of a head share at one token, by state.
struct HeadToken {
  BoundedValue delta;
  std::array<double, kMaxStepDState> decay, decay_error, B, C;  ///< e^z, its relative error
};

/// The decays of a head with this Δ; `rate` is A, of each state or of all.
void set_decays(HeadToken& token, BoundedValue delta, const float* rate, bool rate_per_state,
                std::int64_t dstate);

/// row ← e^z·row + Δ·x·B.
void advance(const HeadToken& token, double x, std::int64_t dstate, StateRow& row);

/// Σ C·h.
StateSum contract(const HeadToken& token, const StateRow& row, std::int64_t dstate);

/// Row `at` of a tensor of states, exactly.
StateRow stored_states(const TensorView& states, std::int64_t at, std::int64_t dstate);

}  // namespace ssmbench
