/* Two implementations of running_sum as a plugin: one that is right, and one that forgets the gain. */

#include <stdlib.h>

#include "ssmbench_plugin.h"

static const ssmbench_implementation implementations[] = {
    {.name = "cpu-right",
     .op = "running_sum",
     .summary = "right",
     .device = SSMBENCH_CPU,
     .deterministic = 1},
    {.name = "cpu-no-gain",
     .op = "running_sum",
     .summary = "no gain",
     .device = SSMBENCH_CPU,
     .deterministic = 1},
};

const ssmbench_plugin* ssmbench_plugin_describe(void) {
  static const ssmbench_plugin plugin = {SSMBENCH_PLUGIN_ABI_VERSION, 2, implementations, 0};
  return &plugin;
}

const char* ssmbench_plugin_unsupported(int32_t index, const ssmbench_problem* problem) {
  (void)index;
  return problem->dtype == SSMBENCH_F32 ? NULL : "has f32 only";
}

int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  (void)index;
  (void)problem;
  return 0;
}

struct bound {
  const ssmbench_problem* problem;
  int32_t index;
};

const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem, void* workspace,
                                 void** handle) {
  (void)workspace;
  struct bound* bound = malloc(sizeof *bound);
  if (bound == NULL) return "out of memory";
  bound->problem = problem;
  bound->index = index;
  *handle = bound;
  return NULL;
}

void ssmbench_plugin_release(void* handle) {
  free(handle);
}

const char* ssmbench_plugin_launch(void* handle, void* stream) {
  (void)stream;
  const struct bound* bound = handle;
  const ssmbench_problem* problem = bound->problem;
  const int64_t batch = ssmbench_integer(problem, "sequences");
  const int64_t steps = ssmbench_integer(problem, "steps");
  const int64_t lanes = ssmbench_integer(problem, "lanes");
  const float* x = ssmbench_data(problem, "x");
  const float* gain = bound->index == 0 ? ssmbench_data(problem, "gain") : NULL;
  float* sums = ssmbench_data(problem, "sums");
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t c = 0; c < lanes; ++c) {
      float sum = 0;
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t element = (b * steps + t) * lanes + c;
        sum += x[element];
        sums[element] = gain != NULL ? gain[c] * sum : sum;
      }
    }
  return NULL;
}
