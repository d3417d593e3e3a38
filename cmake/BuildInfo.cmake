# ssmbench_add_build_info(TARGET): what src/model/build_info.cpp, one of the target's sources, tells about the build.
function(ssmbench_add_build_info target)
  set(cuda none)
  set(architectures none)
  if(SSMBENCH_HAS_CUDA)
    set(cuda ${CMAKE_CUDA_COMPILER_VERSION})
    string(REPLACE ";" "\\;" architectures "${CMAKE_CUDA_ARCHITECTURES}")
  endif()
  set(definitions
    "SSMBENCH_VERSION=\"${PROJECT_VERSION}\""
    "SSMBENCH_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\""
    "SSMBENCH_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\""
    "SSMBENCH_CUDA_VERSION=\"${cuda}\""
    "SSMBENCH_CUDA_ARCHITECTURES=\"${architectures}\"")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/model/build_info.cpp PROPERTIES
    COMPILE_DEFINITIONS "${definitions}" INCLUDE_DIRECTORIES ${PROJECT_BINARY_DIR}/generated)

  set(header ${PROJECT_BINARY_DIR}/generated/git_revision.h)
  set(write_revision ${CMAKE_COMMAND} -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D HEADER=${header}
    -P ${PROJECT_SOURCE_DIR}/cmake/GitRevision.cmake)
  execute_process(COMMAND ${write_revision})  # for tools that read the sources before the first build
  add_custom_target(ssmbench_git_revision COMMAND ${write_revision} BYPRODUCTS ${header}
    COMMENT "Looking up the git revision" VERBATIM)
  add_dependencies(${target} ssmbench_git_revision)
endfunction()
