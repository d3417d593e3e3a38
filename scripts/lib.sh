# shellcheck shell=bash
# What the scripts that build share: installing packages, configuring, building.
# stdout belongs to the tool; everything said here goes to stderr.

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
build=$root/build

# The same names on Debian 12 and Ubuntu 24.04.
build_packages=(cmake g++ libcli11-dev libfmt-dev libhdf5-dev libhwy-dev libjs-chart.js librandom123-dev
  libvalijson-dev ninja-build nlohmann-json3-dev)
# Open MPI for runs that mpirun starts. python3-h5py for what the exporters do with files, and its NumPy and
# libpython for plugins in Python.
test_packages=(catch2 libopenmpi-dev libpython3-dev openmpi-bin python3-h5py python3-venv)
# One version of clang-format everywhere, since versions disagree about layout. libomp-dev is clang's <omp.h>.
# shellcheck disable=SC2034 # used by scripts/check
check_packages=(clang-format-14 clang-tidy libomp-dev shellcheck)
# shellcheck disable=SC2034 # used by scripts/sanitize
sanitize_packages=(clang libomp-dev)
# shellcheck disable=SC2034 # used by scripts/coverage
coverage_packages=(gcovr)

say() { printf 'ssmbench: %s\n' "$*" >&2; }

# Prints those of the packages that are not installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  local package
  for package in "$@"; do
    grep -qxF "installed $package" <<<"$installed" || printf '%s\n' "$package"
  done
}

# Runs apt-get as root. Its output is shown only when it fails.
apt_get() {
  local -a prefix=()
  if (($(id -u) != 0)); then
    prefix=(sudo)
    [[ -t 0 ]] || prefix+=(-n) # nobody there to type a password
  fi
  local log
  if ! log=$("${prefix[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=120 "$@" 2>&1 </dev/null); then
    printf '%s\n' "$log" | tail -n 20 >&2
    return 1
  fi
}

can_install() {
  command -v apt-get >/dev/null || { say "packages are missing, and there is no apt-get" && return 1; }
  (($(id -u) == 0)) || command -v sudo >/dev/null ||
    { say "packages are missing, and installing them needs root or sudo" && return 1; }
}

# install_packages PACKAGE...: installs what is missing. On failure sets `not_installed`, for not_installed_help.
not_installed=()
install_packages() {
  mapfile -t not_installed < <(missing_packages "$@")
  ((${#not_installed[@]} > 0)) || return 0
  can_install || return 1
  say "installing with apt-get, which may take a minute: ${not_installed[*]}"
  # A stale or partly unreachable package list is no reason to give up: the installation decides.
  apt_get update || true
  apt_get install --no-install-recommends "${not_installed[@]}" || return 1
  not_installed=()
}

# Makes $SSMBENCH_TEST_VENV, a folder that is kept from one run to the next, with the packages that only tests of the
# Python package need. Tests are skipped where there is none. Downloads end after 3 minutes in all; pip keeps what it has.
make_test_venv() {
  export SSMBENCH_TEST_VENV=${SSMBENCH_TEST_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ssmbench/test-venv}
  local -r deadline=$((SECONDS + 180))
  if has_modules python3 torch jax; then return; fi # serves as well
  install_in_test_venv jax h5py
  # PyPI's torch is the one for CUDA, of several gigabytes.
  install_in_test_venv torch numpy --index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple
}

# has_modules PYTHON MODULE...
has_modules() {
  "$1" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' "${@:2}" 2>/dev/null
}

# install_in_test_venv PACKAGE PIP_ARGUMENT...: the package has the name of its module.
install_in_test_venv() {
  local -r package=$1 python=$SSMBENCH_TEST_VENV/bin/python3
  if has_modules "$python" "$package"; then return; fi
  say "installing $package to $SSMBENCH_TEST_VENV, which may take minutes"
  if [[ ! -x $python ]]; then python3 -m venv "$SSMBENCH_TEST_VENV" >/dev/null 2>&1 || true; fi
  local seconds=$((deadline - SECONDS))
  timeout "$((seconds > 0 ? seconds : 1))" "$python" -m pip install --quiet --retries 1 --timeout 20 "$@" >/dev/null 2>&1 ||
    say "going on without $package: its tests are skipped"
}

not_installed_help() {
  ((${#not_installed[@]} > 0)) || return 0
  say "these packages are missing and could not be installed from here:"
  printf '  %s\n' "${not_installed[@]}" >&2
  say "install them with: sudo apt-get install --no-install-recommends ${not_installed[*]}"
}

# As many compilers as there are cores and memory (1.5 GiB each) for, within the container's limit.
parallel_jobs() {
  local cores kib limit jobs
  cores=$(nproc)
  kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit / 1024 < kib)); then kib=$((limit / 1024)); fi
  jobs=$((kib / 1572864))
  ((jobs < cores)) || jobs=$cores
  printf '%d\n' $((jobs > 0 ? jobs : 1))
}

# run_ctest ARGUMENT...: as many tests at a time as there are compilers. Each has a thread a core, so that threads outnumber
# cores: those that wait leave theirs to others, and do not spin.
run_ctest() { OMP_WAIT_POLICY=passive ctest --parallel "$(parallel_jobs)" "$@"; }

# What the configuration in the build folder depends on, beyond what CMake itself watches. A toolkit installed
# or upgraded later is one such thing, another GPU the next: CMake looks for them only once.
configuration_key() {
  local nvcc gpus
  gpus=$(cat /proc/driver/nvidia/gpus/*/information 2>/dev/null | sed -n 's/^Model:[[:space:]]*//p' | sort -u || true)
  nvcc=$(command -v "${CUDA_HOME:-}/bin/nvcc" nvcc /usr/local/cuda/bin/nvcc | head -n 1 || true)
  [[ -z $nvcc ]] || nvcc=$(readlink -f "$nvcc")
  printf '%s\n' "$root" "CXX=${CXX:-}" "CUDACXX=${CUDACXX:-}" "nvcc=$nvcc" "gpus=$gpus" \
    "mpi=$(command -v mpicxx || true)" "$@"
}

# configure ON|OFF: with tests or without. Does nothing when the build folder is already configured like that.
configure() {
  local testing=$1
  # Once with tests, always with tests: the two commands share the folder and must not undo each other.
  if grep -qs '^BUILD_TESTING:BOOL=ON' "$build/CMakeCache.txt"; then testing=ON; fi
  local -a packages=("${build_packages[@]}")
  [[ $testing == OFF ]] || packages+=("${test_packages[@]}")
  # Tests of the Python package load the library of kernels.
  local -a options=(-G Ninja -D "BUILD_TESTING=$testing" -D "SSMBENCH_KERNELS_LIBRARY=$testing")
  if [[ -n ${SSMBENCH_CUDA_ARCHITECTURES:-} ]]; then
    options+=(-D "SSMBENCH_CUDA_ARCHITECTURES=$SSMBENCH_CUDA_ARCHITECTURES")
  fi

  local key log
  key=$(configuration_key "${packages[@]}" "${options[@]}")
  if [[ -f $build/build.ninja && $key == "$(cat "$build/.configured" 2>/dev/null)" ]]; then return; fi

  # CMake decides whether everything is there: libraries may come from elsewhere than the package manager.
  install_packages "${packages[@]}" || true
  if ! command -v cmake >/dev/null; then
    say "there is no cmake"
    not_installed_help
    exit 2
  fi
  say "configuring"
  # Like cmake --fresh, but keeps the object files, so that only what the change concerns is compiled again.
  rm -rf "$build/CMakeCache.txt" "$build"/CMakeFiles/[0-9]*
  if ! log=$(cmake -S "$root" -B "$build" "${options[@]}" 2>&1); then
    printf '%s\n' "$log" >&2
    not_installed_help
    say "configuring failed"
    exit 2
  fi
  sed -n 's/^-- \(CUDA: \)/ssmbench: \1/p' <<<"$log" >&2
  printf '%s\n' "$key" >"$build/.configured"
}

# Ninja's progress, without the steps that run every time.
show_progress() {
  grep --line-buffered -v -e '^ninja: no work to do' -e 'Re-checking globbed' -e 'Looking up the git revision' >&2 || true
}

# prepare ON|OFF [TARGET...]: configures, and builds the targets. Exits with 2 when that fails, having shown why.
prepare() {
  local testing=$1
  shift
  if ! mkdir -p "$build" 2>/dev/null || [[ ! -w $build ]]; then
    say "cannot write to $build"
    exit 2
  fi
  # Ninja does not guard a folder against two builds at once.
  exec {lock}>"$build/.lock"
  flock -n "$lock" || { say "waiting for another build" && flock "$lock"; }
  configure "$testing"
  if (($# > 0)) && ! cmake --build "$build" --parallel "$(parallel_jobs)" --target "$@" 2>&1 | show_progress; then
    say "the build failed"
    exit 2
  fi
  exec {lock}>&-
}

# build_preset PRESET ON|OFF TARGET...: configures a preset in its own folder, with tests or without, and builds the targets.
# Exits with 2 when that fails, having shown why.
build_preset() {
  local log
  if ! log=$(cmake --preset "$1" -D "BUILD_TESTING=$2" 2>&1); then
    printf '%s\n' "$log" >&2
    not_installed_help
    exit 2
  fi
  cmake --build --preset "$1" --parallel "$(parallel_jobs)" --target "${@:3}" 2>&1 | show_progress ||
    { say "the build failed" && exit 2; }
}
