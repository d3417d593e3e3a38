# cmake --build --preset coverage --target coverage: runs the tests and prints the line coverage of the program. What a process
# does before it is killed or calls _exit, as workers in tests of crashes do, is not counted.
if(SSMBENCH_COVERAGE)
  find_program(GCOVR gcovr REQUIRED)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--coverage> $<$<COMPILE_LANGUAGE:CXX>:-fprofile-update=atomic>)
  add_link_options(--coverage)
  add_custom_target(coverage
    COMMAND ${CMAKE_CTEST_COMMAND} --parallel 2 --output-on-failure --label-exclude gpu
    COMMAND ${GCOVR} --root ${PROJECT_SOURCE_DIR} --filter "(src|kernels|reference)/" --object-directory ${PROJECT_BINARY_DIR}
      --gcov-ignore-parse-errors --output ${PROJECT_BINARY_DIR}/coverage.txt --print-summary ${PROJECT_BINARY_DIR}
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR} USES_TERMINAL VERBATIM)
endif()
