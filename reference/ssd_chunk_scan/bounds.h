#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "reference/common/rounded.h"
#include "reference/common/zeros.h"
#include "reference/reference.h"
#include "reference/ssd_chunk_scan/pass.h"
#include "reference/ssd_chunk_scan/steps.h"

namespace ssmbench {

/// Standard deviations of the operands' roundings that a bound allows. A rounding to nearest is within ±u and
/// off by some 0.4·u in the root mean square, and the tolerance doubles a bound, so that 10 standard
/// deviations pass: no element of a tensor of 1e9 shows more. (Higham & Mary 2019, theorem 3.1: λ.)
inline constexpr double kOperandSpread = 2;
/// Roundings that r[n]·S[n] has: r, the state as it is stored between chunks, and as an operand.
inline constexpr double kReadRoundings = 3;
/// Roundings on the way of one term through a chunk's state: r, w, its decayed product, and twice the state.
/// Where inputs repeat, roundings do too and do not average out; their share is relative to the result.
inline constexpr double kSharedRoundings = 5;

/// Bound on what rounded operands do to a result with this variance.
inline double operand_bound(double variance, double value) {
  return kOperandSpread * std::sqrt(variance) + kSharedRoundings * std::abs(value);
}

/// Roundings of a sum over `count` states or head dims: an implementation adds up those and the steps of its
/// chunk in any order, which costs some √ of their number roundings (Higham & Mary 2019), and one for each
/// product.
inline double roundings_of_sum(std::int64_t count) {
  return 2 + std::sqrt(static_cast<double>(count + kLongestChunk));
}

/// λ of errors that add up like independent ones. What a tolerance lets a state of a long memory be off by is
/// 8 times what half a roundoff in all of its decays does, or 9 standard deviations, and λ = 1 leaves as many.
inline double spread_of(bool is_long) {
  return is_long ? 1 : kSpread;
}

/// Element i of a contraction after step t of a tile, with roundings_of_sum. `extra` is one more summand,
/// rounded once.
struct SsdRead {
  double value, magnitude, error;
  double variance;  ///< of what rounded operands do, in squared roundoffs
  double operand_error;
};
inline SsdRead read(const SsdContraction& sums, std::int64_t t, std::int64_t i, double roundings,
                    double extra = 0) {
  const double sum = sums.value.row(t)[i];
  const double magnitude = sums.magnitude.row(t)[i] + std::abs(extra);
  const double variance = kReadRoundings * sums.squares.row(t)[i] + sums.spread[t];
  return {sum + extra, magnitude, sums.error.row(t)[i] + roundings * magnitude, variance,
          operand_bound(variance, sum)};
}

/// ChannelReference::cuts: any head.
inline std::vector<std::int64_t> ssd_cuts(const Problem& problem) {
  std::vector<std::int64_t> cuts(static_cast<std::size_t>(SsdChunkScan(problem).nheads) + 1);
  std::iota(cuts.begin(), cuts.end(), std::int64_t{0});
  return cuts;
}

/// The box of a range of heads.
inline Box ssd_heads(const IndexRange& heads) {
  return {{'h', heads}};
}

/// What the box has of all outputs that are `wanted`, zeros.
inline ReferenceOutputs empty_ssd_outputs(
    const Problem& problem, const Box& box = {},
    bool (*wanted)(const TensorSpec& output) = [](const TensorSpec&) { return true; }) {
  ReferenceOutputs outputs;
  Zeros arrays;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output || !wanted(tensor)) continue;
    ReferenceOutput& output = outputs[tensor.name];
    output.shape = part_of(tensor, box).shape;
    const auto count = static_cast<std::size_t>(element_count(output.shape));
    arrays.add(output.expected, count);
    arrays.add(output.bound, count);
    arrays.add(output.operand_bound, count);
  }
  arrays.fill();
  return outputs;
}

inline void store(ReferenceOutput& to, std::int64_t at, double value, double error, double operand_error) {
  to.expected[at] = value;
  to.bound[at] = static_cast<float>(error);
  to.operand_bound[at] = static_cast<float>(operand_error);
}

}  // namespace ssmbench
