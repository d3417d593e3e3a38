# Run with `cmake -P` at every build: writes the commit of SOURCE_DIR to HEADER, and only when it has changed, so that
# nothing is recompiled without need.
cmake_policy(VERSION 3.25)
set(revision unknown)
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE_DIR}/.git)  # not the repository of a folder above that the sources were unpacked in
  # safe.directory: the owner of the checkout may be another user, e.g. in a container.
  execute_process(
    COMMAND ${GIT} -c safe.directory=* --no-optional-locks describe --always --exclude=* --abbrev=40 --dirty
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE described RESULT_VARIABLE result
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(result EQUAL 0)
    set(revision ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#pragma once\n#define SSMBENCH_GIT_REVISION \"@revision@\"\n" @ONLY)
