# ssmbench_compile_quickly(<target> <header>...): for code that runs once. Optimized less, which halves the time that
# CLI11 and JSON take; and the headers, with those of the standard library and fmt, are parsed once for all sources.
# Sources include what they use all the same: clang-tidy reads them without this.
function(ssmbench_compile_quickly target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1> $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O0>)
  target_precompile_headers(${target} PRIVATE ${ARGN}
    <algorithm> <array> <cmath> <cstdint> <filesystem> <fmt/format.h> <fmt/ranges.h> <fstream> <functional> <map> <memory>
    <numeric> <optional> <set> <span> <sstream> <string> <string_view> <utility> <variant> <vector>)
endfunction()
