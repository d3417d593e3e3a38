#include "device/cuda/cuda.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>

#include "base/cuda_attribute.h"
#include "base/cuda_check.h"
#include "device/cuda/digest.h"
#include "device/cuda/exchange.h"
#include "device/cuda/nvml.h"
#include "model/guard_band.h"

namespace ssmbench {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

DeviceInfo describe(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index));
  int driver = 0;
  int runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver));
  check_cuda(cudaRuntimeGetVersion(&runtime));

  DeviceInfo info{.kind = DeviceKind::cuda, .index = index, .name = properties.name, .details = {}};
  info.total_bytes = properties.totalGlobalMem;
  info.free_bytes = properties.totalGlobalMem;
  for (const char byte : properties.uuid.bytes) info.uuid += fmt::format("{:02x}", byte & 0xFF);
  info.details = {
      {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
      {"multiprocessors", std::to_string(properties.multiProcessorCount)},
      {"l2_bytes", std::to_string(properties.l2CacheSize)},
      {"clock_mhz", std::to_string(cuda_attribute(cudaDevAttrClockRate, index) / 1000)},
      {"memory_clock_mhz", std::to_string(cuda_attribute(cudaDevAttrMemoryClockRate, index) / 1000)},
      {"cuda_driver", version_text(driver)},
      {"cuda_runtime", version_text(runtime)},
  };
  return info;
}

/// How long the second stream is idle: many times as long as it takes to enqueue a launch and run a small
/// kernel.
constexpr unsigned kIdleMicroseconds = 500;

/// Whether what was enqueued before the event is done.
bool is_done(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // or whoever asks next takes it for an error of a launch
    return false;
  }
  check_cuda(status);
  return true;
}

/// What a stream enqueues while `launch` runs; null when that cannot be captured. Leaves neither the capture
/// nor an error behind.
cudaGraph_t capture_graph(const Launch& launch, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  // Not "relaxed": a launch that allocates would leave the graph with memory that is gone when it is
  // replayed.
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  bool threw = false;
  try {
    launch(stream);
  } catch (const std::exception&) {
    threw = true;
  }
  const cudaError_t status = cudaStreamEndCapture(stream, &graph);
  std::size_t nodes = 0;
  if (status == cudaSuccess && graph != nullptr) cudaGraphGetNodes(graph, nullptr, &nodes);
  cudaGetLastError();
  if (!threw && nodes > 0) return graph;
  if (graph != nullptr) cudaGraphDestroy(graph);
  return nullptr;
}

/// Owns two streams, the two events that time a launch, the digests' memory, and the buffer whose rewriting
/// evicts the L2 cache.
class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    check_cuda(cudaSetDevice(index));
    for (auto& stream : streams_) check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_ = streams_.front();
    check_cuda(cudaEventCreate(&start_));
    check_cuda(cudaEventCreate(&stop_));
    // Writing twice the L2 leaves none of its old lines.
    flush_bytes_ = 2 * static_cast<std::size_t>(cuda_attribute(cudaDevAttrL2CacheSize, index));
  }
  ~CudaDevice() override {
    // Errors are of no use here: the process is about to report what it has.
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    for (auto& stream : streams_) cudaStreamDestroy(stream);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  CudaDevice(CudaDevice&&) = delete;
  CudaDevice& operator=(CudaDevice&&) = delete;

  DeviceInfo info() const override {
    DeviceInfo info = describe(index_);
    check_cuda(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
    return info;
  }
  bool shares_host_memory() const override { return false; }

  Buffer allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, kBandBytes + bytes + kBandBytes));
    const std::shared_ptr<void> owner(memory, [](void* pointer) { cudaFree(pointer); });
    auto* const before = static_cast<std::byte*>(memory);
    fill(before, kBandByte, kBandBytes);
    fill(before + kBandBytes + bytes, kBandByte, kBandBytes);
    return {owner, before + kBandBytes};
  }
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    enqueue_copy_in(device, host, bytes);
    synchronize();
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    enqueue_copy_out(host, device, bytes);
    synchronize();
  }
  void enqueue_copy_in(void* device, const void* host, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
  }
  void enqueue_copy_out(void* host, const void* device, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
  }
  void* pinned_memory(std::size_t bytes) override {
    if (bytes > pinned_bytes_) {  // kept: to lock pages takes longer than to copy them
      pinned_.reset();
      pinned_bytes_ = 0;
      void* memory = nullptr;
      if (cudaMallocHost(&memory, bytes) != cudaSuccess) {
        cudaGetLastError();
        return nullptr;
      }
      pinned_ = {memory, [](void* pointer) { cudaFreeHost(pointer); }};
      pinned_bytes_ = bytes;
    }
    return pinned_.get();
  }
  void fill(void* device, unsigned char value, std::size_t bytes) override {
    check_cuda(cudaMemsetAsync(device, value, bytes, stream_));
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                 std::size_t rows) override {
    constexpr std::size_t kMostPitch = 2147483647;  // cudaDevAttrMaxPitch
    if (std::max(to_pitch, from_pitch) > kMostPitch)
      return Device::copy_rows(to, to_pitch, from, from_pitch, width, rows);
    check_cuda(
        cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDeviceToDevice, stream_));
  }
  void exchange(const std::vector<SlicePair>& pairs) override {
    for (std::size_t first = 0; first < pairs.size(); first += ExchangeBatch::kCapacity) {
      ExchangeBatch batch;
      for (std::size_t i = first; i < pairs.size() && batch.count < ExchangeBatch::kCapacity; ++i)
        batch.pairs[batch.count++] = pairs[i];
      enqueue_exchange(batch, stream_);
    }
  }
  std::vector<std::uint64_t> digests(const std::vector<MemorySpan>& spans) override {
    std::vector<std::uint64_t> all;
    for (std::size_t first = 0; first < spans.size(); first += DigestBatch::kCapacity) {
      DigestBatch batch;
      for (std::size_t i = first; i < spans.size() && batch.count < DigestBatch::kCapacity; ++i)
        batch.spans[batch.count++] = spans[i];
      add_digests(batch, all);
    }
    return all;
  }

  void* stream() override { return stream_; }
  void use_second_stream(bool second) override {
    synchronize();
    stream_ = streams_.at(second ? 1 : 0);
    if (second) enqueue_delay(kIdleMicroseconds, stream_);
  }
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_)); }
  bool wait_until_idle() override {
    check_cuda(cudaDeviceSynchronize());  // every stream
    return true;
  }

  LaunchTime time_launch(const Launch& launch, double idle_ms) override {
    enqueue_delay(static_cast<unsigned>(1000 * idle_ms), stream_);
    check_cuda(cudaEventRecord(start_, stream_));
    const auto begin = std::chrono::steady_clock::now();
    launch(stream_);
    const std::chrono::duration<double, std::milli> enqueueing = std::chrono::steady_clock::now() - begin;
    check_cuda(cudaEventRecord(stop_, stream_));
    const bool ran_dry = is_done(start_);
    check_cuda(cudaEventSynchronize(stop_));
    float elapsed = 0;
    check_cuda(cudaEventElapsedTime(&elapsed, start_, stop_));
    return {.ms = elapsed, .enqueue_ms = enqueueing.count(), .queue_ran_dry = ran_dry};
  }

  bool flush_cache() override {
    if (flush_bytes_ == 0) return false;
    if (flush_buffer_ == nullptr) flush_buffer_ = allocate(flush_bytes_);
    fill(flush_buffer_.get(), 0, flush_bytes_);
    return true;
  }

  std::optional<Launch> capture(const Launch& launch) override {
    synchronize();
    cudaGraph_t graph = capture_graph(launch, stream_);
    if (graph == nullptr) return {};
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    if (status != cudaSuccess) {
      cudaGetLastError();
      return {};
    }
    const std::shared_ptr<CUgraphExec_st> owner(executable,
                                                [](cudaGraphExec_t mine) { cudaGraphExecDestroy(mine); });
    return [owner](void* stream) {
      check_cuda(cudaGraphLaunch(owner.get(), static_cast<cudaStream_t>(stream)));
    };
  }

  std::optional<ClockReading> read_clock() override {
    if (!nvml_) {
      std::array<char, 32> bus_id{};
      check_cuda(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index_));
      nvml_.emplace(bus_id.data());
    }
    return nvml_->read();
  }

 private:
  void add_digests(const DigestBatch& batch, std::vector<std::uint64_t>& all) {
    if (digest_sums_ == nullptr) digest_sums_ = allocate(DigestBatch::kCapacity * sizeof(unsigned long long));
    auto* const sums = static_cast<unsigned long long*>(digest_sums_.get());
    std::array<unsigned long long, DigestBatch::kCapacity> host{};
    fill(sums, 0, sizeof(host));
    enqueue_digests(batch, sums, stream_);
    copy_out(host.data(), sums, sizeof(host));
    all.insert(all.end(), host.begin(), host.begin() + batch.count);
  }

  int index_;
  std::array<cudaStream_t, 2> streams_ = {};
  cudaStream_t stream_ = nullptr;  ///< the one in use
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  std::size_t flush_bytes_ = 0;
  Buffer flush_buffer_;
  Buffer digest_sums_;
  Buffer pinned_;
  std::size_t pinned_bytes_ = 0;
  std::optional<Nvml> nvml_;  ///< once the clock was asked for
};

}  // namespace

std::vector<DeviceInfo> cuda_devices(std::string& reason) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    reason = "no CUDA driver is installed";
    return {};
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    reason = status != cudaSuccess ? cudaGetErrorString(status) : "no CUDA-capable device is detected";
    return {};
  }
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) devices.push_back(describe(index));
  return devices;
}

std::unique_ptr<Device> open_cuda(int index) {
  return std::make_unique<CudaDevice>(index);
}

void leave_cuda(int index) {
  check_cuda(cudaSetDevice(index));
  check_cuda(cudaDeviceReset());
}

}  // namespace ssmbench
