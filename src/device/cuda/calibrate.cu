// The ceilings of a GPU: each by a kernel that does nothing else, the best of many launches.
//
//   stream_kernel   thread t of T: elements t, t + T, t + 2·T, … of 16 bytes, from the start again past the
//                   end. Memory: once over a buffer many times the L2. L2: many times over a part of it, by
//                   loads and stores that leave the L1 out
//   ex2_kernel      8 chains of ex2.approx per thread, all threads that an SM holds
//   fma_kernel      8 chains of multiply-adds
//   wgmma_kernel, mma_kernel: calibrate_tensor.cuh
//
// The clock is not held by anything here, so that rates are those of the highest clock that the GPU reaches.

#include "device/cuda/calibrate.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>

#include "base/cuda_check.h"
#include "device/cuda/calibrate_tensor.cuh"

namespace ssmbench {
namespace {

constexpr int kThreads = 256;
constexpr int kChains = 8;
constexpr int kExponentials = 512;  ///< of each chain
constexpr int kFmas = 8192;

enum class Traffic { read, write, copy };

/// `accesses` elements per thread, of `count` (at least as many as threads).
template <Traffic kTraffic>
__global__ void __launch_bounds__(kThreads)
    stream_kernel(const uint4* from, uint4* to, std::size_t count, std::size_t accesses) {
  const std::size_t threads = std::size_t{gridDim.x} * kThreads;
  std::size_t at = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
  uint4 sum{};
#pragma unroll 8
  for (std::size_t i = 0; i < accesses; ++i) {
    uint4 value{1, 2, 3, 4};
    if constexpr (kTraffic != Traffic::write) value = __ldcg(from + at);
    if constexpr (kTraffic != Traffic::read) __stcg(to + at, value);
    sum.x ^= value.x;
    sum.y ^= value.y;
    sum.z ^= value.z;
    sum.w ^= value.w;
    at += threads;
    if (at >= count) at -= count;
  }
  // Never true, but the compiler cannot know that: buffers are zeros.
  if (kTraffic == Traffic::read && (sum.x | sum.y | sum.z | sum.w) != 0) *to = sum;
}

__global__ void __launch_bounds__(kThreads) ex2_kernel(float start, float* never) {
  float x[kChains];
#pragma unroll
  for (int j = 0; j < kChains; ++j) x[j] = start + static_cast<float>(j);
#pragma unroll 8
  for (int i = 0; i < kExponentials; ++i)
#pragma unroll
    for (int j = 0; j < kChains; ++j) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[j]));
#pragma unroll
  for (int j = 0; j < kChains; ++j)
    if (x[j] < 0.0F) *never = x[j];
}

__global__ void __launch_bounds__(kThreads) fma_kernel(float factor, float term, float* never) {
  float x[kChains];
#pragma unroll
  for (int j = 0; j < kChains; ++j) x[j] = static_cast<float>(j);
#pragma unroll 32  // or the loop's own instructions show
  for (int i = 0; i < kFmas; ++i)
#pragma unroll
    for (int j = 0; j < kChains; ++j) x[j] = __fmaf_rn(x[j], factor, term);
#pragma unroll
  for (int j = 0; j < kChains; ++j)
    if (x[j] < 0.0F) *never = x[j];
}

/// A stream, two events and a buffer of zeros.
class Calibration {
 public:
  explicit Calibration(int index) {
    check_cuda(cudaSetDevice(index));
    check_cuda(cudaGetDeviceProperties(&gpu_, index));
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check_cuda(cudaEventCreate(&start_));
    check_cuda(cudaEventCreate(&stop_));
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total));
    // So many times the L2 that what stays in it does not count.
    const std::size_t wanted = std::max<std::size_t>(64 * l2_bytes(), std::size_t{1} << 30);
    bytes_ = std::min(wanted, free / 2) / kGranularity * kGranularity;
    check_cuda(cudaMalloc(&buffer_, bytes_));
    check_cuda(cudaMemsetAsync(buffer_, 0, bytes_, stream_));
    blocks_ = static_cast<unsigned>(gpu_.multiProcessorCount * (gpu_.maxThreadsPerMultiProcessor / kThreads));
  }
  ~Calibration() {
    cudaFree(buffer_);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  Ceilings measure() {
    Ceilings ceilings{.fmas = fma_rate()};  // first, so that the clock is up
    ceilings.exponentials = exponential_rate();
    ceilings.dram_bytes = dram_rate();
    ceilings.cache_bytes = cache_rate();
    ceilings.cache_size = static_cast<double>(l2_bytes());
    ceilings.tf32_flops = tensor_rate<Math::tf32>();
    ceilings.f16_flops = tensor_rate<Math::f16>();
    ceilings.bf16_flops = tensor_rate<Math::bf16>();
    return ceilings;
  }

 private:
  static constexpr std::size_t kGranularity = 4096;
  static constexpr double kSecondsEach = 0.1;
  static constexpr int kLeastRuns = 5;

  std::size_t l2_bytes() const { return static_cast<std::size_t>(gpu_.l2CacheSize); }
  double threads() const { return static_cast<double>(blocks_) * kThreads; }

  /// The shortest of many times that the device takes for what `enqueue` enqueues, in seconds.
  template <class Enqueue>
  double best_seconds(const Enqueue& enqueue) {
    const auto begin = std::chrono::steady_clock::now();
    const auto spent = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    float best = 0;
    for (int runs = 0; runs < kLeastRuns || spent() < kSecondsEach; ++runs) {
      check_cuda(cudaEventRecord(start_, stream_));
      enqueue();
      check_cuda(cudaGetLastError());
      check_cuda(cudaEventRecord(stop_, stream_));
      check_cuda(cudaEventSynchronize(stop_));
      float elapsed = 0;
      check_cuda(cudaEventElapsedTime(&elapsed, start_, stop_));
      best = runs == 0 ? elapsed : std::min(best, elapsed);
    }
    return best / 1000.0;
  }

  double fma_rate() {
    const double seconds = best_seconds(
        [&] { fma_kernel<<<blocks_, kThreads, 0, stream_>>>(0.5F, 1.0F, static_cast<float*>(buffer_)); });
    return threads() * kChains * kFmas / seconds;
  }
  double exponential_rate() {
    const double seconds = best_seconds(
        [&] { ex2_kernel<<<blocks_, kThreads, 0, stream_>>>(0.0F, static_cast<float*>(buffer_)); });
    return threads() * kChains * kExponentials / seconds;
  }

  /// Bytes per second of `passes` over the first `bytes` of the buffer; a copy counts both ways, from one
  /// half to the other.
  template <Traffic kTraffic>
  double stream_rate(std::size_t bytes, std::size_t passes) {
    const std::size_t part = kTraffic == Traffic::copy ? bytes / 2 : bytes;
    const std::size_t count = part / sizeof(uint4);
    const auto all_threads = static_cast<std::size_t>(threads());
    const std::size_t accesses = passes * count / all_threads;
    if (count < all_threads) return 0;
    auto* const from = static_cast<uint4*>(buffer_);
    auto* const to = kTraffic == Traffic::copy ? from + count : from;
    const double seconds = best_seconds(
        [&] { stream_kernel<kTraffic><<<blocks_, kThreads, 0, stream_>>>(from, to, count, accesses); });
    const double moved = threads() * static_cast<double>(accesses) * sizeof(uint4);
    return (kTraffic == Traffic::copy ? 2 : 1) * moved / seconds;
  }
  template <Traffic kTraffic>
  double stream_rates_within_l2() {
    double best = 0;
    for (const std::size_t share : {4, 2}) {
      constexpr std::size_t kPasses = 64;
      best = std::max(best, stream_rate<kTraffic>(l2_bytes() / share, kPasses));
    }
    return best;
  }
  double cache_rate() {
    const double writes = stream_rates_within_l2<Traffic::write>();
    const double copies = stream_rates_within_l2<Traffic::copy>();
    check_cuda(cudaMemsetAsync(buffer_, 0, bytes_, stream_));
    return std::max({writes, copies, stream_rates_within_l2<Traffic::read>()});
  }
  double dram_rate() {
    const double reads = stream_rate<Traffic::read>(bytes_, 1);
    const double copies = stream_rate<Traffic::copy>(bytes_, 1);
    return std::max({reads, copies, stream_rate<Traffic::write>(bytes_, 1)});
  }

  template <Math kMath>
  double tensor_rate() {
    const bool hopper = gpu_.major == 9;
    if (!hopper && gpu_.major != 8 && gpu_.major != 12) return 0;
    auto* const ran = static_cast<int*>(buffer_);
    check_cuda(cudaMemsetAsync(ran, 0, sizeof(int), stream_));
    const auto blocks = static_cast<unsigned>(gpu_.multiProcessorCount * kTensorBlocksPerSm);
    const double seconds = best_seconds([&] {
      if (hopper)
        wgmma_kernel<kMath><<<blocks, kTensorThreads, 0, stream_>>>(0, ran);
      else
        mma_kernel<kMath><<<blocks, kTensorThreads, 0, stream_>>>(0, ran);
    });
    int compiled = 0;
    check_cuda(cudaMemcpyAsync(&compiled, ran, sizeof(int), cudaMemcpyDeviceToHost, stream_));
    check_cuda(cudaStreamSynchronize(stream_));
    if (compiled == 0) return 0;
    return blocks * (hopper ? wgmma_flops_per_block<kMath>() : mma_flops_per_block<kMath>()) / seconds;
  }

  cudaDeviceProp gpu_{};
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  void* buffer_ = nullptr;
  std::size_t bytes_ = 0;
  unsigned blocks_ = 0;
};

}  // namespace

Ceilings calibrate_cuda(int index) {
  return Calibration(index).measure();
}

}  // namespace ssmbench
