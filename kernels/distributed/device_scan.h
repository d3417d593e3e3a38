#pragma once

#include "kernels/distributed/local_scan.h"

namespace ssmbench {

/// A scan in the memory of the current GPU, on a stream.
class DeviceScan : public LocalScan {
 public:
  using LocalScan::LocalScan;
  void compare(const float* state, const float* kept, RerunProgress* progress, void* stream) override;
  void copy_state(const float* from, float* to, void* stream) override;
  RerunProgress settled(const RerunProgress* progress) const override;

 protected:
  /// What enter() leaves in progress.
  void begin_second_pass(const float* state, RerunProgress* progress, void* stream) const;
  /// Whether nothing is left to do; waits for the stream. False where progress is null.
  static bool is_done(const RerunProgress* progress, void* stream);
};

}  // namespace ssmbench
