"""What copying a kernel's results to ssmbench's memory takes, which is in the times of kernels that return them.

Where SSMBENCH_COPY_TIMES names a file, each case adds a line to it: the operation, its axes, and the median of copies
with a flushed L2. scripts/one_run_table.py subtracts it.
"""

import functools
import json
import os


@functools.cache
def seen():
    return set()


def note(case, results):
    """Times copies of tensors like `results`, once for each case."""
    path = os.environ.get("SSMBENCH_COPY_TIMES")
    axes = {name: value for name, value in case.axes.items() if not isinstance(value, (list, tuple))}  # sizes, options
    key = json.dumps([case.op, axes], sort_keys=True)
    if not path or not results or key in seen():
        return
    seen().add(key)
    import torch_tensors

    pairs = [(result.new_empty(result.shape), result.new_zeros(result.shape)) for result in results]

    def copy():
        for to, values in pairs:
            to.copy_(values)

    device = results[0].device
    with torch_tensors.own_stream(device):
        timing = torch_tensors.timing_of(copy, device, graph=True)
    with open(path, "a", encoding="utf-8") as file:
        line = {"record": "copy", "op": case.op, "axes": axes, "cold_ms": timing["cold_median_ms"]}
        file.write(json.dumps(line) + "\n")
