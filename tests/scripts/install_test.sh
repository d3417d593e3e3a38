#!/usr/bin/env bash
# Installs a build (install_test.sh BUILD_FOLDER) to a folder of its own, and uses what is there: the program with an
# installed config, the manual page and the completions, and the header in a plugin's own CMake project.
set -euo pipefail
build=$1
source=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/prefix

fail() { printf 'FAILED: %s\n' "$*" && exit 1; }

cmake --install "$build" --prefix "$prefix" >"$folder/log" || { cat "$folder/log" && fail "cmake --install"; }
cd "$folder"
version=$("$prefix/bin/ssmbench" --version | head -n 1)
"$prefix/bin/ssmbench" validate-config "$prefix/share/ssmbench/configs/small.json" || fail "an installed config"
[[ -s $prefix/share/ssmbench/configs/schema.json ]] || fail "the schema"

grep -qF "$version" "$prefix/share/man/man1/ssmbench.1" || fail "the manual page is of another version"
bash -n "$prefix/share/bash-completion/completions/ssmbench" || fail "completion for bash"
if command -v zsh >/dev/null; then zsh -n "$prefix/share/zsh/site-functions/_ssmbench" || fail "completion for zsh"; fi
if command -v fish >/dev/null; then
  fish --no-execute "$prefix/share/fish/vendor_completions.d/ssmbench.fish" || fail "completion for fish"
fi

mkdir plugin
cp "$source/plugins/example_c/example.c" plugin/
cat >plugin/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(plugin LANGUAGES C)
find_package(ssmbench ${version#ssmbench } REQUIRED)
add_library(plugin MODULE example.c)
target_link_libraries(plugin PRIVATE ssmbench::plugin m)
CMAKE
{ cmake -S plugin -B plugin/build -D CMAKE_PREFIX_PATH="$prefix" && cmake --build plugin/build; } >log 2>&1 ||
  { cat log && fail "a plugin that finds the package"; }
"$prefix/bin/ssmbench" list impls --plugin plugin/build/libplugin.so >listed
"$prefix/bin/ssmbench" list impls >without
(($(wc -l <listed) > $(wc -l <without))) || fail "the plugin adds no implementation"

# Kernels in Python, where there is one that can be embedded.
printf 'import ssmbench\n' >mine.py
"$prefix/bin/ssmbench" list impls --plugin mine.py >listed 2>&1 && fail "a file without kernels"
grep -qE 'decorates no function|python3|libpython' listed || { cat listed && fail "what runs Python files"; }

# The library of all kernels, where it was built: a program that finds it calls it.
library=$(find "$prefix" -name libssmbench_kernels.so)
if [[ -n $library ]]; then
  "$prefix/bin/ssmbench" list impls --plugin "$library" >listed || fail "the library of kernels as a plugin"
  grep -q lib-cpu-scalar listed || { cat listed && fail "the library of kernels"; }
  cat >plugin/main.c <<C
#include "ssmbench_plugin.h"
int main(void) { return ssmbench_plugin_describe()->abi_version == SSMBENCH_PLUGIN_ABI_VERSION ? 0 : 1; }
C
  cat >plugin/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(caller LANGUAGES C)
find_package(ssmbench ${version#ssmbench } REQUIRED)
add_executable(caller main.c)
target_link_libraries(caller PRIVATE ssmbench::kernels)
CMAKE
  { cmake -S plugin -B plugin/caller -D CMAKE_PREFIX_PATH="$prefix" && cmake --build plugin/caller; } >log 2>&1 ||
    { cat log && fail "a program that finds the library"; }
  plugin/caller/caller || fail "a program that calls the library"
  pc=$(dirname "$(find "$prefix" -name ssmbench_kernels.pc)")
  if command -v pkg-config >/dev/null; then
    folder=$(PKG_CONFIG_PATH=$pc pkg-config --variable=libdir ssmbench_kernels)
    [[ -f $folder/libssmbench_kernels.so ]] || fail "the pkg-config file names another folder"
  fi
fi
echo "all passed"
