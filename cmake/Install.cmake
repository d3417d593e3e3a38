# What `cmake --install` puts where. The manual page and the completions are what the program prints of itself.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(texts ${PROJECT_BINARY_DIR}/texts)
file(MAKE_DIRECTORY ${texts})
add_custom_command(OUTPUT ${texts}/ssmbench.1 ${texts}/ssmbench.bash ${texts}/_ssmbench ${texts}/ssmbench.fish
  COMMAND ssmbench man > ${texts}/ssmbench.1
  COMMAND ssmbench completion bash > ${texts}/ssmbench.bash
  COMMAND ssmbench completion zsh > ${texts}/_ssmbench
  COMMAND ssmbench completion fish > ${texts}/ssmbench.fish
  DEPENDS ssmbench COMMENT "Writing the manual page and the completions" VERBATIM)
add_custom_target(ssmbench_texts ALL DEPENDS ${texts}/ssmbench.1)

install(TARGETS ssmbench RUNTIME_DEPENDENCY_SET ssmbench_libraries)
install(FILES ${texts}/ssmbench.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${texts}/ssmbench.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ssmbench)
install(FILES ${texts}/_ssmbench DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${texts}/ssmbench.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/ssmbench FILES_MATCHING PATTERN "*.json")
install(TARGETS ssmbench_python LIBRARY DESTINATION lib/ssmbench)
install(DIRECTORY bindings/python/ssmbench DESTINATION lib/ssmbench/python FILES_MATCHING PATTERN "*.py" PATTERN "*.cc")
install(FILES plugins/ssmbench_plugin.h DESTINATION lib/ssmbench/python/ssmbench)  # for the handlers of JAX
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# For plugins: find_package(ssmbench), then target_link_libraries(... ssmbench::plugin).
add_library(ssmbench_plugin INTERFACE)
add_library(ssmbench::plugin ALIAS ssmbench_plugin)
set_target_properties(ssmbench_plugin PROPERTIES EXPORT_NAME plugin)
target_include_directories(ssmbench_plugin INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/plugins> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(FILES plugins/ssmbench_plugin.h TYPE INCLUDE)
set(package ${CMAKE_INSTALL_DATADIR}/cmake/ssmbench)
install(TARGETS ssmbench_plugin EXPORT ssmbench)
# For programs that call kernels: ssmbench::kernels, or `pkg-config --libs ssmbench_kernels`.
if(SSMBENCH_KERNELS_LIBRARY)
  target_link_libraries(ssmbench_kernels_library INTERFACE ssmbench_plugin)
  install(TARGETS ssmbench_kernels_library EXPORT ssmbench)
  file(RELATIVE_PATH relative_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(cmake/ssmbench_kernels.pc.in ssmbench_kernels.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/ssmbench_kernels.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
install(EXPORT ssmbench NAMESPACE ssmbench:: FILE ssmbenchConfig.cmake DESTINATION ${package})
write_basic_package_version_file(ssmbenchConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ssmbenchConfigVersion.cmake DESTINATION ${package})

# A machine without compilers has neither OpenMP's library nor that of C++, nor Highway's and fmt's. They go to a folder of
# the program's own; libc must be that of the machine, and what belongs to a driver is looked for when it is needed.
if(SSMBENCH_BUNDLE_LIBRARIES)
  set_target_properties(ssmbench PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/ssmbench")
  # RPATH, and not RUNPATH, holds for what the libraries themselves need.
  target_link_options(ssmbench PRIVATE LINKER:--as-needed LINKER:--disable-new-dtags)
  install(RUNTIME_DEPENDENCY_SET ssmbench_libraries
    PRE_EXCLUDE_REGEXES "^(libc|libm|libdl|librt|libpthread)\\.so" "^ld-linux" "^libcuda\\.so" "^libnvidia-"
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/ssmbench)
endif()
