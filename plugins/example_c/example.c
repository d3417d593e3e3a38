/* A plugin in plain C: Mamba-1's selective scan, forward, in f32 on one thread. It has method zoh and real A,
 * and B and C that vary in time; any layout, since it goes by strides; every optional tensor. */

#include <math.h>

#include "ssmbench_plugin.h"

static const ssmbench_implementation implementations[] = {{
    .name = "cpu-example-c",
    .op = "selective_scan_fwd",
    .summary = "the loop that the definition describes, as a plugin",
    .device = SSMBENCH_CPU,
    .deterministic = 1,
}};

const ssmbench_plugin* ssmbench_plugin_describe(void) {
  static const ssmbench_plugin plugin = {SSMBENCH_PLUGIN_ABI_VERSION, 1, implementations, 0};
  return &plugin;
}

const char* ssmbench_plugin_unsupported(int32_t index, const ssmbench_problem* problem) {
  (void)index;
  if (problem->dtype != SSMBENCH_F32) return "has f32 only";
  if (!ssmbench_is(problem, "method", "zoh")) return "has method zoh only";
  if (!ssmbench_is(problem, "A", "real")) return "has real A only";
  if (ssmbench_find(problem, "cu_seqlens") != NULL) return "has one sequence a batch";
  if (ssmbench_find(problem, "x") != NULL) return "leaves no states on the way";
  if (!ssmbench_is(problem, "B", "variable") || !ssmbench_is(problem, "C", "variable"))
    return "has variable B and C only";
  return NULL;
}

int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  (void)index;
  (void)problem;
  return 0;
}

/* The element of a tensor with up to four axes. */
static float* at(const ssmbench_tensor* t, int64_t i, int64_t j, int64_t k, int64_t l) {
  const int64_t index[4] = {i, j, k, l};
  float* element = t->data;
  for (int axis = 0; axis < t->rank; ++axis) element += index[axis] * t->strides[axis];
  return element;
}

/* The problem stays valid until it is released, and is all that a launch needs. */
const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem, void* workspace,
                                 void** handle) {
  (void)index;
  (void)workspace;
  *handle = (void*)problem;
  return NULL;
}

void ssmbench_plugin_release(void* handle) {
  (void)handle;
}

const char* ssmbench_plugin_launch(void* handle, void* stream) {
  (void)stream;
  const ssmbench_problem* problem = handle;
  const int64_t dim = ssmbench_integer(problem, "dim");
  const int64_t dstate = ssmbench_integer(problem, "dstate");
  const int64_t channels_per_group = dim / ssmbench_integer(problem, "groups");
  const int softplus = ssmbench_integer(problem, "delta_softplus") != 0;
  const ssmbench_tensor* u = ssmbench_find(problem, "u");
  const ssmbench_tensor* delta = ssmbench_find(problem, "delta");
  const ssmbench_tensor* A = ssmbench_find(problem, "A");
  const ssmbench_tensor* B = ssmbench_find(problem, "B");
  const ssmbench_tensor* C = ssmbench_find(problem, "C");
  const ssmbench_tensor* z = ssmbench_find(problem, "z"); /* this and the next may be absent */
  const float* D = ssmbench_data(problem, "D");
  const float* bias = ssmbench_data(problem, "delta_bias");
  const ssmbench_tensor* initial = ssmbench_find(problem, "initial_state");
  const ssmbench_tensor* out = ssmbench_find(problem, "out");
  const ssmbench_tensor* last = ssmbench_find(problem, "last_state");

  for (int64_t b = 0; b < ssmbench_integer(problem, "batch"); ++b)
    for (int64_t d = 0; d < dim; ++d) {
      const int64_t group = d / channels_per_group;
      float state[256]; /* the operation's limit of dstate */
      for (int64_t n = 0; n < dstate; ++n) state[n] = initial != NULL ? *at(initial, b, d, n, 0) : 0;
      for (int64_t t = 0; t < ssmbench_integer(problem, "seqlen"); ++t) {
        const float x = *at(u, b, d, t, 0);
        float step = *at(delta, b, d, t, 0) + (bias != NULL ? bias[d] : 0);
        if (softplus) step = step > 20 ? step : log1pf(expf(step));
        float y = 0;
        for (int64_t n = 0; n < dstate; ++n) {
          state[n] = expf(step * *at(A, d, n, 0, 0)) * state[n] + step * *at(B, b, group, n, t) * x;
          y += *at(C, b, group, n, t) * state[n];
        }
        if (D != NULL) y += D[d] * x;
        if (z != NULL) y *= *at(z, b, d, t, 0) / (1 + expf(-*at(z, b, d, t, 0)));
        *at(out, b, d, t, 0) = y;
      }
      for (int64_t n = 0; n < dstate; ++n) *at(last, b, d, n, 0) = state[n];
    }
  return NULL;
}
