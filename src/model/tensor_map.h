#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// Writes to `there` the logical index that belongs to the logical index `here`. `there` has the rank of the
/// tensor it points into and keeps what was written last.
using IndexMap = std::function<void(const Shape& here, Shape& there)>;

/// A tensor of `spec` whose element at each index is that of `from` at the index that the map gives. Both
/// have the same dtype. Throws ContractError otherwise.
HostTensor gathered(const TensorSpec& spec, const HostTensor& from, const IndexMap& index_in_from);

/// Puts every element of `from` into `into`, at the index that the map gives.
void scatter(const HostTensor& from, HostTensor& into, const IndexMap& index_in_into);

/// The map of tensors that are indexed alike.
void same_index(const Shape& here, Shape& there);

HostTensor zeros(const TensorSpec& spec);

/// Tensors for the outputs of a problem, in its order, filled with NaN so that what is never written shows.
std::vector<HostTensor> blank_outputs(const Problem& problem);

/// The tensor of that name, or null.
const HostTensor* find_tensor(const std::vector<HostTensor>& tensors, std::string_view name);

}  // namespace ssmbench
