#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "model/parts.h"

namespace ssmbench {

class Problem;

/// The axis of a cache's slots in TensorSpec::axes.
inline constexpr char kSlotLetter = 's';

/// Why there are no slots that nobody names: the tensors that are updated in place have no axis of slots.
std::optional<std::string> no_slots(const Problem& problem);

/// The outputs of a problem whose caches hold garbage in all slots that none of `indices` names, -1 aside
/// (PartwiseComputation::compute). Caches are the tensors that are updated in place and begin with an axis 's'.
/// Throws std::runtime_error where such a slot does not keep the garbage; in what is returned it holds what it
/// had in `inputs`.
std::vector<HostTensor> run_with_garbage_in_unnamed_slots(const Problem& whole,
                                                          const std::vector<HostTensor>& inputs,
                                                          const RunPart& run,
                                                          std::initializer_list<const char*> indices);

}  // namespace ssmbench
