#pragma once

#include <string>
#include <vector>

#include "model/tensor.h"

namespace ssmbench {

/// What the wrong indices of an axis have in common by what inputs say of the axis; empty when nothing. Of
/// steps 'l' and sequences 'm' cu_seqlens says where each sequence is; of slots 's' destination, or else
/// source, says which are stored into: "sequence 2 of 5", "without steps", "which destination does not name".
std::string common_to_rows(char letter, const std::vector<bool>& wrong,
                           const std::vector<HostTensor>& inputs);

}  // namespace ssmbench
