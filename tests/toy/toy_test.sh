#!/usr/bin/env bash
# An operation that lives in one folder passes through every part of the program: PROGRAM is ssmbench with that
# operation linked in, PLUGIN computes it too.
set -euo pipefail
program=$1
plugin=$2
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
sandbox=$(mktemp -d)
trap 'rm -rf "$sandbox"' EXIT
export XDG_CACHE_HOME=$sandbox/cache
cd "$sandbox"

fail() {
  printf 'FAILED: %s\n' "$1" >&2
  [[ ! -f out ]] || cat out >&2
  exit 1
}

# expect CODE COMMAND...: its exit code; what it prints is in `out`.
expect() {
  local code=$1 status=0
  shift
  "$@" >out 2>&1 || status=$?
  ((status == code)) || fail "'${*##*/}' ended with $status, not $code"
}

shows() { grep -qF -- "$1" out || fail "no '$1' in the output"; }
lacks() { ! grep -qF -- "$1" out || fail "'$1' in the output"; }

toy=("$program")
run=("$program" run "$here/toy.json" --device cpu --runs 3)

expect 0 "${toy[@]}" list ops && shows "running_sum" && shows "sums of all steps so far"
expect 0 "${toy[@]}" list impls && shows "cpu-toy"
expect 0 "${toy[@]}" schema && shows '"running_sum"' && shows '"lanes"'
expect 0 "${toy[@]}" validate-config "$here/toy.json"
sed 's/"lanes": 5/"lanes": 65/' "$here/toy.json" >wide.json
expect 2 "${toy[@]}" validate-config wide.json && shows "lanes are over the limit of 64"
expect 0 "${toy[@]}" list cases "$here/toy.json" && shows "running_sum-f32-b2-l3-c5-gain-mamba-native-s0" && shows "tile16"

expect 0 "${run[@]}" --plugin "$plugin" --impl 'cpu-[tr]*' --json run.jsonl --csv run.csv --junit run.xml --markdown run.md
shows "cpu-toy" && shows "cpu-right" && lacks "fail"
grep -qE '"sequences": ?2' run.jsonl || fail "the record lacks the shape"
grep -q '^id,.*lanes' run.csv || fail "no column of lanes"
expect 0 "${run[@]}" --impl cpu-toy --json toy.jsonl --dump run.h5
expect 1 "${run[@]}" --plugin "$plugin" --impl cpu-no-gain --json wrong.jsonl --dump wrong.h5
shows "sums"

# Long sums warn, once; --quick takes the shortest.
expect 0 "${run[@]}" --set steps=1000 --json long.jsonl && shows "sums of a thousand steps are long"
expect 0 "${run[@]}" --quick --list && shows "b1-l3" && lacks "l40"

expect 0 "${toy[@]}" check run.h5 && shows "running_sum"
expect 1 "${toy[@]}" check wrong.h5 && shows "gain is not applied"
expect 0 "${toy[@]}" dump "$here/toy.json" -o inputs.h5
expect 0 "${toy[@]}" compare run.h5 run.h5
expect 1 "${toy[@]}" compare run.h5 wrong.h5
expect 0 "${toy[@]}" report run.jsonl -o page.html
grep -qF running_sum page.html || fail "the page lacks it"
expect 0 "${toy[@]}" gate run.jsonl run.jsonl
printf 'the toy operation passed\n'
