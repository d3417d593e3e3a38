include(ProcessorCount)

# ssmbench_share_headers(<target>...): headers of the standard library and fmt are parsed once for all sources of the targets,
# which is half of what a source of usual length takes. The targets have the same compiler options. Sources include what they
# use all the same: clang-tidy reads them without this.
function(ssmbench_share_headers first)
  target_precompile_headers(${first} PRIVATE <algorithm> <array> <cmath> <cstdint> <fmt/format.h> <functional> <map> <memory>
    <numeric> <optional> <set> <span> <string> <string_view> <utility> <variant> <vector>)
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM ${first})
  endforeach()
endfunction()

# ssmbench_compile_quickly(<target>): for code that runs once. Optimized less, which halves the time that CLI11 and JSON take.
# g++ collects garbage from 1 GB on, where it does from 128 MB: a seventh of what JSON takes.
function(ssmbench_compile_quickly target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1> $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O0>
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:CXX>>:--param=ggc-min-heapsize=1000000>)
endfunction()

# ssmbench_precompile(<target> <header>...): these headers too, for a target of its own.
function(ssmbench_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN}
    <algorithm> <array> <cmath> <cstdint> <filesystem> <fmt/format.h> <fmt/ranges.h> <fstream> <functional> <map> <memory>
    <numeric> <optional> <set> <span> <sstream> <string> <string_view> <utility> <variant> <vector>)
endfunction()

# ssmbench_keep_apart(<target> <variable>): sources that include themselves, as Highway's do, stay compilations of their own. Puts all
# others into the variable.
function(ssmbench_keep_apart target variable)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/.*[.]cpp$")
  set(others "")
  foreach(source IN LISTS sources)
    file(STRINGS ${source} includes_itself REGEX "HWY_TARGET_INCLUDE")
    if(includes_itself)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    else()
      list(APPEND others ${source})
    endif()
  endforeach()
  set(${variable} ${others} PARENT_SCOPE)
endfunction()

# ssmbench_compile_simd_together(<variable> <name>): sources that include themselves once for each instruction
# set become one compilation that does so, since Highway's headers take two seconds for each. Sources with
# compile options of their own, set before this call, stay apart. What they define for each instruction set
# shares a namespace, so that names are different. Puts what is to be compiled into the variable.
function(ssmbench_compile_simd_together variable name)
  set(batch "")
  foreach(source IN LISTS ${variable})
    file(STRINGS ${source} includes_itself REGEX "HWY_TARGET_INCLUDE")
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(includes_itself AND NOT options)
      list(APPEND batch ${source})
    endif()
  endforeach()
  set(compilation ${PROJECT_BINARY_DIR}/Unity/${name}_simd.cpp)
  set(target_include "#undef HWY_TARGET_INCLUDE\n#define HWY_TARGET_INCLUDE \"${compilation}\"\n")
  # The sources' own includes of foreach_target.h do nothing then.
  set(text "${target_include}#include <hwy/foreach_target.h>\n")
  foreach(source IN LISTS batch)
    string(APPEND text "#include \"${source}\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${compilation} CONTENT "${text}${target_include}" @ONLY)
  set_source_files_properties(${compilation} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  list(REMOVE_ITEM ${variable} ${batch})
  set(${variable} ${compilation} ${${variable}} PARENT_SCOPE)
endfunction()

# ssmbench_compile_together(<most> <target>...): up to <most> sources of a target become one compilation, since what they include
# takes as long as they do. The names of a target are different: only the compiler looks.
function(ssmbench_compile_together most)
  foreach(target IN LISTS ARGN)
    ssmbench_keep_apart(${target} others)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${most})
  endforeach()
endfunction()

# ssmbench_compile_folders_together(<target>...): up to 8 sources of a folder of src, reference, tests or
# kernels/distributed become one compilation, and all other C++ sources of kernels become one. The names of a
# folder are different; in kernels, names that would clash are in a namespace of their source. scripts/check
# has clang-tidy look at whole folders of src and reference; in the others only the compiler looks.
function(ssmbench_compile_folders_together)
  foreach(target IN LISTS ARGN)
    ssmbench_keep_apart(${target} sources)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    list(FILTER sources INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/(src|reference|tests|kernels)/")
    set(folder_before "")
    foreach(source IN LISTS sources)
      if(source MATCHES "^${PROJECT_SOURCE_DIR}/kernels/" AND NOT source MATCHES "^${PROJECT_SOURCE_DIR}/kernels/distributed/")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP kernels)
        continue()
      endif()
      cmake_path(GET source PARENT_PATH folder)
      if(NOT folder STREQUAL folder_before)
        set(folder_before ${folder})
        set(number 0)
      endif()
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE group)
      string(REPLACE "/" "_" group ${group})
      math(EXPR batch "${number} / 8")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${batch})
      math(EXPR number "${number} + 1")
    endforeach()
  endforeach()
endfunction()

# ssmbench_compile_cuda_together(<variable>): CUDA sources of an operation become one compilation, since nvcc
# parses what they include three times, 3 to 5 seconds. Exceptions:
# - an operation's kernels for Hopper (folders hopper and hopper_bwd) are a compilation of their own, and so
#   are its real.cu and complex.cu;
# - operations of fewer than 8 sources share compilations.
# That is on up to 4 cores, with at most 40 sources each. On more, where the longest compilation decides, they
# have at most 12, operations of fewer than 6 sources share them, and f32.cu, 16_bits.cu and, for Hopper,
# bf16*.cu and tf32*.cu are apart from the others. The machine code is the same. What defines the same name
# twice is an error. Puts what is to be compiled into the variable. (By hand: CMake has unity builds of CUDA
# only since 3.31.)
function(ssmbench_compile_cuda_together variable)
  set(compilations "")
  set(groups "")
  ProcessorCount(cores)
  if(cores GREATER 4)
    set(most 12)
    set(few 6)
  else()
    set(most 40)
    set(few 8)
  endif()
  # Explicit instantiations come after what declares them as extern.
  set(instantiations ${${variable}})
  list(FILTER instantiations INCLUDE REGEX "/(f16|bf16|f32|16_bits)(_[^/]*)?[.]cu$")
  set(others ${${variable}})
  list(REMOVE_ITEM others ${instantiations})
  foreach(source IN LISTS others instantiations)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
    string(REGEX MATCH "^(kernels/[^/]*|src/.*/)" group ${path})
    if(path MATCHES "/hopper(_bwd)?/")
      string(APPEND group /hopper)
      if(cores GREATER 4 AND path MATCHES "/(bf16|tf32)(_[^/]*)?[.]cu$")
        string(APPEND group /${CMAKE_MATCH_1})
      endif()
    elseif(cores GREATER 4 AND path MATCHES "/(f32|16_bits)[.]cu$")
      string(APPEND group /${CMAKE_MATCH_1})
    elseif(path MATCHES "/(real|complex)[.]cu$")
      string(APPEND group /states)
    endif()
    list(APPEND groups ${group})
    list(APPEND sources_of_${group} ${path})
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    list(LENGTH sources_of_${group} sources)
    if(group MATCHES "^kernels/[^/]*$" AND sources LESS ${few})
      list(APPEND sources_of_kernels ${sources_of_${group}})
      set(sources_of_${group} "")
    endif()
  endforeach()
  foreach(group IN LISTS groups ITEMS kernels)
    set(number 0)
    while(sources_of_${group})
      list(SUBLIST sources_of_${group} 0 ${most} batch)
      list(REMOVE_ITEM sources_of_${group} ${batch})
      set(compilation ${PROJECT_SOURCE_DIR}/${batch})
      list(LENGTH batch sources)
      if(sources GREATER 1)
        set(compilation ${PROJECT_BINARY_DIR}/${group}/together_${number}.cu)
        list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
        list(JOIN batch "" text)
        file(CONFIGURE OUTPUT ${compilation} CONTENT "${text}" @ONLY)
      endif()
      list(APPEND compilations ${compilation})
      math(EXPR number "${number} + 1")
    endwhile()
  endforeach()
  set(${variable} ${compilations} PARENT_SCOPE)
endfunction()
