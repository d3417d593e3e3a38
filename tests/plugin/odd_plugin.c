/* A plugin for tests of what can be wrong with one. The environment variable SSMBENCH_ODD_PLUGIN says what:
 * of its description by a word; its implementations each do one thing wrong when they run, except the first.
 */

#include <stdlib.h>

#include "ssmbench_plugin.h"

enum { GOOD, FAILS, NEGATIVE_WORKSPACE, HUGE_WORKSPACE, NO_REASON, BIND_FAILS, BIND_COMPUTES, COUNT };

static ssmbench_implementation implementations[COUNT];
static ssmbench_plugin plugin;

static int is(const char* word) {
  const char* asked = getenv("SSMBENCH_ODD_PLUGIN");
  return asked != NULL && strcmp(asked, word) == 0;
}

/* "" or a number, that of the first implementation to describe. */
const char* ssmbench_plugin_open(const char* argument) {
  plugin.first_index = atoi(argument);
  if (plugin.first_index < 0 || plugin.first_index >= COUNT) return "there are\nnot so many";
  return NULL;
}

const ssmbench_plugin* ssmbench_plugin_describe(void) {
  static const char* const names[COUNT] = {"odd-good",           "odd-fails",     "odd-negative-workspace",
                                           "odd-huge-workspace", "odd-no-reason", "odd-bind-fails",
                                           "odd-bind-computes"};
  for (int i = 0; i < COUNT; ++i) {
    const ssmbench_implementation plain = {.name = names[i], .op = "linear_scan", .summary = "odd"};
    implementations[i] = plain;
  }
  if (is("abort")) abort();
  while (is("hang")) continue;
  plugin.abi_version = is("abi") ? 999 : SSMBENCH_PLUGIN_ABI_VERSION;
  plugin.implementation_count = is("count") ? 0 : COUNT - plugin.first_index;
  plugin.implementations = is("table") ? NULL : implementations + plugin.first_index;
  if (is("no-name")) implementations[1].name = NULL;
  if (is("name")) implementations[1].name = "odd; rm -rf";
  if (is("taken")) implementations[1].name = "cpu-scalar";
  if (is("twice")) implementations[1].name = implementations[0].name;
  if (is("op")) implementations[1].op = "transformer";
  if (is("device")) implementations[1].device = 7;
  if (is("math")) implementations[1].math[2] = -1;
  if (is("state")) implementations[1].state_dtype[0] = SSMBENCH_I32;
  return is("nothing") ? NULL : &plugin;
}

const char* ssmbench_plugin_unsupported(int32_t index, const ssmbench_problem* problem) {
  if (index == NO_REASON) return "";
  return problem->dtype == SSMBENCH_F32 ? NULL : "has f32 only";
}

int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  (void)problem;
  if (index == NEGATIVE_WORKSPACE) return -5;
  return index == HUGE_WORKSPACE ? INT64_MAX : 0;
}

static void compute(const ssmbench_problem* problem) {
  const float* a = ssmbench_data(problem, "a");
  const float* b = ssmbench_data(problem, "b");
  float* out = ssmbench_data(problem, "out");
  const int64_t seqlen = ssmbench_integer(problem, "seqlen");
  const int64_t dim = ssmbench_integer(problem, "dim");
  for (int64_t i = 0; i < ssmbench_integer(problem, "batch") * seqlen * dim; ++i)
    out[i] = (i / dim % seqlen == 0 ? 0 : a[i] * out[i - dim]) + b[i];
}

struct bound {
  const ssmbench_problem* problem;
  int32_t index;
};

static int released; /* without a bind that succeeded */

const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem, void* workspace,
                                 void** handle) {
  (void)workspace;
  if (*handle != NULL) return "the handle was set already";
  if (index == BIND_FAILS) return released ? "released what was not bound" : "the sun is, too";
  if (index == BIND_COMPUTES) compute(problem);
  struct bound* bound = malloc(sizeof *bound);
  if (bound == NULL) return "out of memory";
  bound->problem = problem;
  bound->index = index;
  *handle = bound;
  return NULL;
}

const char* ssmbench_plugin_launch(void* handle, void* stream) {
  (void)stream;
  const struct bound* bound = handle;
  if (bound->index == FAILS && is("segfault")) *(volatile int*)NULL = 0;
  if (bound->index == FAILS && is("escapes")) return "\x1b[2K\rpass\n";
  if (bound->index == FAILS) return "the moon is in the wrong phase";
  if (bound->index != BIND_COMPUTES) compute(bound->problem);
  return NULL;
}

void ssmbench_plugin_release(void* handle) {
  if (handle == NULL) released = 1;
  free(handle);
}
