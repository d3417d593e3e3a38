/* As an extension module might: frees what the C library allocated for it. */
#include <stdlib.h>

int frees_memory(void) {
  char* path = realpath("/", NULL);
  const int is_there = path != NULL;
  free(path);
  return is_there;
}
