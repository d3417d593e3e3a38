#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/ssd_chunk_scan/args.h"
#include "model/problem.h"

// cuda-hopper in two halves, for shards of time. All items are in parts (handed.h), and the pass of states goes
// over the last parts too: that gives what leaves the shard. Outputs follow once it is known what enters it, from
// the states that this pass has left, so that nothing is computed twice.

namespace ssmbench::ssd_hopper {

class Halves {
 public:
  virtual ~Halves() = default;
  Halves() = default;
  Halves(const Halves&) = delete;
  Halves& operator=(const Halves&) = delete;
  Halves(Halves&&) = delete;
  Halves& operator=(Halves&&) = delete;

  /// The states of all parts from zeros. `leaving` gets the state after the last step, if `entering` (null:
  /// zeros) is before the first; null: nobody asks. Both (B, H, P, N).
  virtual void states(const float* entering, float* leaving, cudaStream_t stream) = 0;
  /// After that, outputs, and the state after the last step where `leaving` is not null.
  virtual void outputs(const float* entering, float* leaving, cudaStream_t stream) = 0;
};

/// Whether cuda-hopper does the problem, and it has two parts at least.
bool has_halves(const Problem& problem);
std::size_t halves_bytes(const Problem& problem);
/// Of a problem in memory of the current device, whose states are not looked at. With seq_idx (B, L) numbers
/// begin with 0, that of what enters; `args` may have others than the problem's tensors. `workspace` has
/// halves_bytes(problem). Throws DeviceError.
std::unique_ptr<Halves> halves(const Problem& problem, const SsdArgs& args, void* workspace);

}  // namespace ssmbench::ssd_hopper
