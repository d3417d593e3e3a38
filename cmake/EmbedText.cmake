# embed_text(<target> <file> <symbol>): compiles the file's text into the target as
# `const char* const ssmbench::<symbol>`. A change of the file rebuilds it.
function(embed_text target file symbol)
  file(READ ${file} text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
"namespace ssmbench {
extern const char* const @symbol@;
const char* const @symbol@ = R\"embedded(@text@)embedded\";
}  // namespace ssmbench
")
  target_sources(${target} PRIVATE ${source})
endfunction()
