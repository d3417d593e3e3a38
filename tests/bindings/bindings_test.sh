#!/usr/bin/env bash
# Runs the tests of the Python package with a framework: bindings_test.sh torch|jax LIBRARY SSMBENCH, LIBRARY being
# libssmbench_kernels.so and SSMBENCH the program; on the GPU where SSMBENCH_TEST_DEVICE is cuda. Skipped (77) where no
# Python has the framework, and PyTorch, which computes what is right: python3, or that of $SSMBENCH_TEST_VENV, which
# scripts/test makes.
set -euo pipefail
framework=$1
export SSMBENCH_KERNELS_LIBRARY=$2 SSMBENCH=$3
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
export PYTHONPATH=$here/../../bindings/python PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=1 JAX_PLATFORMS=${SSMBENCH_TEST_DEVICE:-cpu}
for python in python3 "${SSMBENCH_TEST_VENV:-/nowhere}/bin/python3"; do
  if "$python" -c "import sys, torch, $framework; sys.exit(sys.version_info < (3, 10))" 2>/dev/null; then
    exec "$python" "$here/${framework}_test.py"
  fi
done
names=torch
[[ $framework == torch ]] || names+=" and $framework"
echo "skipped: no python3 (3.10 or later) has $names"
exit 77
