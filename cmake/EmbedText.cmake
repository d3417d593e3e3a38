# embed_text(<target> <file> <symbol>): compiles the file's text into the target as
# `const char* const ssmbench::<symbol>`. A change of the file rebuilds it. Of a list of files, their texts one after the other.
function(embed_text target files symbol)
  set(text "")
  foreach(file IN LISTS files)
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
