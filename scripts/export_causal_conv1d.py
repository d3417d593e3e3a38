#!/usr/bin/env python3
"""Runs the installed causal-conv1d on the inputs of an interchange file and writes its outputs, and its times, back.

Needs causal_conv1d (Dao-AILab's, with its CUDA extension) and PyTorch with CUDA, h5py and NumPy. Gradients come from
its own backward kernel through autograd, and their time is that of the backward pass alone.
"""

import sys

import interchange
from interchange import Outcome, Rejected, Unsupported

WIDTHS = (2, 3, 4)


def sequence_why_not(case):
    """Why causal_conv1d_fn does not do a forward or backward case; nothing when it does."""
    last = case["layout"] == "bld"
    dim, width = case.inputs["weight"].values.shape
    if width not in WIDTHS:
        return f"causal_conv1d has widths 2 to 4, not {width}"
    if last and dim % 8:
        return f"causal_conv1d needs a multiple of 8 channels in layout bld, not {dim}"
    if not last and ("seq_idx" in case.inputs or "initial_states" in case.inputs or "dfinal_states" in case.inputs):
        return "causal_conv1d has seq_idx and states in layout bld only"
    return None


def update_why_not(case):
    """Why causal_conv1d_update does not do a case; nothing when it does."""
    inputs = case.inputs
    width = inputs["weight"].values.shape[1]
    if width not in WIDTHS:
        return f"causal_conv1d has widths 2 to 4, not {width}"
    if "destination" in inputs and (inputs["destination"].values != inputs["source"].values).any():
        return "causal_conv1d_update stores states where they come from"
    return None


def sequence(case, tensors):
    """A launch of causal_conv1d_fn, or of its backward pass, by ssmbench's names."""
    import torch
    from causal_conv1d import causal_conv1d_fn

    names = [name for name in ("x", "weight", "bias", "initial_states") if name in tensors]
    leaves = {name: tensors[name].requires_grad_("dout" in tensors) for name in names}
    with_states = case["layout"] == "bld" and "seq_idx" not in tensors
    if "dout" in tensors:
        with_states = "dfinal_states" in tensors
    # Channels innermost, as x is.
    before = leaves.get("initial_states")
    if before is not None:
        before = before.transpose(1, 2).contiguous().transpose(1, 2)

    def forward():
        results = causal_conv1d_fn(
            leaves["x"],
            leaves["weight"],
            bias=leaves.get("bias"),
            seq_idx=tensors.get("seq_idx"),
            initial_states=before,
            return_final_states=with_states,
            activation="silu" if case["silu"] else None,
        )
        return dict(zip(("out", "final_states"), results)) if with_states else {"out": results}

    if "dout" not in tensors:
        return forward
    results = forward()
    given = {name: tensors["d" + name] for name in results if "d" + name in tensors}
    ends = [results[name] for name in given]

    def gradients():
        found = torch.autograd.grad(ends, list(leaves.values()), list(given.values()), retain_graph=True)
        return {"d" + name: gradient for name, gradient in zip(leaves, found)}

    return gradients


def update(case, tensors):
    """A launch of causal_conv1d_update, by ssmbench's names. It updates conv_state in place."""
    from causal_conv1d import causal_conv1d_update

    x, state = tensors["x"], tensors["conv_state"]
    several = x.dim() == 3

    def launch():
        out = causal_conv1d_update(
            x.transpose(1, 2) if several else x,
            state,
            tensors["weight"],
            bias=tensors.get("bias"),
            activation="silu" if case["silu"] else None,
            conv_state_indices=tensors.get("source"),
        )
        return {"out": out.transpose(1, 2) if several else out, "conv_state": state}

    return launch


OPERATIONS = {
    "causal_conv1d_fwd": (sequence_why_not, sequence),
    "causal_conv1d_bwd": (sequence_why_not, sequence),
    "causal_conv1d_update": (update_why_not, update),
}


def transposed(case, name):
    """Whether a tensor is stored with its last two axes the other way round than causal_conv1d names them."""
    if case["op"] == "causal_conv1d_update":
        return name == "conv_state" and case["layout"] == "skd"
    other = name == "dout" and case["dout_layout"] == "other"
    return name in ("x", "dx", "out", "dout") and (case["layout"] == "bld") != other


def compute_on(device):
    """What computes a case there."""
    import torch_tensors

    def compute(case, timed):
        if case["op"] not in OPERATIONS:
            raise Unsupported(f"causal_conv1d has no {case['op']}")
        why_not, call = OPERATIONS[case["op"]]
        if reason := why_not(case):
            raise Unsupported(reason)
        with torch_tensors.own_stream(device):
            tensors = {}
            for name, tensor in case.inputs.items():
                values = torch_tensors.to_torch(tensor, device)
                tensors[name] = values.transpose(1, 2) if transposed(case, name) else values
            launch = call(case, tensors)
            outputs = launch()
            if "conv_state" in outputs:  # before timing moves it on
                outputs["conv_state"] = outputs["conv_state"].clone()
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
