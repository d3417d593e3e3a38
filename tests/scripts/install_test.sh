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
version=$("$prefix/bin/ssmbench" --version)
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
echo "all passed"
