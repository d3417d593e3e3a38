#!/usr/bin/env python3
"""Runs the installed causal-conv1d on the inputs of an interchange file and writes its outputs, and its times, back.

Needs causal_conv1d (Dao-AILab's, with its CUDA extension) and PyTorch with CUDA, h5py and NumPy. Times of gradients
are those of the backward pass alone.
"""

import sys

import causal_conv1d_calls
import interchange
from interchange import Outcome, Rejected, Unsupported


def transposed(case, name):
    """Whether a tensor is stored with its last two axes the other way round than causal_conv1d names them."""
    if case["op"] == "causal_conv1d_update":
        return name == "conv_state" and case["layout"] == "skd"
    other = name == "dout" and case["dout_layout"] == "other"
    return name in ("x", "dx", "out", "dout") and (case["layout"] == "bld") != other


def outputs_of(case, tensors):
    """Outputs by name, still empty, in logical order and the layouts of the inputs."""
    import torch

    empty = {}
    if case["op"] == "causal_conv1d_bwd":
        empty["dx"] = torch.empty_like(tensors["x"])
        for name in ("weight", "bias"):
            if name in tensors:
                empty["d" + name] = torch.empty_like(tensors[name], dtype=torch.float32)
        if "initial_states" in tensors:
            empty["dinitial_states"] = torch.empty_like(tensors["initial_states"])
        return empty
    empty["out"] = torch.empty_like(tensors["x"])
    if case["op"] == "causal_conv1d_fwd" and case["layout"] == "bld" and "seq_idx" not in tensors:
        x = tensors["x"]
        empty["final_states"] = x.new_empty(*x.shape[:2], tensors["weight"].shape[1] - 1)
    return empty


def compute_on(device):
    """What computes a case there."""
    import torch_tensors

    def compute(case, timed):
        if case["op"] not in causal_conv1d_calls.OPERATIONS:
            raise Unsupported(f"causal_conv1d has no {case['op']}")
        why_not, call = causal_conv1d_calls.OPERATIONS[case["op"]]
        if reason := why_not(case, {name: tensor.values.shape for name, tensor in case.inputs.items()}):
            raise Unsupported(reason)
        if "destination" in case.inputs:
            source, destination = (case.inputs[name].values for name in ("source", "destination"))
            if (destination != source).any():
                raise Unsupported(causal_conv1d_calls.STORES_IN_PLACE)
        with torch_tensors.own_stream(device):
            tensors = {}
            for name, tensor in case.inputs.items():
                values = torch_tensors.to_torch(tensor, device)
                tensors[name] = values.transpose(1, 2) if transposed(case, name) else values
            outputs = outputs_of(case, tensors)
            launch = call(case, tensors | outputs)
            launch()
            if "conv_state" in tensors:  # before timing moves it on
                outputs["conv_state"] = tensors["conv_state"].clone()
            timing = torch_tensors.timing_of(launch, device, graph=True) if timed else {}
        stored = {}
        for name, values in outputs.items():
            in_file = values.transpose(1, 2) if transposed(case, name) else values
            dtype = "f32" if name in ("dweight", "dbias") else case["dtype"]
            stored[name] = torch_tensors.to_tensor(in_file, dtype)
        return Outcome(stored, "f32", timing=timing)

    return compute


def make(options):
    try:
        import causal_conv1d
        import torch
        import torch_tensors  # noqa: F401
    except ImportError as error:
        raise Rejected(f"causal_conv1d cannot be used: {interchange.one_line(error)}") from None
    if not torch.cuda.is_available():
        raise Rejected("causal_conv1d needs a CUDA device, and PyTorch sees none")
    device = torch.device("cuda", torch.cuda.current_device())
    producer = f"causal_conv1d {causal_conv1d.__version__} (PyTorch {torch.__version__})"
    return producer, torch.cuda.get_device_name(device), compute_on(device)


if __name__ == "__main__":
    options = interchange.parser(__doc__, "scripts/export_causal_conv1d.py cases.h5 --time").parse_args()
    sys.exit(interchange.main(options, make))
