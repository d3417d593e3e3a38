#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/distributed/local_scan.h"
#include "model/communicator.h"
#include "model/implementation.h"

// Scans along time over the ranks of a team, which pass states and nothing else. Every algorithm is written
// once, over a local scan and a communicator.
//
// Sources: Dao & Gu, "Transformers are SSMs" (2024), section 8.2 (states are passed between shards); Sun et
// al., "LASP-2" (2025, arXiv 2502.07563: one all-gather of states in place of a ring).

namespace ssmbench {

/// All shards at once from zeros, one all-gather of what they leave, then each shard again from the state
/// that truly enters, until its state is bit for bit that of the first pass: from there on so are its
/// outputs. The result is that of the shards one after the other, bit for bit, given the states that enter.
///
///   rank 0   ├ initial_state ──────────────►│ gather │
///   rank 1   ├ zeros ──────────────────────►│ gather │ true state ─────► equal: stop
///   rank 2   ├ zeros ──────────────────────►│ gather │ true state ─────► equal: stop
class Rerun {
 public:
  /// `stops`: where states are compared, rising multiples of kShardSteps, then the shard's steps. `workspace`
  /// has floats(…) floats. The scan and the team outlive it.
  Rerun(LocalScan& scan, Communicator& team, std::vector<std::int64_t> stops, float* workspace);
  static std::int64_t floats(const ShardSizes& sizes, int ranks, std::size_t stops);

  void launch(void* stream);

  /// Of the last launch that has ended.
  std::int64_t steps_again() const;
  /// The state that entered; null on rank 0.
  const float* entering() const { return entering_; }

 private:
  IndexRange range(std::size_t index) const { return {index == 0 ? 0 : stops_[index - 1], stops_[index]}; }
  /// The first pass's state after a range.
  float* kept(std::size_t index) const;
  void first_pass(void* stream);
  void second_pass(void* stream);

  LocalScan& scan_;
  Communicator& team_;
  std::vector<std::int64_t> stops_;
  float *own_, *payloads_, *kept_, *room_, *again_;
  const float* entering_ = nullptr;
  RerunProgress* progress_;
};

/// States of all shards at once, without outputs; one all-gather; then outputs from the true states. Costs a
/// pass for states whatever the data, and nothing that depends on how long states last.
class TwoPass {
 public:
  TwoPass(LocalScan& scan, Communicator& team, float* workspace);
  static std::int64_t floats(const ShardSizes& sizes, int ranks);

  void launch(void* stream);

 private:
  LocalScan& scan_;
  Communicator& team_;
  float *own_, *payloads_, *room_;
};

/// Rank after rank, each with the state that the one before sends: no faster than one rank, which is what
/// passing states has to beat.
class Chain {
 public:
  Chain(LocalScan& scan, Communicator& team, float* workspace);
  static std::int64_t floats(const ShardSizes& sizes);

  void launch(void* stream);

 private:
  LocalScan& scan_;
  Communicator& team_;
  float *payloads_, *room_;  // payloads: of the rank before, and the own
};

/// Where ranks on GPUs compare states: after 20480 steps, where 2048 channels of Mamba have forgotten, and
/// after 32768. Fewer comparisons than on the CPU: each cuts the first pass, and has the host wait in the
/// second.
std::vector<std::int64_t> cuda_stops(std::int64_t steps);

/// Where ranks of the CPU compare states: 64 steps from the start, then twice as far each time up to 16384,
/// from there on every 4096 up to 32768. Steps that are run again in vain are then at most as many as were
/// needed.
std::vector<std::int64_t> host_stops(std::int64_t steps);

}  // namespace ssmbench
