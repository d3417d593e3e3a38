"""Kernels in CuPy, for tests."""

import cupy
import ssmbench


def scan(a, b, out):
    out[:, 0] = b[:, 0]
    for t in range(1, a.shape[1]):
        cupy.multiply(a[:, t], out[:, t - 1], out=out[:, t])
        cupy.add(out[:, t], b[:, t], out=out[:, t])


@ssmbench.kernel("linear_scan", name="cupy-right", framework="cupy", deterministic=True)
def right(a, b, out):
    assert isinstance(a, cupy.ndarray) and isinstance(out, cupy.ndarray)
    scan(a, b, out)


@ssmbench.kernel("linear_scan", name="cupy-temporaries", framework="cupy")
def temporaries(a, b, out):
    h = b[:, 0]
    out[:, 0] = h
    for t in range(1, a.shape[1]):
        h = a[:, t] * h + b[:, t]
        out[:, t] = h


@ssmbench.kernel("linear_scan", name="cupy-waits", framework="cupy")
def waits(a, b, out):
    scan(a, b, out)
    assert not cupy.isnan(out.sum()).item()


@ssmbench.kernel("linear_scan", name="cupy-writes-input", framework="cupy")
def writes_input(a, b, out):
    scan(a, b, out)
    a *= 1.5


@ssmbench.kernel("linear_scan", name="cupy-raises", framework="cupy")
def raises(a, b, out):
    cupy.zeros(3).reshape(2, 2)
