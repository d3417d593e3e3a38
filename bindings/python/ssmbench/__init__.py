"""Kernels in Python for ssmbench: `ssmbench run CONFIG --plugin FILE.py` (plugins/README.md)."""

from ._kernel import kernel

__all__ = ["kernel"]
