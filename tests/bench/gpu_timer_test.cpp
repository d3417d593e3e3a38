// On a GPU: times agree with a bare loop between two events; graphs replay what can be captured, and what
// cannot leaves no trace.

#include <algorithm>
#include <chrono>

#include "bench/timer.h"
#include "catch.h"
#include "device/device.h"
#include "inputs/inputs.h"
#include "support/find_implementation.h"
#include "support/gpu.h"
#include "support/run_plan.h"
#include "support/scan_problem.h"
#include "sweep/prepared_run.h"

#ifdef SSMBENCH_HAS_CUDA
#include "base/cuda_check.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const std::atomic<bool> kNever{false};

/// A scan that takes a fifth of a millisecond or so, ready to launch on a GPU.
struct LongKernel {
  LongKernel()
      : device(open_device(DeviceKind::cuda)),
        problem(scan_problem(
            {{"batch", size(4)}, {"dim", size(1024)}, {"seqlen", size(1024)}, {"dstate", size(16)}})),
        inputs(generate_inputs(problem, {}, kNever)),
        uploaded(*device, inputs),
        run(*device, find_implementation("selective_scan_fwd", "cuda-blockscan"), problem, uploaded.views()) {
  }

  std::unique_ptr<Device> device;
  Problem problem;
  std::vector<HostTensor> inputs;
  DeviceInputs uploaded;
  PreparedRun run;
};

/// Mean of launches that follow one another, all between two events.
double bare_loop_ms(const Launch& launch, void* stream) {
  constexpr int kLaunches = 200;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  check_cuda(cudaEventCreate(&start));
  check_cuda(cudaEventCreate(&stop));
  for (int warmup = 0; warmup < 20; ++warmup) launch(stream);
  check_cuda(cudaEventRecord(start, static_cast<cudaStream_t>(stream)));
  for (int i = 0; i < kLaunches; ++i) launch(stream);
  check_cuda(cudaEventRecord(stop, static_cast<cudaStream_t>(stream)));
  check_cuda(cudaEventSynchronize(stop));
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, start, stop));
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return ms / kLaunches;
}

}  // namespace

TEST_CASE("times on a GPU agree with a bare event loop, as launches and as a graph", "[gpu][timing]") {
  if (!gpu_or_skip()) return;
  LongKernel kernel;
  LaunchTimer timer(*kernel.device, kernel.run.launch(), {.min_seconds = 0.3}, 0, kNever);
  auto replay = kernel.device->capture(kernel.run.launch());
  REQUIRE(replay);
  timer.add_graph(std::move(*replay));
  while (!timer.is_done()) timer.burst(false);
  const auto timing = timer.results();
  const double bare = bare_loop_ms(kernel.run.launch(), kernel.device->stream());
  INFO("bare " << bare << ", hot " << timing.at("hot").median_ms << ", graph " << timing.at("graph").median_ms
               << ", cold " << timing.at("cold").median_ms);
  CHECK(bare > 0.1);
  CHECK(std::abs(timing.at("hot").median_ms / bare - 1) < 0.03);
  CHECK(std::abs(timing.at("graph").median_ms / bare - 1) < 0.03);
  CHECK(timing.at("cold").median_ms > 0.97 * bare);
}

TEST_CASE("the time of a launch holds no time of the host unless the queue ran dry", "[gpu][timing]") {
  if (!gpu_or_skip()) return;
  LongKernel kernel;
  const auto hesitant = [&](void* stream) {  // within the launch, where its own time would hide it
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1)) continue;
    kernel.run.launch()(stream);
  };
  LaunchTimer timer(*kernel.device, hesitant, {.min_seconds = 0.3}, 0, kNever);
  while (!timer.is_done()) timer.burst(false);
  const TimingStats hot = timer.results().at("hot");
  const double bare = bare_loop_ms(kernel.run.launch(), kernel.device->stream());
  INFO("bare " << bare << ", hot " << hot.median_ms << ", dry " << hot.queue_ran_dry);
  CHECK(std::abs(hot.median_ms / bare - 1) < 0.03);
  CHECK(hot.queue_ran_dry <= static_cast<int>(hot.samples_ms.size()) / 20);
  CHECK_FALSE(kernel.device->time_launch(kernel.run.launch(), 1).queue_ran_dry);
  const LaunchTime starved = kernel.device->time_launch(hesitant, 0.05);
  CHECK(starved.queue_ran_dry);
  CHECK(starved.enqueue_ms >= 1);
  CHECK(starved.ms > 0.9);  // the host's millisecond is in it
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a graph computes what the launch computes", "[gpu][timing]") {
  if (!gpu_or_skip()) return;
  LongKernel kernel;
  kernel.run.launch()(kernel.device->stream());
  const auto expected = kernel.run.copy_outputs();
  const auto replay = kernel.device->capture(kernel.run.launch());
  REQUIRE(replay);
  kernel.run.reset_outputs(0xFF);
  (*replay)(kernel.device->stream());
  const auto got = kernel.run.copy_outputs();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto* const a = static_cast<const std::byte*>(expected[i].buffer.data());
    const auto* const b = static_cast<const std::byte*>(got[i].buffer.data());
    CHECK(std::equal(a, a + expected[i].spec.bytes(), b));
  }
}

TEST_CASE("what cannot be captured gives no graph, and the stream goes on as before", "[gpu][timing]") {
  if (!gpu_or_skip()) return;
  LongKernel kernel;
  Device& device = *kernel.device;
  const Launch& launch = kernel.run.launch();
  const auto synchronizing = [&](void* stream) {
    launch(stream);
    check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  };
  const auto careless = [&](void* stream) {  // that looks at no error
    launch(stream);
    cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
    void* memory = nullptr;
    cudaMalloc(&memory, 1 << 20);
    cudaFree(memory);
  };
  const auto throwing = [](void*) { throw std::runtime_error("no"); };
  const auto idle = [](void*) {};
  for (const Launch& bad : {Launch(synchronizing), Launch(careless), Launch(throwing), Launch(idle)}) {
    CHECK_FALSE(device.capture(bad));
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(device.time_launch(launch, 0.05).ms > 0);
  }
  CHECK(device.capture(launch));
}

TEST_CASE("the clock of a GPU is read where the driver says it", "[gpu][timing]") {
  if (!gpu_or_skip()) return;
  LongKernel kernel;
  for (int i = 0; i < 100; ++i) kernel.device->time_launch(kernel.run.launch(), 0.05);
  const auto clock = kernel.device->read_clock();
  if (!clock) {
    WARN("this machine does not say");
    return;
  }
  CHECK(clock->mhz > 300);
  CHECK(clock->mhz < 5000);
}
#endif
