"""Prints what a repeated call of each function takes of the host, in microseconds, the kernel left out: host_time.py.

PYTHONPATH is bindings/python. The shortest of many short bursts: what else the machine does is not in it.
"""

import timeit

import torch
import torch_test
from ssmbench import torch as kernels

OPERATIONS = {
    "selective_scan": kernels.scan_forward,
    "mamba_chunk_scan": kernels.ssd_forward,
    "selective_state_update": kernels.step,
    "causal_conv1d": kernels.conv_forward,
    "causal_conv1d_update": kernels.conv_step,
}

torch.set_num_threads(1)
for name, (function, arguments) in torch_test.examples().items():
    function(**arguments)
    (plan,) = OPERATIONS[name].plans.values()
    plan.launch_function = lambda handle, stream: None
    seconds = min(timeit.repeat(lambda: function(**arguments), number=20, repeat=500)) / 20
    print(f"{name:24} {seconds * 1e6:5.1f}")
