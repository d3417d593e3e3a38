#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/distributed/local_scan.h"
#include "model/communicator.h"

// Gradients of scans along time over the ranks of a team.

namespace ssmbench {

/// The states and gradients of states that a rank's shard begins with, in the memory of its device.
struct GradientBuffers {
  float* state;     ///< before the first step
  float* carry;     ///< gradient of the state after the last step
  float* dinitial;  ///< gets the gradient of `state` where the problem has no such output
  void* workspace;  ///< for the shard's own use
};

/// What goes through a shard from zeros, in the memory of its device.
struct ThroughShard {
  const float* state;     ///< before the first step; null: zeros
  float* leaving;         ///< gets the state after the last step; null: nobody asks for it
  const float* gradient;  ///< of the state after the last step; null: zeros
  float* entering;        ///< gets that of the state before the first step; null: nobody asks for it
};

/// A rank's shard of the gradients of a scan along time.
class LocalGradients {
 public:
  virtual ~LocalGradients() = default;
  LocalGradients() = default;
  LocalGradients(const LocalGradients&) = delete;
  LocalGradients& operator=(const LocalGradients&) = delete;
  LocalGradients(LocalGradients&&) = delete;
  LocalGradients& operator=(LocalGradients&&) = delete;

  /// The forward scan: what becomes of states between shards. It is not run.
  virtual LocalScan& scan() = 0;
  /// Gradient of the state after the problem's last step; null where it has none.
  virtual const float* dlast_state() const = 0;
  /// The states with time, and their gradients against it, without anything else.
  virtual void pass(const ThroughShard& through, void* stream) = 0;
  /// After that, all gradients of the shard, from the state and the carry in the buffers.
  virtual void compute(void* stream) = 0;
  /// Gradients that are sums over time: of the shard, to be added over the ranks.
  virtual std::vector<std::span<float>> sums() const = 0;
};

/// The exchange is in the middle: the states of all shards from zeros, and the gradients of states against
/// time from zeros; one all-gather of both; then all gradients of each shard from the true state and the true
/// carry, and the sums over time are added over the ranks.
///
///   rank 0   ├ initial_state ──►│        │◄── zeros ┤        │ gradients ┤  sum
///   rank 1   ├ zeros ──────────►│ gather │◄── zeros ┤ gather │ gradients ┤  sum
///   rank 2   ├ zeros ──────────►│        │◄── dlast ┤        │ gradients ┤  sum
class StateGradients {
 public:
  /// The buffers are the gradients' own; `workspace` has floats(…) floats more.
  StateGradients(LocalGradients& gradients, Communicator& team, const GradientBuffers& buffers,
                 float* workspace);
  static std::int64_t floats(const ShardSizes& sizes, int ranks);

  void launch(void* stream);

 private:
  std::int64_t payload_floats() const;

  LocalGradients& gradients_;
  Communicator& team_;
  GradientBuffers buffers_;
  float *own_, *payloads_;
};

}  // namespace ssmbench
