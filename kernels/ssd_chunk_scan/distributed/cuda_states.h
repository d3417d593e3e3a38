#pragma once

#include <cstdint>

#include "kernels/distributed/device_scan.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "model/problem.h"

namespace ssmbench::cuda_ssd_shards {

/// States of a shard on a GPU, of ssd_chunk_scan_fwd or of its gradients' problem.
class StatesShard : public DeviceScan {
 public:
  /// `workspace` has states_floats(part) floats.
  StatesShard(const Problem& part, const SsdInputs& in, float* final_states, float* workspace);

  const float* initial_state() const override { return in_.initial_floats(); }
  float* last_state() const override { return final_states_; }
  /// Without outputs alone (walk.cuh).
  void run(IndexRange range, const float* entering, float* leaving, bool outputs, void* stream) override;
  void begin_summary(float* summary, bool decays, void* stream) override;
  void enter(Payloads payloads, int rank, float* state, void* stream) override;
  bool states_may_end() const override { return in_.seq_idx != nullptr; }
  void enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks, float* gradient,
                        void* stream) override;

 protected:
  const SsdInputs& inputs() const { return in_; }
  const Problem& part() const { return part_; }

 private:
  Problem part_;
  SsdInputs in_;
  float* final_states_;
  float* workspace_;
};

std::int64_t states_floats(const Problem& part);

/// Takes gradients of states back through all steps of a shard;
/// `workspace` has states_floats(part) floats.
void walk_back(const Problem& part, const SsdInputs& in, const void* dout, const float* leaving,
               float* entering, float* workspace, void* stream);

/// Numbers of steps [begin, begin + count), less the one of the step before, or at step 0 less that of step 0:
/// the state that enters belongs to sequence 0.
void rebase_numbers(const std::int32_t* numbers, std::int64_t begin, std::int64_t count, std::int32_t* to,
                    void* stream);

}  // namespace ssmbench::cuda_ssd_shards
