#pragma once

#include <cstdint>
#include <vector>

#include "model/problem.h"
#include "model/tensor.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "reference/common/rounded.h"

namespace ssmbench {

/// A time step of one (batch, head): Δ, the decay that it applies to the state before it, and errors in
/// roundoffs of an implementation.
struct SsdStep {
  Rounded<double> delta;
  Rounded<double> slope;        ///< dΔ/d(dt), 0 where dt_limit cuts
  bool slope_may_jump = false;  ///< so close to a limit that rounding decides whether it cuts
  bool starts = false;          ///< first of a sequence: nothing before it is seen
  double decay = 0;             ///< exp(Δ·A); 0 where a sequence starts, but for the first step
  double decay_error = 0;       ///< relative
  /// What a decay from or to this step is off by, relatively, when it is formed as the exponential of a
  /// difference of two cumulative sums of Δ·A within a chunk.
  double cumulative_error = 0;
};

/// Where the steps of a sequence are among those of all batches.
struct SsdStretch {
  std::int64_t begin, steps;
};

/// The steps of a head.
std::vector<SsdStep> ssd_steps(const SsdChunkScan& scan, const TensorSet& inputs, const SsdStretch& sequence,
                               std::int64_t head);

/// `count` neighbouring elements of a tensor of dtype f32, f16 or bf16, exactly.
void load_row(const TensorView& view, std::int64_t first, std::int64_t count, double* into);

/// Element of an f32 tensor; 0 where it is absent.
double float_of(const TensorSet& tensors, const char* name, std::int64_t index);

/// D of the head dims of a head; 0 where it is absent.
class SsdSkips {
 public:
  SsdSkips(const SsdChunkScan& scan, const TensorSet& inputs, std::int64_t head)
      : first_(scan.skip == SsdSkip::none ? nullptr : static_cast<const float*>(inputs.at("D").data)),
        by_headdim_(scan.skip == SsdSkip::headdim) {
    if (first_ != nullptr) first_ += by_headdim_ ? head * scan.headdim : head;
  }
  double operator[](std::int64_t p) const {
    if (first_ == nullptr) return 0;
    return first_[by_headdim_ ? p : 0];
  }

 private:
  const float* first_;
  bool by_headdim_;
};

/// The longest chunk of any implementation: sums in it have so many terms.
inline constexpr std::int64_t kLongestChunk = kMaxSsdChunk;

}  // namespace ssmbench
