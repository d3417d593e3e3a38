#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/axis.h"
#include "model/parts.h"

namespace ssmbench {

class Problem;

/// The axis of sequences in TensorSpec::axes.
inline constexpr char kSequenceLetter = 'm';

/// Sequences that cu_seqlens (M + 1,) i32 packs along time into a batch of 1: sequence m is the steps from
/// cu_seqlens[m] up to cu_seqlens[m + 1]. It starts at 0, never decreases and ends at the number of steps.
struct PackedSequences {
  bool packed;         ///< there is cu_seqlens
  std::int64_t count;  ///< M; without cu_seqlens the batch

  explicit PackedSequences(const Problem& problem);
};

/// cu_seqlens: whether sequences are packed; sequences: M; lengths: how they are drawn. ragged has one of a
/// single step where there are three sequences or more, with-empty one without steps where there are two or more.
std::vector<AxisSpec> packing_axes();

/// Why these axes contradict each other or the batch; nothing when they do not.
std::optional<std::string> packing_contradiction(const Problem& problem);

/// The values of cu_seqlens, drawn as the axis lengths has it. `steps`: of all sequences together.
std::vector<std::int64_t> draw_borders(std::int64_t seed, std::int64_t sequences, std::int64_t steps,
                                       const std::string& lengths);

/// What is wrong with values of cu_seqlens in themselves (FileForm::wrong_values).
std::optional<std::string> wrong_borders(const HostTensor& cu_seqlens);

/// What a sequence has before its first step and after its last.
struct CarriedState {
  std::string_view before, after;  ///< an input and an output; both may be absent
};

/// The outputs of a problem with cu_seqlens from problems of one sequence each (PartwiseComputation::compute).
/// Tensors that belong to steps have an axis 'l', those that belong to sequences begin with an axis 'm'. A
/// sequence without steps passes `state` on, or zeros.
std::vector<HostTensor> run_each_alone(const Problem& whole, const std::vector<HostTensor>& inputs,
                                       const RunPart& run, const CarriedState& state);

}  // namespace ssmbench
