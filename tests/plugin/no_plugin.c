/* A shared library that is no plugin. */
int ssmbench_no_plugin(void);
int ssmbench_no_plugin(void) {
  return 0;
}
