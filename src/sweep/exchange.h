#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "device/slices.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// Two sequences that change places in every tensor that has the axis: other inputs, at the same addresses,
/// whose right outputs are known. Sequences of a batch have nothing to do with one another, and channels of a
/// group do not either; outputs that sum over them stay as they are.
struct Exchange {
  char axis = 0;  ///< as TensorSpec::axes calls it
  std::int64_t first = 0, second = 0;
};

/// Draws the exchanges of one problem.
class ExchangeDraw {
 public:
  explicit ExchangeDraw(const Problem& problem);

  /// False where there is one sequence and no group has two channels.
  bool can_exchange() const { return batch_ > 1 || channels_ / groups_ > 1; }

  /// Exchanges two channels of one group; nothing where no group has two.
  std::optional<Exchange> of_channels(std::mt19937_64& random) const;
  /// Exchanges two sequences of the batch; nothing where there is one.
  std::optional<Exchange> of_batch(std::mt19937_64& random) const;
  /// Stretches, drawn at random and a quarter to half of it each, that change places in every input that the
  /// channels of a group share (B, C); where there is none, in the first input that has channels and steps.
  /// What every channel makes of its own inputs is another thing then. Nothing for tensors of other letters.
  std::vector<SlicePair> stretches(const std::vector<TensorSpec>& inputs, const std::vector<void*>& data,
                                   std::mt19937_64& random) const;

 private:
  bool is_shared(const TensorSpec& input) const;

  char channel_letter_ = 0;
  std::int64_t batch_ = 1, groups_ = 1, channels_ = 1;
};

/// Where the two lie in a tensor's memory; nothing where it does not have the axis.
std::optional<SlicePair> slices_of(const Exchange& exchange, const TensorSpec& spec, void* data);

}  // namespace ssmbench
