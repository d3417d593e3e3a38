"""Kernels in Python for ssmbench: `ssmbench run CONFIG --plugin FILE.py` (plugins/README.md).

ssmbench.torch has ssmbench's kernels for PyTorch (docs/python.md).
"""

from ._kernel import kernel

__all__ = ["kernel"]
