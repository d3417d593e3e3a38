// A plugin in CUDA: Mamba-1's selective scan, forward, in f32, method zoh, real A, variable B and C, any
// layout.
//
//   thread:  one (b, d), all steps in order        states: in the workspace, n-th at [n][b·dim + d], so that
//   block:   128 of them                                   neighbouring threads touch neighbouring words

#include <cuda_runtime.h>

#include "ssmbench_plugin.h"

namespace {

struct Strides {
  int64_t s[4];
};

struct Arguments {
  int64_t batch, dim, seqlen, dstate, channels_per_group;
  bool softplus;
  const float *u, *delta, *A, *B, *C, *D, *z, *bias, *initial;
  float *out, *last, *states;
  Strides sequence, B_strides, C_strides;
};

__global__ void scan_kernel(Arguments p) {
  const int64_t rows = p.batch * p.dim;
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (row >= rows) return;
  const int64_t b = row / p.dim, d = row % p.dim, group = d / p.channels_per_group;
  for (int64_t n = 0; n < p.dstate; ++n)
    p.states[n * rows + row] = p.initial != nullptr ? p.initial[row * p.dstate + n] : 0.0F;
  for (int64_t t = 0; t < p.seqlen; ++t) {
    const int64_t at = b * p.sequence.s[0] + d * p.sequence.s[1] + t * p.sequence.s[2];
    const float x = p.u[at];
    float step = p.delta[at] + (p.bias != nullptr ? p.bias[d] : 0.0F);
    if (p.softplus) step = step > 20.0F ? step : log1pf(expf(step));
    const float* B = p.B + b * p.B_strides.s[0] + group * p.B_strides.s[1] + t * p.B_strides.s[3];
    const float* C = p.C + b * p.C_strides.s[0] + group * p.C_strides.s[1] + t * p.C_strides.s[3];
    float y = 0;
    for (int64_t n = 0; n < p.dstate; ++n) {
      float& h = p.states[n * rows + row];
      h = expf(step * p.A[d * p.dstate + n]) * h + step * B[n * p.B_strides.s[2]] * x;
      y += C[n * p.C_strides.s[2]] * h;
    }
    if (p.D != nullptr) y += p.D[d] * x;
    if (p.z != nullptr) y *= p.z[at] / (1.0F + expf(-p.z[at]));
    p.out[at] = y;
  }
  for (int64_t n = 0; n < p.dstate; ++n) p.last[row * p.dstate + n] = p.states[n * rows + row];
}

float* floats(const ssmbench_problem* problem, const char* name) {
  return static_cast<float*>(ssmbench_data(problem, name));
}

Strides strides(const ssmbench_problem* problem, const char* name) {
  const ssmbench_tensor* tensor = ssmbench_find(problem, name);
  Strides result{};
  for (int axis = 0; axis < tensor->rank; ++axis) result.s[axis] = tensor->strides[axis];
  return result;
}

}  // namespace

SSMBENCH_EXPORT const ssmbench_plugin* ssmbench_plugin_describe() {
  static const ssmbench_implementation implementations[] = {
      {"cuda-example", "selective_scan_fwd", "a thread per channel, as a plugin", SSMBENCH_CUDA, 1, {}, {}}};
  static const ssmbench_plugin plugin = {SSMBENCH_PLUGIN_ABI_VERSION, 1, implementations, 0};
  return &plugin;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_unsupported(int32_t, const ssmbench_problem* problem) {
  if (problem->dtype != SSMBENCH_F32) return "has f32 only";
  if (!ssmbench_is(problem, "method", "zoh")) return "has method zoh only";
  if (!ssmbench_is(problem, "A", "real")) return "has real A only";
  if (ssmbench_find(problem, "cu_seqlens") != nullptr) return "has one sequence a batch";
  if (ssmbench_find(problem, "x") != nullptr) return "leaves no states on the way";
  if (!ssmbench_is(problem, "B", "variable") || !ssmbench_is(problem, "C", "variable"))
    return "has variable B and C only";
  return nullptr;
}

SSMBENCH_EXPORT int64_t ssmbench_plugin_workspace_bytes(int32_t, const ssmbench_problem* problem) {
  return ssmbench_integer(problem, "batch") * ssmbench_integer(problem, "dim") *
         ssmbench_integer(problem, "dstate") * static_cast<int64_t>(sizeof(float));
}

SSMBENCH_EXPORT const char* ssmbench_plugin_bind(int32_t, const ssmbench_problem* problem, void* workspace,
                                                 void** handle) {
  const int64_t dim = ssmbench_integer(problem, "dim");
  *handle = new Arguments{ssmbench_integer(problem, "batch"),
                          dim,
                          ssmbench_integer(problem, "seqlen"),
                          ssmbench_integer(problem, "dstate"),
                          dim / ssmbench_integer(problem, "groups"),
                          ssmbench_integer(problem, "delta_softplus") != 0,
                          floats(problem, "u"),
                          floats(problem, "delta"),
                          floats(problem, "A"),
                          floats(problem, "B"),
                          floats(problem, "C"),
                          floats(problem, "D"),
                          floats(problem, "z"),
                          floats(problem, "delta_bias"),
                          floats(problem, "initial_state"),
                          floats(problem, "out"),
                          floats(problem, "last_state"),
                          static_cast<float*>(workspace),
                          strides(problem, "u"),
                          strides(problem, "B"),
                          strides(problem, "C")};
  return nullptr;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_launch(void* handle, void* stream) {
  const auto& arguments = *static_cast<const Arguments*>(handle);
  constexpr int kThreads = 128;
  const auto blocks = static_cast<unsigned>((arguments.batch * arguments.dim + kThreads - 1) / kThreads);
  scan_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments);
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

SSMBENCH_EXPORT void ssmbench_plugin_release(void* handle) {
  delete static_cast<Arguments*>(handle);
}
