"""Kernels for tests of plugins in Python: one that is right, one each that goes wrong in its own way."""

import ctypes
import os
import sys

import numpy
import ssmbench

cpu = dict(device="cpu", deterministic=True)


def scan(a, b, out):
    h = numpy.zeros_like(a[:, 0])
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        out[:, t] = h


@ssmbench.kernel("linear_scan", name="np-right", **cpu)
def right(a, b, out):
    """step by step
    and more"""
    scan(a, b, out)
    print("to stderr, since stdout is for results")


@ssmbench.kernel("linear_scan", name="np-returns", returns="out", **cpu)
def returns(a, b):
    out = numpy.empty_like(a)
    scan(a, b, out)
    return out


@ssmbench.kernel("linear_scan", name="np-returns-some", returns=("out", "of_other_cases"), **cpu)
def returns_some(tensors):
    return {"out": returns(tensors["a"], tensors["b"])}


@ssmbench.kernel("linear_scan", name="np-wrong-shape", returns=("out",), **cpu)
def wrong_shape(a, b):
    return a[:, :1]


@ssmbench.kernel("linear_scan", name="np-raises", **cpu)
def raises(a):
    raise ValueError(f"no kernel\n  for {a.shape}")


@ssmbench.kernel("linear_scan", name="np-loads-library", **cpu)
def loads_library(a, b, out):
    # As `import` loads extension modules.
    library = ctypes.CDLL(os.environ["FREES_MEMORY_LIBRARY"], mode=sys.getdlopenflags())
    assert library.frees_memory() == 1
    scan(a, b, out)


@ssmbench.kernel("linear_scan", name="np-exits", **cpu)
def exits():
    sys.exit(3)


@ssmbench.kernel("linear_scan", name="np-leaves", **cpu)
def leaves():
    os._exit(3)


@ssmbench.kernel("linear_scan", name="np-writes-input", **cpu)
def writes_input(a):
    a[...] = 0


@ssmbench.kernel("linear_scan", name="np-no-such-tensor", **cpu)
def no_such_tensor(a, c):
    pass


@ssmbench.kernel("linear_scan", name="np-unsupported", unsupported=lambda case: f"not {case.seqlen} steps", **cpu)
def unsupported():
    pass


@ssmbench.kernel("linear_scan", name="np-asks-wrongly", unsupported=lambda case: case.heads, **cpu)
def asks_wrongly():
    pass


def prepare(case, dim, z=7):
    return case.shapes["out"], case.op, case.dtype, dim, z


@ssmbench.kernel("linear_scan", name="np-prepared", prepare=prepare, **cpu)
def prepared(a, b, out, prepared):
    assert prepared == (out.shape, "linear_scan", "f32", out.shape[2], 7)
    assert out.flags.writeable and not a.flags.writeable
    scan(a, b, out)


@ssmbench.kernel("ssd_chunk_scan_fwd", name="np-options", **cpu)
def options(x, D, z, dt_softplus, dt_limit, chunk_size, seq_idx=1, dt_bias=2):
    raise Exception(f"{D} {z} {dt_softplus} {dt_limit} {chunk_size} {seq_idx} {dt_bias} {x.strides}")
