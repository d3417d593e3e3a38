"""Prints what a repeated call of each function takes of the host, in microseconds, the kernel left out: host_time.py.

PYTHONPATH is bindings/python. The shortest of many short bursts: what else the machine does is not in it.
"""

import timeit

import torch
import torch_test
from ssmbench.torch import _chunk_scan, _convolution, _scan, _state_update

OPERATIONS = {
    "selective_scan": _scan.scan_forward,
    "mamba_chunk_scan": _chunk_scan.ssd_forward,
    "selective_state_update": _state_update.step,
    "causal_conv1d": _convolution.conv_forward,
    "causal_conv1d_update": _convolution.conv_step,
}

torch.set_num_threads(1)
for name, (function, arguments) in torch_test.examples().items():
    function(**arguments)
    (placed,) = OPERATIONS[name].placed.values()
    placed.plan.launch_function = lambda handle, stream: None
    seconds = min(timeit.repeat(lambda: function(**arguments), number=20, repeat=500)) / 20
    print(f"{name:24} {seconds * 1e6:5.1f}")
