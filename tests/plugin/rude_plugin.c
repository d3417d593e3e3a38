/* A plugin for tests of what one may do to the process that loads it. When it is loaded and whenever it is
 * called it changes the floating-point environment, as -ffast-math does. At exit it does what the
 * environment variable SSMBENCH_RUDE_PLUGIN says. The first of its implementations fails, the second claims
 * bf16 arithmetic and is 0.2% off. */

#include <fenv.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "ssmbench_plugin.h"

static void change_floating_point(void) {
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() | 0x8040); /* subnormals are zero, read or written */
#endif
  fesetround(FE_UPWARD);
}

__attribute__((constructor)) static void at_load(void) {
  change_floating_point();
}

__attribute__((destructor)) static void at_exit(void) {
  const char* asked = getenv("SSMBENCH_RUDE_PLUGIN");
  if (asked == NULL) return;
  if (strcmp(asked, "exit") == 0) _exit(0);
  while (strcmp(asked, "hang") == 0) pause();
}

static const ssmbench_implementation implementations[] = {
    {.name = "rude-fails", .op = "linear_scan", .summary = "fails", .deterministic = 1},
    {.name = "rude-loose",
     .op = "linear_scan",
     .summary = "0.2% off",
     .deterministic = 1,
     .math = {SSMBENCH_MATH_BF16, SSMBENCH_MATH_BF16, SSMBENCH_MATH_BF16}}};

const ssmbench_plugin* ssmbench_plugin_describe(void) {
  static const ssmbench_plugin plugin = {SSMBENCH_PLUGIN_ABI_VERSION, 2, implementations, 0};
  change_floating_point();
  return &plugin;
}

const char* ssmbench_plugin_unsupported(int32_t index, const ssmbench_problem* problem) {
  (void)index;
  change_floating_point();
  return problem->dtype == SSMBENCH_F32 ? NULL : "has f32 only";
}

int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  (void)index;
  (void)problem;
  change_floating_point();
  return 0;
}

struct bound {
  const ssmbench_problem* problem;
  int32_t index;
};

const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem, void* workspace,
                                 void** handle) {
  (void)workspace;
  struct bound* mine = malloc(sizeof *mine);
  if (mine == NULL) return "out of memory";
  mine->problem = problem;
  mine->index = index;
  *handle = mine;
  change_floating_point();
  return NULL;
}

void ssmbench_plugin_release(void* handle) {
  free(handle);
  change_floating_point();
}

const char* ssmbench_plugin_launch(void* handle, void* stream) {
  (void)stream;
  const struct bound* mine = handle;
  const ssmbench_problem* problem = mine->problem;
  const float* a = ssmbench_data(problem, "a");
  const float* b = ssmbench_data(problem, "b");
  float* out = ssmbench_data(problem, "out");
  const int64_t seqlen = ssmbench_integer(problem, "seqlen");
  const int64_t dim = ssmbench_integer(problem, "dim");
  for (int64_t d = 0; d < ssmbench_integer(problem, "batch") * dim; ++d) {
    float h = 0;
    for (int64_t t = 0; t < seqlen; ++t) {
      const int64_t i = (d / dim * seqlen + t) * dim + d % dim;
      h = a[i] * h + b[i];
      out[i] = 1.002F * h;
    }
  }
  change_floating_point();
  return mine->index == 0 ? "changed the floating-point environment" : NULL;
}
