#!/usr/bin/env bash
# Runs exporters_test.py with the first python3 that has h5py; exits with 77, for skipped, when there is none.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
for python in python3 /usr/bin/python3; do
  if "$python" -c 'import h5py' 2>/dev/null; then exec "$python" -B "$here/exporters_test.py" "$@"; fi
done
echo "skipped: no python3 with h5py"
exit 77
