// Mistakes that only a GPU makes, in selective_scan_fwd with f32, method zoh, real A, variable B and C, by a
// plain implementation:
//
//   scan_kernel   thread: one row (b, d), all steps in order; states in the workspace, (row, n)
//                 race: two warps for the same rows, each with states of its own
//   look_kernel   one thread, ahead of scan_kernel: whether there is anything in out, or results in the
//                 workspace, which copy_kernel takes there and back, one thread an element
//   sum_kernel    thread: one (b, d, n); adds its part of y to the workspace; output_kernel makes out of it

#include <cuda_runtime.h>

#include <chrono>
#include <thread>

#include "plugins/ssmbench_plugin.h"

namespace {

enum class Mistake {
  none,
  race_on_one_element,
  nondeterministic_sum,
  wrong_on_second_stream,
  bounds_not_checked,
  result_kept,
  result_by_pointer,
  result_in_workspace,
  eighth_unless_new,
  late_stream,
  late_thread,
  offset_of_32_bits
};

struct Mutant {
  const char* name;
  Mistake mistake;
};

constexpr Mutant kMutants[] = {
    {"mutant-cuda-none", Mistake::none},
    {"mutant-cuda-race-on-one-element", Mistake::race_on_one_element},
    {"mutant-cuda-nondeterministic-sum", Mistake::nondeterministic_sum},
    {"mutant-cuda-wrong-on-second-stream", Mistake::wrong_on_second_stream},
    {"mutant-cuda-bounds-not-checked", Mistake::bounds_not_checked},
    {"mutant-cuda-result-kept", Mistake::result_kept},
    {"mutant-cuda-result-by-pointer", Mistake::result_by_pointer},
    {"mutant-cuda-result-in-workspace", Mistake::result_in_workspace},
    {"mutant-cuda-eighth-unless-new", Mistake::eighth_unless_new},
    {"mutant-cuda-late-stream", Mistake::late_stream},
    {"mutant-cuda-late-thread", Mistake::late_thread},
    {"mutant-cuda-32-bit-offset", Mistake::offset_of_32_bits},
};
constexpr int kCount = sizeof(kMutants) / sizeof(kMutants[0]);
constexpr int kThreads = 4;  // few, so that a block that is not full goes little past the end
constexpr int kWarp = 32;
constexpr unsigned kResultsAreThere = 0x5EED5EED;

struct Sequence {
  float* data;
  int64_t batch, dim, time;  // strides
};

struct Projection {
  const float* data;
  int64_t batch, group, state, time;  // strides
};

struct Arguments {
  int64_t rows, dim, seqlen, dstate, channels_per_group;
  bool softplus;
  Mistake mistake;
  Sequence u, delta, z, out;
  Projection B, C;
  const float *A, *D, *bias;
  float *initial, *last, *states, *sums;
  bool* kept;
  float* results;    // in the workspace: out, then last_state
  unsigned* marker;  // kResultsAreThere
};

/// The element of row and step.
__device__ float& element(const Arguments& p, const Sequence& sequence, int64_t row, int64_t t) {
  return sequence.data[row / p.dim * sequence.batch + row % p.dim * sequence.dim + t * sequence.time];
}

/// The n-th state of the row in a (B, D, N) tensor.
__device__ float& state_of(const Arguments& p, float* states, int64_t row, int64_t n) {
  const int64_t at = row * p.dstate + n;
  if (p.mistake != Mistake::offset_of_32_bits) return states[at];
  const auto bytes = static_cast<unsigned>(at) * static_cast<unsigned>(sizeof(float));
  return *reinterpret_cast<float*>(reinterpret_cast<char*>(states) + bytes);
}

__device__ float of_group(const Arguments& p, const Projection& projection, int64_t row, int64_t n,
                          int64_t t) {
  const int64_t group = row % p.dim / p.channels_per_group;
  return projection.data[row / p.dim * projection.batch + group * projection.group + n * projection.state +
                         t * projection.time];
}

/// h_t, from h_{t-1}.
__device__ float next_state(const Arguments& p, int64_t row, int64_t n, int64_t t, float state) {
  const int64_t d = row % p.dim;
  float delta = element(p, p.delta, row, t) + (p.bias != nullptr ? p.bias[d] : 0.0F);
  if (p.softplus) delta = delta > 20.0F ? delta : log1pf(expf(delta));
  return expf(delta * p.A[d * p.dstate + n]) * state +
         delta * element(p, p.u, row, t) * of_group(p, p.B, row, n, t);
}

__device__ float first_state(const Arguments& p, int64_t row, int64_t n) {
  return p.initial != nullptr ? state_of(p, p.initial, row, n) : 0.0F;
}

__device__ void store_output(const Arguments& p, int64_t row, int64_t t, float y) {
  if (p.D != nullptr) y += p.D[row % p.dim] * element(p, p.u, row, t);
  if (p.z.data != nullptr) {
    const float z = element(p, p.z, row, t);
    y *= z / (1.0F + expf(-z));
  }
  element(p, p.out, row, t) = y;
}

/// Up to 8192 clock cycles, which differ between launches, blocks and sides. The clock's bits are mixed so
/// that what two sides get in the same launch is not related (Stafford, "Better Bit Mixing", 2011).
__device__ void wait_at_random(unsigned side) {
  const long long start = clock64();
  unsigned x = static_cast<unsigned>(start) ^ (2 * blockIdx.x + side) * 0x9E3779B9U;
  x = (x ^ x >> 16) * 0x85EBCA6BU;
  x = (x ^ x >> 13) * 0xC2B2AE35U;
  x ^= x >> 16;
  while (clock64() - start < x % 8192) {
  }
}

__global__ void look_kernel(Arguments p) {
  *p.kept = p.mistake == Mistake::result_in_workspace ? *p.marker == kResultsAreThere
                                                      : !isnan(element(p, p.out, p.rows - 1, p.seqlen - 1));
}

__global__ void copy_kernel(Arguments p) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t outs = p.rows * p.seqlen;
  if (i == 0) *p.marker = kResultsAreThere;
  if (i >= outs + p.rows * p.dstate) return;
  float& result = i < outs ? element(p, p.out, i / p.seqlen, i % p.seqlen) : p.last[i - outs];
  if (*p.kept)
    result = p.results[i];
  else
    p.results[i] = result;
}

__global__ void scan_kernel(Arguments p) {
  if ((p.mistake == Mistake::result_kept || p.mistake == Mistake::result_in_workspace) && *p.kept) return;
  if (p.mistake == Mistake::eighth_unless_new && *p.kept && blockIdx.x >= gridDim.x / 8) return;
  const unsigned side = threadIdx.y;  // 1: the other side of the race
  const int64_t row = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (threadIdx.x >= kThreads || (row >= p.rows && p.mistake != Mistake::bounds_not_checked)) return;
  float* states = p.states + (side * p.rows + row) * p.dstate;
  for (int64_t n = 0; n < p.dstate; ++n) states[n] = first_state(p, row, n);
  for (int64_t t = 0; t < p.seqlen; ++t) {
    float y = 0;
    for (int64_t n = 0; n < p.dstate; ++n) {
      states[n] = next_state(p, row, n, t, states[n]);
      y += of_group(p, p.C, row, n, t) * states[n];
    }
    // Both sides write the same but for the last step, with no barrier between them: what is left there is of
    // whoever comes last. They start even, so that this is a matter of chance in each block of each launch.
    if (p.mistake == Mistake::race_on_one_element && t == p.seqlen - 1) {
      __syncthreads();
      wait_at_random(side);
    }
    store_output(p, row, t, side > 0 && t == p.seqlen - 1 ? 0.5F * y : y);
  }
  if (side > 0) return;
  for (int64_t n = 0; n < p.dstate; ++n) state_of(p, p.last, row, n) = states[n];
}

__global__ void sum_kernel(Arguments p) {
  const int64_t index = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t row = index / p.dstate, n = index % p.dstate;
  if (row >= p.rows) return;
  float state = first_state(p, row, n);
  for (int64_t t = 0; t < p.seqlen; ++t) {
    state = next_state(p, row, n, t, state);
    atomicAdd(&p.sums[row * p.seqlen + t], of_group(p, p.C, row, n, t) * state);
  }
  p.last[index] = state;
}

__global__ void output_kernel(Arguments p) {
  const int64_t index = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (index < p.rows * p.seqlen) store_output(p, index / p.seqlen, index % p.seqlen, p.sums[index]);
}

float* floats(const ssmbench_problem* problem, const char* name) {
  return static_cast<float*>(ssmbench_data(problem, name));
}

Sequence sequence_of(const ssmbench_problem* problem, const char* name) {
  const ssmbench_tensor* tensor = ssmbench_find(problem, name);
  if (tensor == nullptr) return {};
  return {static_cast<float*>(tensor->data), tensor->strides[0], tensor->strides[1], tensor->strides[2]};
}

Projection projection_of(const ssmbench_problem* problem, const char* name) {
  const ssmbench_tensor* tensor = ssmbench_find(problem, name);
  const int64_t* s = tensor->strides;
  return {static_cast<float*>(tensor->data), s[0], s[1], s[2], s[3]};
}

/// Floats of the workspace in front of the results.
int64_t floats_of_states(int64_t rows, int64_t dstate) {
  return (2 * rows + kThreads) * dstate;
}

Arguments arguments_of(const ssmbench_problem* problem, Mistake mistake, float* workspace) {
  const int64_t dim = ssmbench_integer(problem, "dim");
  const int64_t rows = ssmbench_integer(problem, "batch") * dim;
  const int64_t seqlen = ssmbench_integer(problem, "seqlen");
  const int64_t dstate = ssmbench_integer(problem, "dstate");
  float* const results = workspace + floats_of_states(rows, dstate);
  return {rows,
          dim,
          seqlen,
          dstate,
          dim / ssmbench_integer(problem, "groups"),
          ssmbench_integer(problem, "delta_softplus") != 0,
          mistake,
          sequence_of(problem, "u"),
          sequence_of(problem, "delta"),
          sequence_of(problem, "z"),
          sequence_of(problem, "out"),
          projection_of(problem, "B"),
          projection_of(problem, "C"),
          floats(problem, "A"),
          floats(problem, "D"),
          floats(problem, "delta_bias"),
          floats(problem, "initial_state"),
          floats(problem, "last_state"),
          workspace,
          workspace,
          reinterpret_cast<bool*>(workspace + 2 * rows * dstate),
          results,
          reinterpret_cast<unsigned*>(results + rows * (seqlen + dstate))};
}

unsigned blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

/// Copies what the first launch computed, whatever the inputs hold now.
void launch_kept(const Arguments& p, cudaStream_t stream) {
  static float* kept = nullptr;  // out, then last_state
  const auto out = static_cast<size_t>(p.rows * p.seqlen);
  const auto last = static_cast<size_t>(p.rows * p.dstate);
  const bool is_first = kept == nullptr;
  if (is_first) {
    cudaMalloc(&kept, (out + last) * sizeof(float));
    scan_kernel<<<blocks(p.rows), kThreads, 0, stream>>>(p);
  }
  const auto copy = [&](float* result, float* of_first, size_t count) {
    cudaMemcpyAsync(is_first ? of_first : result, is_first ? result : of_first, count * sizeof(float),
                    cudaMemcpyDeviceToDevice, stream);
  };
  copy(p.out.data, kept, out);
  copy(p.last, kept + out, last);
}

/// A stream that nobody waits for.
cudaStream_t late_stream() {
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

/// From the third launch on a thread launches the kernel, after this function has returned.
void launch_late(const Arguments& p, cudaStream_t stream) {
  static int launches = 0;
  const auto scan = [p, stream] { scan_kernel<<<blocks(p.rows), kThreads, 0, stream>>>(p); };
  if (++launches < 3) return scan();
  std::thread([scan] {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    scan();
  }).detach();
}

void launch(const Arguments& p, cudaStream_t stream) {
  if (p.mistake == Mistake::result_by_pointer) return launch_kept(p, stream);
  if (p.mistake == Mistake::late_thread) return launch_late(p, stream);
  if (p.mistake == Mistake::late_stream) stream = late_stream();
  if (p.mistake == Mistake::wrong_on_second_stream) {
    static const cudaStream_t first = stream;  // as one who keeps a handle that was made for it
    stream = first;
  }
  if (p.mistake == Mistake::nondeterministic_sum) {
    cudaMemsetAsync(p.sums, 0, static_cast<size_t>(p.rows * p.seqlen) * sizeof(float), stream);
    sum_kernel<<<blocks(p.rows * p.dstate), kThreads, 0, stream>>>(p);
    output_kernel<<<blocks(p.rows * p.seqlen), kThreads, 0, stream>>>(p);
  } else {
    const bool keeps = p.mistake == Mistake::result_in_workspace;
    if (keeps || p.mistake == Mistake::result_kept || p.mistake == Mistake::eighth_unless_new)
      look_kernel<<<1, 1, 0, stream>>>(p);
    const bool race = p.mistake == Mistake::race_on_one_element;
    scan_kernel<<<blocks(p.rows), race ? dim3(kWarp, 2) : dim3(kThreads), 0, stream>>>(p);
    if (keeps) copy_kernel<<<blocks(p.rows * (p.seqlen + p.dstate)), kThreads, 0, stream>>>(p);
  }
}

}  // namespace

SSMBENCH_EXPORT const ssmbench_plugin* ssmbench_plugin_describe() {
  static ssmbench_implementation implementations[kCount];
  for (int i = 0; i < kCount; ++i)
    implementations[i] = {
        kMutants[i].name, "selective_scan_fwd", "test of the checks", SSMBENCH_CUDA, 1, {}, {}};
  static const ssmbench_plugin plugin{SSMBENCH_PLUGIN_ABI_VERSION, kCount, implementations, 0};
  return &plugin;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_unsupported(int32_t, const ssmbench_problem* problem) {
  if (problem->dtype != SSMBENCH_F32) return "has f32 only";
  if (!ssmbench_is(problem, "method", "zoh") || !ssmbench_is(problem, "A", "real"))
    return "has zoh and real A only";
  if (!ssmbench_is(problem, "B", "variable") || !ssmbench_is(problem, "C", "variable"))
    return "has variable B and C only";
  return nullptr;
}

SSMBENCH_EXPORT int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  const int64_t rows = ssmbench_integer(problem, "batch") * ssmbench_integer(problem, "dim");
  const int64_t seqlen = ssmbench_integer(problem, "seqlen");
  const int64_t dstate = ssmbench_integer(problem, "dstate");
  const Mistake mistake = kMutants[index].mistake;
  if (mistake == Mistake::nondeterministic_sum) return 4 * rows * seqlen;
  const int64_t results = mistake == Mistake::result_in_workspace ? rows * (seqlen + dstate) + 1 : 0;
  return 4 * (floats_of_states(rows, dstate) + results);
}

SSMBENCH_EXPORT const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem,
                                                 void* workspace, void** handle) {
  *handle = new Arguments(arguments_of(problem, kMutants[index].mistake, static_cast<float*>(workspace)));
  return nullptr;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_launch(void* handle, void* stream) {
  launch(*static_cast<const Arguments*>(handle), static_cast<cudaStream_t>(stream));
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

SSMBENCH_EXPORT void ssmbench_plugin_release(void* handle) {
  delete static_cast<Arguments*>(handle);
}
