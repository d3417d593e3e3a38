"""Kernels in PyTorch on the CPU, for tests."""

import ssmbench
import torch


def scan(a, b):
    h, steps = torch.zeros_like(a[:, 0]), []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1)


@ssmbench.kernel("linear_scan", name="torch-right", device="cpu", framework="torch")
def right(a, b, out):
    out.copy_(scan(a.float(), b.float()))


@ssmbench.kernel("linear_scan", name="torch-writes-input", device="cpu", framework="torch")
def writes_input(a, b, out):
    out.copy_(scan(a.float(), b.float()))
    a.mul_(2)
