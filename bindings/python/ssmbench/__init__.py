"""Kernels in Python for ssmbench: `ssmbench run CONFIG --plugin FILE.py` (plugins/README.md).

ssmbench.torch and ssmbench.jax have ssmbench's kernels for PyTorch and JAX (docs/python.md).
"""

from ._kernel import kernel

__all__ = ["kernel"]
