"""Arguments of the functions for tests: small, random, reproducible; and how close results have to be.

SSMBENCH_TEST_DEVICE=cuda makes them on a GPU.
"""

import os
import unittest

import torch
from torch import float32

DEVICE = os.environ.get("SSMBENCH_TEST_DEVICE", "cpu")
# Of the largest element: roundings of inputs and outputs, and sums of some tens of terms.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
if DEVICE == "cuda":  # products in TF32 and 16 bits, and sums like dA that cancel; ssmbench judges these as they deserve
    TOLERANCE = {torch.float32: 2e-2, torch.bfloat16: 3e-2, torch.float16: 2e-2}


class Draw:
    """Reproducible tensors."""

    def __init__(self, seed=0):
        self.generator = torch.Generator(DEVICE).manual_seed(seed)

    def normal(self, *shape, dtype=float32):
        return torch.randn(*shape, generator=self.generator, device=DEVICE).to(dtype)

    def positive(self, *shape, dtype=float32):
        return (torch.rand(*shape, generator=self.generator, device=DEVICE) * 0.4 + 0.05).to(dtype)


def exact(value):
    """A tensor in double precision, with a gradient of its own."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.int32:
        return value
    wide = value.detach().to(torch.complex128 if value.is_complex() else torch.float64)
    return wide.requires_grad_(value.requires_grad)


class Comparing(unittest.TestCase):
    def assert_close(self, name, values, expected, dtype):
        self.assertEqual(tuple(values.shape), tuple(expected.shape), name)
        error = (exact(values) - exact(expected)).abs().max().item()
        limit = TOLERANCE[dtype] * expected.abs().max().clamp(min=1e-3).item()
        self.assertLessEqual(error, limit, name)


def scan_arguments(
    draw, dtype=float32, groups=1, constant=False, options=True, is_complex=False, dim=6, seqlen=19, dstate=5
):
    batch = 2

    def projection():
        if constant:
            return torch.complex(draw.normal(dim, dstate), draw.normal(dim, dstate)) if is_complex else draw.normal(
                dim, dstate
            )
        shape = (batch, dstate, seqlen * (2 if is_complex else 1))
        return draw.normal(*(shape if groups == 1 else (batch, groups, *shape[1:])), dtype=dtype)

    A = -draw.positive(dim, dstate) * 4
    arguments = dict(
        u=draw.normal(batch, dim, seqlen, dtype=dtype),
        delta=draw.positive(batch, dim, seqlen, dtype=dtype),
        A=torch.complex(A, draw.normal(dim, dstate)) if is_complex else A,
        B=projection(),
        C=projection(),
    )
    if options:
        z = draw.normal(batch, dim, seqlen, dtype=dtype)
        arguments |= dict(D=draw.normal(dim), z=z, delta_bias=draw.normal(dim))
    return arguments


def ssd_arguments(draw, dtype=float32, groups=1, options=True, batch=2, seqlen=70):
    heads, headdim, dstate = 4, 8, 16
    arguments = dict(
        x=draw.normal(batch, seqlen, heads, headdim, dtype=dtype),
        dt=draw.positive(batch, seqlen, heads, dtype=dtype),
        A=-draw.positive(heads) * 4,
        B=draw.normal(batch, seqlen, groups, dstate, dtype=dtype),
        C=draw.normal(batch, seqlen, groups, dstate, dtype=dtype),
    )
    if options:
        arguments |= dict(
            D=draw.normal(heads),
            z=draw.normal(batch, seqlen, heads, headdim, dtype=dtype),
            dt_bias=draw.normal(heads),
            initial_states=draw.normal(batch, heads, headdim, dstate),
        )
    return arguments
