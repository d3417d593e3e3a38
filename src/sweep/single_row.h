#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

/// One channel of one sequence.
struct Row {
  std::int64_t sequence = 0, channel = 0;
};

/// The rows of a problem, each as a problem of its own with a batch of one and a single channel, so that the
/// reference of a row costs little beside that of the whole.
class SingleRow {
 public:
  explicit SingleRow(const Problem& problem);

  /// Nothing where rows are no problems of their own.
  const std::optional<Problem>& problem() const { return row_; }
  Row draw(std::mt19937_64& random) const;

  /// What the row has of a tensor of that role; `data` is all of the tensor, in host memory.
  HostTensor part(const Row& row, const TensorSpec& spec, const void* data) const;
  /// False for an output that sums over other rows.
  bool owns_part(const TensorSpec& spec) const;
  /// An index into the row's part as one into the whole tensor; what it has beyond the tensor's axes stays.
  Shape index_in_whole(const Row& row, const TensorSpec& spec, const Shape& index) const;

 private:
  /// Where the row is along an axis; 0 along those that it has all of.
  std::int64_t position(const Row& row, char axis) const;

  std::int64_t batch_ = 1, channels_ = 1, groups_ = 1;
  char channel_letter_ = 0;
  std::optional<Problem> row_;
};

}  // namespace ssmbench
