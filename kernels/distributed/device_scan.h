#pragma once

#include <cuda_runtime_api.h>

#include "kernels/distributed/local_scan.h"

namespace ssmbench {

/// A stream beside that of a launch.
class SideStream {
 public:
  SideStream();
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  SideStream(SideStream&&) = delete;
  SideStream& operator=(SideStream&&) = delete;

  /// Goes on behind what is on `stream`; what is enqueued there after that runs beside it.
  cudaStream_t fork(cudaStream_t stream);
  /// `stream` goes on behind this one, where that was forked.
  void join(cudaStream_t stream);

 private:
  cudaStream_t side_ = nullptr;
  cudaEvent_t event_ = nullptr;
  bool is_forked_ = false;
};

/// A scan in the memory of the current GPU, on a stream.
class DeviceScan : public LocalScan {
 public:
  using LocalScan::LocalScan;
  void reset(RerunProgress* progress, void* stream) override;
  void compare(const float* state, const float* kept, RerunProgress* progress, void* stream) override;
  bool is_done(const RerunProgress* progress, void* stream) const override;
  void copy_state(const float* from, float* to, void* stream) override;
  RerunProgress settled(const RerunProgress* progress) const override;
  void end_summary(void* stream) override { side_.join(static_cast<cudaStream_t>(stream)); }

 protected:
  /// Where a summary is enqueued: it may leave most of a GPU to the first pass, which may, too.
  cudaStream_t fork(void* stream) { return side_.fork(static_cast<cudaStream_t>(stream)); }

 private:
  SideStream side_;
};

}  // namespace ssmbench
