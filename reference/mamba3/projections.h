#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/mamba3/mamba3.h"
#include "reference/mamba3/steps.h"
#include "reference/ssd_chunk_scan/steps.h"

namespace ssmbench {

/// Q or K of one step and rank of a head: with its bias, before and after the rotation.
struct Mamba3Vector {
  std::vector<double> plain, rotated;
  std::vector<double> size;  ///< of a rotated element: the length of its pair

  explicit Mamba3Vector(std::int64_t dstate) : plain(dstate), rotated(dstate), size(dstate) {}
};

/// Makes such vectors. Where matrix products have rounded operands, MIMO kernels round biases too: lengths
/// are then those of |Q| + |bias|.
class Mamba3Projections {
 public:
  Mamba3Projections(const Mamba3& scan, const TensorSet& inputs) : scan_(scan), inputs_(inputs) {}

  /// `cosines`, `sines`: of the step's angles.
  void make(const char* name, const char* bias_name, std::int64_t batch, std::int64_t t, std::int64_t rank,
            std::int64_t head, const double* cosines, const double* sines, Mamba3Vector& into) const {
    const std::int64_t group = head / scan_.heads_per_group();
    const std::int64_t step = batch * scan_.seqlen + t;
    const std::int64_t from = ((step * scan_.rank + rank) * scan_.groups + group) * scan_.dstate;
    load_row(inputs_.at(name), from, scan_.dstate, into.plain.data());
    const auto* bias =
        static_cast<const float*>(inputs_.at(bias_name).data) + (head * scan_.rank + rank) * scan_.dstate;
    for (std::int64_t n = 0; n < scan_.dstate; ++n) {
      const double before = std::abs(into.plain[n]);
      into.plain[n] += bias[n];
      into.size[n] = scan_.is_mimo ? before + std::abs(bias[n]) : std::abs(into.plain[n]);
    }
    join_pairs(into.size.data());
    into.rotated = into.plain;
    for (std::int64_t i = 0; i < scan_.angles; ++i) {
      const std::int64_t first = scan_.first_of_pair(i);
      const std::int64_t second = scan_.second_of_pair(i);
      const double x0 = into.plain[first];
      const double x1 = into.plain[second];
      into.rotated[first] = x0 * cosines[i] - x1 * sines[i];
      into.rotated[second] = x0 * sines[i] + x1 * cosines[i];
    }
  }

  /// Absolute values to lengths of pairs.
  void join_pairs(double* sizes) const {
    for (std::int64_t i = 0; i < scan_.angles; ++i) {
      const std::int64_t first = scan_.first_of_pair(i);
      const std::int64_t second = scan_.second_of_pair(i);
      sizes[first] = sizes[second] = std::sqrt(sizes[first] * sizes[first] + sizes[second] * sizes[second]);
    }
  }

 private:
  const Mamba3& scan_;
  const TensorSet& inputs_;
};

}  // namespace ssmbench
