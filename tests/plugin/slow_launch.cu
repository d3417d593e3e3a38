// A plugin whose launches take the host long: 1 ms, which the device can idle for, and 30 ms, which it does
// not. The kernel takes microseconds: one thread a (batch, channel), steps in order.

#include <cuda_runtime.h>

#include <chrono>

#include "ssmbench_plugin.h"

namespace {

constexpr int kMilliseconds[] = {1, 30};

struct Arguments {
  int64_t rows, dim, seqlen;
  const float *a, *b;
  float* out;
  int milliseconds;
};

__global__ void scan_kernel(Arguments p) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (row >= p.rows) return;
  float h = 0;
  for (int64_t t = 0; t < p.seqlen; ++t) {
    const int64_t at = (row / p.dim * p.seqlen + t) * p.dim + row % p.dim;
    h = p.a[at] * h + p.b[at];
    p.out[at] = h;
  }
}

float* floats(const ssmbench_problem* problem, const char* name) {
  return static_cast<float*>(ssmbench_data(problem, name));
}

}  // namespace

SSMBENCH_EXPORT const ssmbench_plugin* ssmbench_plugin_describe() {
  static const ssmbench_implementation implementations[] = {
      {"cuda-slow-launch", "linear_scan", "takes the host 1 ms", SSMBENCH_CUDA, 1, {}, {}},
      {"cuda-slower-launch", "linear_scan", "takes the host 30 ms", SSMBENCH_CUDA, 1, {}, {}}};
  static const ssmbench_plugin plugin = {SSMBENCH_PLUGIN_ABI_VERSION, 2, implementations, 0};
  return &plugin;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_unsupported(int32_t, const ssmbench_problem* problem) {
  return problem->dtype == SSMBENCH_F32 ? nullptr : "has f32 only";
}

SSMBENCH_EXPORT int64_t ssmbench_plugin_workspace_bytes(int32_t, const ssmbench_problem*) {
  return 0;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem, void*,
                                                 void** handle) {
  const int64_t dim = ssmbench_integer(problem, "dim");
  *handle = new Arguments{ssmbench_integer(problem, "batch") * dim,
                          dim,
                          ssmbench_integer(problem, "seqlen"),
                          floats(problem, "a"),
                          floats(problem, "b"),
                          floats(problem, "out"),
                          kMilliseconds[index]};
  return nullptr;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_launch(void* handle, void* stream) {
  const auto& arguments = *static_cast<const Arguments*>(handle);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(arguments.milliseconds);
  while (std::chrono::steady_clock::now() < end) continue;
  constexpr int kThreads = 128;
  const auto blocks = static_cast<unsigned>((arguments.rows + kThreads - 1) / kThreads);
  scan_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments);
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

SSMBENCH_EXPORT void ssmbench_plugin_release(void* handle) {
  delete static_cast<Arguments*>(handle);
}
