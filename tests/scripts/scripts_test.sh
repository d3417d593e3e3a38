#!/usr/bin/env bash
# Tests scripts/ssmbench and scripts/test in a copy of their folder, with stand-ins for the programs that install,
# configure and build, and the checks of scripts/check that are scripts: fast, offline, and nothing here touches the real
# build folder.
set -euo pipefail
scripts=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../scripts
sandbox=$(mktemp -d)
trap 'rm -rf "$sandbox"' EXIT
export sandbox
export PATH=$sandbox/bin:/usr/bin:/bin
unset SSMBENCH_CUDA_ARCHITECTURES SSMBENCH_TEST_VENV CUDA_HOME CUDACXX CXX

stand_in() { # NAME, body on stdin
  { printf '#!/bin/bash\n' && cat; } >"$sandbox/bin/$1"
  chmod +x "$sandbox/bin/$1"
}

# shellcheck disable=SC2016 # the stand-ins expand their own variables
# A machine with everything installed; files in the sandbox (absent, configure_fails, build_fails, uid) change that.
new_sandbox() {
  rm -rf "${sandbox:?}"/*
  mkdir -p "$sandbox/bin" "$sandbox/elsewhere" "$sandbox/tree"
  cp -r "$scripts" "$sandbox/tree/scripts"
  export XDG_CACHE_HOME=$sandbox/cache
  touch "$sandbox/absent" "$sandbox/calls"
  echo 0 >"$sandbox/uid"
  stand_in id <<<'cat "$sandbox/uid"'
  stand_in sudo <<<'echo "sudo: a password is required" >&2; exit 1'
  stand_in apt-get <<<'echo "apt-get $*" >>"$sandbox/calls"; echo "apt-get talks"'
  stand_in ctest <<<'echo "ctest ${*: -2}"; exit 8'
  # Has what the file `modules` names; pip installs nothing where there is no network.
  stand_in python3 <<'STAND_IN'
case $1 in
  -c) for module in "${@:3}"; do grep -qxF "$module" "$sandbox/modules" || exit 1; done ;;
  -m) echo "$2 ${3/#$sandbox/}" "${@:4}" >>"$sandbox/calls"
    if [[ $2 == venv ]]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python3"; else [[ ! -e $sandbox/offline ]]; fi ;;
  *) exec /usr/bin/python3 "$@" ;;
esac
STAND_IN
  printf '%s\n' torch jax >"$sandbox/modules"
  stand_in dpkg-query <<'STAND_IN'
for package in "${@:3}"; do grep -qxF "$package" "$sandbox/absent" || echo "installed $package"; done
STAND_IN
  stand_in cmake <<'STAND_IN'
if [[ $1 == --build ]]; then
  echo "build ${*: -1}" >>"$sandbox/calls"
  [[ ! -e $sandbox/build_fails ]] || { echo "main.cpp:3:1: error: expected ';'" && exit 1; }
  echo "[0/2] Re-checking globbed directories..."
  echo "[1/2] Building main.cpp.o"
  exit
fi
echo "configure $*" >>"$sandbox/calls"
[[ ! -e $sandbox/configure_fails ]] || { echo "CMake Error: no fmt" && exit 1; }
echo "-- CUDA: none; CPU-only build"
cd "$sandbox/tree/build" && touch build.ninja
printf '%s\n' "$@" | sed -n 's/^BUILD_TESTING=/BUILD_TESTING:BOOL=/p' >CMakeCache.txt
printf '#!/bin/sh\npwd\nprintf "<%%s>" "$@"\nexit 7\n' >ssmbench && chmod +x ssmbench
STAND_IN
}

# Runs a script from another folder; leaves its output in $out and $err and its exit code in $rc.
run() {
  rc=0
  (cd "$sandbox/elsewhere" && "../tree/scripts/$1" "${@:2}") >"$sandbox/out" 2>"$sandbox/err" </dev/null || rc=$?
  out=$(<"$sandbox/out")
  err=$(<"$sandbox/err")
}

failures=0
expect() { # WHAT EXPECTED ACTUAL
  [[ $2 == "$3" ]] && return
  printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
  failures=$((failures + 1))
}
expect_in() { # WHAT PART WHOLE
  [[ $3 == *"$2"* ]] || expect "$1" "…$2…" "$3"
}
calls() { grep -c "^$1" "$sandbox/calls" || true; }

new_sandbox
run ssmbench run 'a b' --x=1
expect "exit code is the tool's" 7 "$rc"
expect "arguments and folder are the caller's, stdout is the tool's alone" "$sandbox/elsewhere
<run><a b><--x=1>" "$out"
expect "says that it configures, with or without CUDA, and what it builds" "ssmbench: configuring
ssmbench: CUDA: none; CPU-only build
[1/2] Building main.cpp.o" "$err"
expect "installs nothing when nothing is missing" 0 "$(calls apt-get)"
run ssmbench
expect "a second call does not configure" 1 "$(calls configure)"
expect "a second call builds" 2 "$(calls build)"

run test -R model
expect "exit code is ctest's" 8 "$rc"
expect "arguments go to ctest" "ctest -R model" "$out"
expect "tests are configured in" 1 "$(grep -c 'configure .*BUILD_TESTING=ON' "$sandbox/calls")"
expect "nothing is downloaded where Python has what tests need" 0 "$(calls pip)"
run ssmbench
expect "the two commands share one configuration" 2 "$(calls configure)"

new_sandbox
echo torch >"$sandbox/modules"
run test
expect "what tests need beyond that goes to a folder of their own" "venv /cache/ssmbench/test-venv
pip install --quiet --retries 1 --timeout 20 jax h5py" "$(grep -e venv -e pip "$sandbox/calls")"
touch "$sandbox/offline"
run test
expect "the folder is kept" 1 "$(calls venv)"
expect "tests run without a network" 8 "$rc"
expect_in "says what is skipped then" "ssmbench: going on without jax: its tests are skipped" "$err"

new_sandbox
run ssmbench
expect "using the tool needs no Python" 0 "$(calls venv)"

SSMBENCH_CUDA_ARCHITECTURES=80 run ssmbench
expect "architectures go to CMake" 1 "$(grep -c 'configure .*SSMBENCH_CUDA_ARCHITECTURES=80' "$sandbox/calls")"

new_sandbox
printf '%s\n' libfmt-dev g++ >"$sandbox/absent"
run ssmbench
expect_in "says what it installs" ": g++ libfmt-dev" "$err"
expect_in "installs what is missing and no more" "install --no-install-recommends g++ libfmt-dev" \
  "$(tail -n 3 "$sandbox/calls")"
expect "goes on after installing" 7 "$rc"
expect "apt's chatter is kept back" 0 "$(grep -c talks "$sandbox/err" "$sandbox/out" | grep -vc ':0$' || true)"

new_sandbox
echo libfmt-dev >"$sandbox/absent"
echo 1000 >"$sandbox/uid"
run ssmbench
expect "libraries that did not come as packages will do" 7 "$rc"
touch "$sandbox/configure_fails"
rm "$sandbox/tree/build/build.ninja"
run ssmbench
expect "cannot install and cannot configure: exit code" 2 "$rc"
expect "cannot install and cannot configure: stdout" "" "$out"
expect_in "shows CMake's words" "CMake Error: no fmt" "$err"
expect_in "lists what is missing" "
  libfmt-dev
" "$err"
expect_in "names the command that would help" "sudo apt-get install --no-install-recommends libfmt-dev" "$err"

new_sandbox
touch "$sandbox/build_fails"
run ssmbench
expect "a failed build: exit code" 2 "$rc"
expect_in "a failed build: the compiler's words" "main.cpp:3:1: error: expected ';'" "$err"
expect "a failed build: stdout" "" "$out"

new_sandbox
# shellcheck disable=SC2016 # backticks are Markdown
printf '# A page\n\n## What `is` here\n' >"$sandbox/tree/page.md"
# shellcheck disable=SC2016
printf '[a](page.md) [b](page.md#what-is-here) [c](https://x.org/y) `[d](code.md)`\n' >"$sandbox/tree/links.md"
run check_links.py ../tree
expect "links that resolve: exit code" 0 "$rc"
expect "links that resolve: says nothing" "" "$out$err"
printf '[e](missing.md)\n[f\ng](page.md#missing)\n' >>"$sandbox/tree/links.md"
run check_links.py ../tree
expect "links that do not resolve: exit code" 1 "$rc"
expect "links that do not resolve: says where" "links.md:2: missing.md: no such file
links.md:4: page.md#missing: no such heading" "$out"
rm "$sandbox/tree/links.md"
mkdir -p "$sandbox/tree/src/gate"
printf '// As gate/here.cpp says,\nint i;  // and src/gate/gone.h\n' | tee "$sandbox/tree/src/gate/here.cpp" >"$sandbox/tree/there.h"
run check_links.py ../tree
expect "names of files that are not there: exit code" 1 "$rc"
expect "names of files that are not there: says where" "src/gate/here.cpp:2: src/gate/gone.h: no such file
there.h:2: src/gate/gone.h: no such file" "$out"

new_sandbox
cp -r "$scripts/../src" "$scripts/../kernels" "$scripts/../reference" "$sandbox/tree"
run check_layers.py
before=$out
sed -i '1i #include "report/csv.h"' "$sandbox/tree/src/record/result.h"
run check_layers.py
expect "an include that points up: exit code" 1 "$rc"
expect "an include that points up is the one that is new" \
  "src/record/result.h:1: record must not include report, which is above it" \
  "$(grep -vxF "${before:-nothing}" <<<"$out")"
sed -i '1i #include "sweep/plan.h"' "$sandbox/tree/src/gate/judge.cpp"
touch "$sandbox/tree/kernels/new.h"
sed -i '1i #include "kernels/new.h"' "$sandbox/tree/reference/reference.cpp"
run check_layers.py
expect_in "a sibling" "src/gate/judge.cpp:1: gate must not include sweep, which is beside it" "$out"
expect_in "the reference shares nothing with kernels" \
  "reference/reference.cpp:1: reference must not include kernels, which is beside it" "$out"
mkdir "$sandbox/tree/src/shelf" && echo '#include "base/fnv1a.h"' >"$sandbox/tree/src/shelf/new.cpp"
run check_layers.py
expect_in "a folder without a place" "src/shelf/new.cpp:1: shelf is on no step of the ladder" "$out"
rm -r "$sandbox"/tree/{kernels,reference} "$sandbox"/tree/src/{[^bm],bench,main.cpp}*
run check_layers.py
expect "includes that point down: exit code" 0 "$rc"
expect "includes that point down" "" "$out"

new_sandbox
mkdir "$sandbox/elsewhere/code"
cat >"$sandbox/elsewhere/code/kernel.cu" <<'SOURCE'
// A brace in a comment: {
namespace outer {
struct Table {
  const char* text = "{";
  int member() const {
    return 1;
  }
};
template <class T>
__global__ void __launch_bounds__(sizeof(T) * 32)
    long_kernel(const T* from) {
  if (from != nullptr) {
    use(from);
  }
}
}  // namespace outer
SOURCE
run function_length.py 4 code
expect "a long function: exit code" 1 "$rc"
expect "a long function: file, line, name and length; a class and a namespace are none" \
  "code/kernel.cu:11 long_kernel 5" "$out"
run function_length.py 2 code
expect "members count too" "code/kernel.cu:5 member 3
code/kernel.cu:11 long_kernel 5" "$out"
run function_length.py 5 code
expect "functions up to the limit: exit code" 0 "$rc"
expect "functions up to the limit: stdout" "" "$out"

((failures == 0)) || exit 1
echo "all passed"
