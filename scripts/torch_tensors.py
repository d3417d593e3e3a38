"""Tensors of interchange files in PyTorch, and the time of what runs on them."""

import contextlib
import statistics
import time

import numpy
import torch
from interchange import Tensor

TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "c64": torch.complex64,
    "i32": torch.int32,
    "i64": torch.int64,
    "i16": torch.int16,
    "i8": torch.int8,
    "e4m3": torch.float8_e4m3fn,
}
WARMUP, MIN_RUNS, MAX_RUNS, MIN_SECONDS, MAX_SECONDS = 3, 10, 1000, 0.2, 2.0  # ssmbench's own policy


def to_torch(tensor, device):
    values = tensor.values
    if tensor.dtype == "bf16":
        return torch.from_numpy(values.view(numpy.int16).copy()).view(torch.bfloat16).to(device)
    if tensor.dtype == "e4m3":
        return torch.from_numpy(values.copy()).view(torch.float8_e4m3fn).to(device)
    return torch.from_numpy(values.copy()).to(device)


def to_tensor(values, dtype):
    """Rounded to `dtype`, to nearest even."""
    values = values.detach().to(TYPES[dtype]).contiguous().cpu()
    if dtype == "bf16":
        return Tensor(values.view(torch.int16).numpy().view(numpy.uint16), dtype)
    if dtype == "e4m3":
        return Tensor(values.view(torch.uint8).numpy(), dtype)
    return Tensor(values.numpy(), dtype)


def repeat(measure_once):
    samples = []
    start = time.perf_counter()
    while True:
        samples.append(measure_once())
        elapsed = time.perf_counter() - start
        if len(samples) >= MAX_RUNS or elapsed >= MAX_SECONDS:
            return samples
        if len(samples) >= MIN_RUNS and elapsed >= MIN_SECONDS:
            return samples


@contextlib.contextmanager
def own_stream(device):
    """Not the default stream, which no CUDA graph is captured from; a captured backward pass runs where its forward
    pass ran."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.stream(torch.cuda.Stream(device)):
        yield
    torch.cuda.synchronize(device)


def captured(launch):
    """The launch as a CUDA graph, so that the GPU's time holds none of Python's; itself where that cannot be."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            launch()
    except RuntimeError:
        torch.cuda.synchronize()
        return launch, "launches from Python"
    return graph.replay, "replays of a CUDA graph"


def timing_of(launch, device, graph):
    """Medians: "hot", back to back; on a GPU, between two events, also "cold", with the L2 cache flushed before.

    `graph`: as a CUDA graph. On a GPU called within own_stream().
    """
    for _ in range(WARMUP):
        launch()
    if device.type != "cuda":

        def on_cpu():
            start = time.perf_counter()
            launch()
            return (time.perf_counter() - start) * 1000

        samples = repeat(on_cpu)
        return {"hot_median_ms": statistics.median(samples), "runs": len(samples), "how": "calls from Python"}

    launch, how = captured(launch) if graph else (launch, "launches from Python")
    # Writing twice the L2 leaves none of its old lines.
    l2_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20)
    flush = torch.empty(2 * l2_bytes, dtype=torch.uint8, device=device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def on_gpu(cold):
        if cold:
            flush.zero_()
        begin.record()
        launch()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    on_gpu(False)
    hot = repeat(lambda: on_gpu(False))
    cold = repeat(lambda: on_gpu(True))
    return {
        "hot_median_ms": statistics.median(hot),
        "cold_median_ms": statistics.median(cold),
        "runs": len(cold),
        "how": how,
    }
