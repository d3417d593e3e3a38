#!/usr/bin/env python3
"""Runs the installed FlashInfer on the decoding steps of an interchange file and writes its outputs, and its times, back.

Needs flashinfer-python and PyTorch with CUDA, and nvcc, which it compiles each kernel with; h5py and NumPy.
"""

import sys

import flashinfer_calls
import interchange
from interchange import Outcome, Rejected, Unsupported

IN_PLACE = ("state", "state_scale")


def store_of(case):
    """How the case's states are stored: rows of a state of their own are stored where they come from."""
    if "destination" not in case.inputs:
        return "last"
    return flashinfer_calls.store_of(*(case.inputs[name].values for name in ("source", "destination")))


def intermediate_is_wanted(case, store):
    """Drafts are verified for their states: those are the ones to accept one from."""
    x, state = (case.inputs[name].values for name in ("x", "state"))
    return store == "none" and x.ndim == state.ndim and x.shape[1] > 1 and "state_scale" not in case.inputs


def compute_on(device):
    """What computes a case there."""
    import torch_tensors

    def compute(case, timed):
        if case["op"] not in flashinfer_calls.OPERATIONS:
            raise Unsupported(f"flashinfer is not called for {case['op']}")
        why_not, call = flashinfer_calls.OPERATIONS[case["op"]]
        shapes = {name: tensor.values.shape for name, tensor in case.inputs.items()}
        dtypes = {name: tensor.dtype for name, tensor in case.inputs.items()}
        store = store_of(case)
        axes = {"dt_softplus": case["dt_softplus"], "intermediate": intermediate_is_wanted(case, store)}
        if reason := why_not(axes, shapes, dtypes, store):
            raise Unsupported(reason)
        with torch_tensors.own_stream(device):
            tensors = {name: torch_tensors.to_torch(tensor, device) for name, tensor in case.inputs.items()}
            launch = call(axes, tensors, fresh=False, store=store)
            outputs = launch()
            for name in IN_PLACE:  # before timing moves them on
                if name in outputs:
                    outputs[name] = outputs[name].clone()
            timing = torch_tensors.timing_of(launch, device, graph=True) if timed else {}
        dtypes |= {"out": case["dtype"], "intermediate": dtypes["state"]}
        stored = {name: torch_tensors.to_tensor(values, dtypes[name]) for name, values in outputs.items()}
        return Outcome(stored, "f32", timing=timing)

    return compute


def make(options):
    try:
        import flashinfer
        import torch
        import torch_tensors  # noqa: F401
    except ImportError as error:
        raise Rejected(f"flashinfer cannot be used: {interchange.one_line(error)}") from None
    if not torch.cuda.is_available():
        raise Rejected("flashinfer needs a CUDA device, and PyTorch sees none")
    device = torch.device("cuda", torch.cuda.current_device())
    producer = f"flashinfer {flashinfer.__version__} (PyTorch {torch.__version__})"
    return producer, torch.cuda.get_device_name(device), compute_on(device)


if __name__ == "__main__":
    options = interchange.parser(__doc__, "scripts/export_flashinfer.py cases.h5 --time").parse_args()
    sys.exit(interchange.main(options, make))
