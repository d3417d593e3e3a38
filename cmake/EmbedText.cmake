# embed_text(<target> <symbol> <file>...): compiles the files' text, one after the other, into the target as
# `const char* const ssmbench::<symbol>`. A change of a file rebuilds it.
function(embed_text target symbol)
  set(text "")
  foreach(file IN LISTS ARGN)
    get_filename_component(file ${file} ABSOLUTE)
    file(READ ${file} more)
    string(APPEND text "${more}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
"namespace ssmbench {
extern const char* const @symbol@;
const char* const @symbol@ = R\"embedded(@text@)embedded\";
}  // namespace ssmbench
")
  target_sources(${target} PRIVATE ${source})
endfunction()
