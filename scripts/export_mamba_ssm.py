#!/usr/bin/env python3
"""Runs the installed mamba_ssm on the inputs of an interchange file and writes its outputs, and its times, back.

Needs mamba_ssm and what it needs (PyTorch with CUDA, Triton), h5py and NumPy. Gradients come from mamba_ssm's own
backward kernels through autograd, and their time is that of the backward pass alone, given what the forward pass
saved.
"""

import sys

import interchange
import mamba3_calls
import mamba_ssm_calls
from interchange import Outcome, Rejected, Unsupported


def compute_on(device):
    """What computes a case there."""
    import torch_tensors

    def compute(case, timed):
        operation = case["op"]
        if operation not in mamba_ssm_calls.OPERATIONS:
            raise Unsupported(f"mamba_ssm has no {operation}")
        why_not, call = mamba_ssm_calls.OPERATIONS[operation]
        shapes = {name: tensor.values.shape for name, tensor in case.inputs.items()}
        is_complex = "A" in case.inputs and case.inputs["A"].dtype == "c64"
        if reason := why_not(case, shapes, is_complex):
            raise Unsupported(reason)
        if "destination" in case.inputs:
            slots = (case.inputs[name].values for name in ("source", "destination"))
            if reason := mamba_ssm_calls.stores_elsewhere(*slots):
                raise Unsupported(reason)

        with torch_tensors.own_stream(device):
            tensors = {name: torch_tensors.to_torch(tensor, device) for name, tensor in case.inputs.items()}
            launch = call(case, tensors, fresh=False)
            outputs = launch()
            if "state" in outputs:  # before timing moves it on
                outputs["state"] = outputs["state"].clone()
            timing = torch_tensors.timing_of(launch, device, graph=True) if timed else {}
        dtypes = {name: output_dtype(case, name, values) for name, values in outputs.items()}
        stored = {name: torch_tensors.to_tensor(values, dtypes[name]) for name, values in outputs.items()}
        io = case["dtype"]
        math, states = mamba_ssm_calls.math_of(operation, io), mamba_ssm_calls.state_dtype_of(operation, io)
        return Outcome(stored, math, state_dtype=states, timing=timing)

    return compute


def make(options):
    try:
        import mamba_ssm
        import torch
        import torch_tensors  # noqa: F401
    except ImportError as error:
        raise Rejected(f"mamba_ssm cannot be used: {interchange.one_line(error)}") from None
    if not torch.cuda.is_available():
        raise Rejected("mamba_ssm needs a CUDA device, and PyTorch sees none")
    device = torch.device("cuda", torch.cuda.current_device())
    producer = f"mamba_ssm {mamba_ssm.__version__} (PyTorch {torch.__version__})"
    return producer, torch.cuda.get_device_name(device), compute_on(device)


def output_dtype(case, name, values):
    """A gradient is stored like its input, out like the other sequences, states in f32, or c64 where A is; those of
    Mamba-3 as they are."""
    import torch_tensors

    if name == "out":
        return case["dtype"]
    if name.startswith("Final_") or name in mamba3_calls.STATES:
        return next(dtype for dtype, known in torch_tensors.TYPES.items() if known == values.dtype)
    if name in ("last_state", "final_states"):
        return case.inputs["A"].dtype
    return case.inputs[name if name == "state" else name[1:]].dtype


if __name__ == "__main__":
    options = interchange.parser(__doc__, "scripts/export_mamba_ssm.py cases.h5 --time").parse_args()
    sys.exit(interchange.main(options, make))
