/* A plugin as version 1 of the interface had it, in as much as it is looked at. */

#include <stdint.h>

static const struct {
  int32_t abi_version;
  int32_t implementation_count;
  const void* implementations;
} plugin = {1, 1, &plugin};

const void* ssmbench_plugin_describe(void);
const void* ssmbench_plugin_describe(void) {
  return &plugin;
}
