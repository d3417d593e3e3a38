#include "kernels/distributed/device_scan.h"

#include <algorithm>
#include <cstdint>

#include "base/cuda_check.h"
#include "kernels/common/index_math.h"

namespace ssmbench {
namespace {

constexpr unsigned kScanThreads = 256;

unsigned blocks_for(std::int64_t count) {
  constexpr std::int64_t kMost = 1024;
  return static_cast<unsigned>(std::min(ceil_div(count, std::int64_t{kScanThreads}), kMost));
}

cudaStream_t cuda(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

/// All threads that write `differ` write the same.
__global__ void compare_states(const float* state, const float* kept, std::int64_t count,
                               RerunProgress* progress) {
  bool found = false;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kScanThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kScanThreads + threadIdx.x; i < count;
       i += step)
    found = found || __float_as_uint(state[i]) != __float_as_uint(kept[i]);  // NaN too: bits, not values
  if (found) progress->differ = 1;
}

__global__ void count_range(RerunProgress* progress) {
  ++progress->ranges;
  if (progress->differ == 0) progress->done = 1;
  progress->differ = 0;
}

}  // namespace

SideStream::SideStream() {
  check_cuda(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking));
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

SideStream::~SideStream() {
  cudaEventDestroy(event_);
  cudaStreamDestroy(side_);
}

cudaStream_t SideStream::fork(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream));
  check_cuda(cudaStreamWaitEvent(side_, event_));
  is_forked_ = true;
  return side_;
}

void SideStream::join(cudaStream_t stream) {
  if (!is_forked_) return;
  is_forked_ = false;
  check_cuda(cudaEventRecord(event_, side_));
  check_cuda(cudaStreamWaitEvent(stream, event_));
}

void DeviceScan::reset(RerunProgress* progress, void* stream) {
  check_cuda(cudaMemsetAsync(progress, 0, sizeof *progress, cuda(stream)));
}

void DeviceScan::compare(const float* state, const float* kept, RerunProgress* progress, void* stream) {
  const std::int64_t count = sizes().state_floats;
  compare_states<<<blocks_for(count), kScanThreads, 0, cuda(stream)>>>(state, kept, count, progress);
  check_cuda(cudaGetLastError());
  count_range<<<1, 1, 0, cuda(stream)>>>(progress);
  check_cuda(cudaGetLastError());
}

void DeviceScan::copy_state(const float* from, float* to, void* stream) {
  const auto bytes = static_cast<std::size_t>(sizes().state_floats) * sizeof(float);
  if (from == nullptr)
    check_cuda(cudaMemsetAsync(to, 0, bytes, cuda(stream)));
  else
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda(stream)));
}

RerunProgress DeviceScan::settled(const RerunProgress* progress) const {
  RerunProgress found{};
  check_cuda(cudaMemcpy(&found, progress, sizeof found, cudaMemcpyDeviceToHost));
  return found;
}

bool DeviceScan::is_done(const RerunProgress* progress, void* stream) const {
  std::int32_t done = 0;
  check_cuda(cudaMemcpyAsync(&done, &progress->done, sizeof done, cudaMemcpyDeviceToHost, cuda(stream)));
  check_cuda(cudaStreamSynchronize(cuda(stream)));
  return done != 0;
}

}  // namespace ssmbench
