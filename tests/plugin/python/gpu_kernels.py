"""Kernels in PyTorch on a GPU, for tests."""

import ssmbench
import torch


def scan(a, b):
    h, steps = torch.zeros_like(a[:, 0]), []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1)


@ssmbench.kernel("linear_scan", name="gpu-temporaries", deterministic=True)
def temporaries(a, b, out):
    assert a.is_cuda and out.is_cuda
    out.copy_(scan(a, b))


@ssmbench.kernel("linear_scan", name="gpu-waits")
def waits(a, b, out):
    out.copy_(scan(a, b) + 0 * a.sum().item())


@ssmbench.kernel("linear_scan", name="gpu-out-of-bounds")
def out_of_bounds(a, b, out):
    out.copy_(scan(a, b))
    torch.zeros(1, device="cuda")[torch.full((1,), 1 << 30, device="cuda")].add_(1)
    torch.cuda.synchronize()


@ssmbench.kernel("linear_scan", name="gpu-writes-input")
def writes_input(a, b, out):
    out.copy_(scan(a, b))
    a.mul_(1.5)
