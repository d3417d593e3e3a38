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
function(ssmbench_compile_quickly target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1> $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O0>)
endfunction()

# ssmbench_precompile(<target> <header>...): these headers too, for a target of its own.
function(ssmbench_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN}
    <algorithm> <array> <cmath> <cstdint> <filesystem> <fmt/format.h> <fmt/ranges.h> <fstream> <functional> <map> <memory>
    <numeric> <optional> <set> <span> <sstream> <string> <string_view> <utility> <variant> <vector>)
endfunction()
