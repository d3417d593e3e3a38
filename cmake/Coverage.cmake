# Counts which lines run; scripts/coverage prints how many.
if(SSMBENCH_COVERAGE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--coverage> $<$<COMPILE_LANGUAGE:CXX>:-fprofile-update=atomic>)
  add_link_options(--coverage)
endif()
