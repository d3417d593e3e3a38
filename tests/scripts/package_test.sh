#!/usr/bin/env bash
# Runs the program of a package (package_test.sh FILE.tar.gz) where there is libc and nothing else: in a root of its own.
set -euo pipefail
package=$(readlink -f "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mkdir "$root/proc" "$root/dev" "$root/tmp" "$root/opt"
tar -xf "$package" -C "$root/opt" --strip-components=1
for library in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0; do
  path=$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ && !path { path = $NF } END { print path }')
  mkdir -p "$root$(dirname "$path")"
  cp -L "$path" "$root$path"
done
mkdir -p "$root/lib64"
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
touch "$root/dev/null"

# A mount of its own for /proc, which the loader finds the program's folder with.
as_root=()
(($(id -u) == 0)) || as_root=(--map-root-user)
unshare "${as_root[@]}" --mount true || { echo "skipped: no right to a root of its own" && exit 77; }
# shellcheck disable=SC2016 # the inner shell expands its own
run() {
  env -i PATH="$PATH" unshare "${as_root[@]}" --mount \
    bash -c 'mount --rbind /proc "$0/proc" && exec chroot "$0" /opt/bin/ssmbench "$@"' "$root" "$@"
}

run --version
run list impls >"$root/listed"
grep -q cpu-simd "$root/listed" || { echo "FAILED: no cpu-simd" && exit 1; }
run run /opt/share/ssmbench/configs/small.json --quick --device cpu --no-timing --no-supervision --out /tmp --junit /tmp/junit.xml |
  tail -n 1
grep -q '<testsuite' "$root/tmp/junit.xml" || { echo "FAILED: no results" && exit 1; }
run dump /opt/share/ssmbench/configs/small.json --quick --no-reference --quiet -o /tmp/dump.h5
[[ -s $root/tmp/dump.h5 ]] || { echo "FAILED: no HDF5 file" && exit 1; }
echo "all passed"
