#!/usr/bin/env python3
"""Runs the installed mamba_ssm on the inputs of an interchange file and writes its outputs, and its times, back.

Needs mamba_ssm and what it needs (PyTorch with CUDA, Triton), h5py and NumPy. Gradients come from mamba_ssm's own
backward kernels through autograd, and their time is that of the backward pass alone, given what the forward pass
saved.
"""

import sys

import interchange
from interchange import Outcome, Rejected, Unsupported


def selective_scan(case, tensors, time):
    """selective_scan_cuda, Mamba-1's CUDA kernels."""
    import torch
    from mamba_ssm.ops.selective_scan_interface import selective_scan_cuda, selective_scan_fn

    if selective_scan_cuda is None:
        raise Unsupported("mamba_ssm was installed without selective_scan_cuda")
    if case["method"] != "zoh":
        raise Unsupported(f"mamba_ssm has no method {case['method']}")
    if case["layout"] != "bdl":
        raise Unsupported(f"selective_scan_cuda takes layout bdl alone, not {case['layout']}")
    if "initial_state" in tensors:
        raise Unsupported("selective_scan_cuda takes no initial_state")
    if tensors["A"].dim() == 3:
        raise Unsupported("mamba_ssm has no dense A")
    names = [name for name in ("u", "delta", "A", "B", "C", "D", "z", "delta_bias") if name in tensors]
    variable = {name for name in ("B", "C") if tensors[name].dim() == 4}
    interleaved = {name for name in variable if tensors[name].is_complex()}
    if interleaved and case["dtype"] != "f32":
        raise Unsupported(f"selective_scan_cuda would round complex B and C per step to {case['dtype']}")

    leaves = {}
    for name in names:
        # Complex tensors per step go in as (real, imaginary) pairs along time.
        leaves[name] = torch.view_as_real(tensors[name]).flatten(-2) if name in interleaved else tensors[name]
        leaves[name] = leaves[name].contiguous().requires_grad_("dout" in tensors)
    arguments = [leaves.get(name) for name in ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")]
    softplus = bool(case["delta_softplus"])

    if "dout" not in tensors:
        launch = lambda: selective_scan_fn(*arguments, softplus, True)  # noqa: E731
        out, last_state = launch()
        outputs = {"out": out}
        if "B" in variable:  # mamba_ssm leaves a constant B out of the state
            outputs["last_state"] = last_state
        return outputs, time(launch)

    out = selective_scan_fn(*arguments, softplus)
    inputs = list(leaves.values())
    launch = lambda: torch.autograd.grad(out, inputs, tensors["dout"], retain_graph=True)  # noqa: E731
    gradients = dict(zip(leaves, launch()))
    for name in interleaved:
        pairs = gradients[name].unflatten(-1, (-1, 2)).contiguous()
        gradients[name] = torch.view_as_complex(pairs)
    return {"d" + name: gradient for name, gradient in gradients.items()}, time(launch)


def ssd_chunk_scan(case, tensors, time):
    """mamba_chunk_scan_combined, Mamba-2's Triton kernels."""
    import torch
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    if "cu_seqlens" in tensors:
        raise Unsupported("mamba_chunk_scan_combined takes no initial states of packed sequences")
    chunk = int(case["chunk_size"])
    if chunk < 16 or chunk & (chunk - 1):
        raise Unsupported(f"Triton's blocks need a power of two, at least 16, for chunk_size, not {chunk}")
    names = [n for n in ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states") if n in tensors]
    leaves = {name: tensors[name].requires_grad_("dout" in tensors) for name in names}
    low, high = (float(limit) for limit in case["dt_limit"])
    scan = lambda: mamba_chunk_scan_combined(  # noqa: E731
        *(leaves[name] for name in ("x", "dt", "A", "B", "C")),
        chunk,
        **{name: leaves.get(name) for name in ("D", "z", "dt_bias", "initial_states")},
        seq_idx=tensors.get("seq_idx"),
        dt_softplus=bool(case["dt_softplus"]),
        dt_limit=(low, high),
        return_final_states=True,
    )
    if "dout" not in tensors:
        return dict(zip(("out", "final_states"), scan())), time(scan)

    out, final_states = scan()
    results, given = [out], [tensors["dout"]]
    if "dfinal_states" in tensors:
        results.append(final_states)
        given.append(tensors["dfinal_states"])
    inputs = list(leaves.values())
    launch = lambda: torch.autograd.grad(results, inputs, given, retain_graph=True)  # noqa: E731
    return {"d" + name: gradient for name, gradient in zip(leaves, launch())}, time(launch)


def selective_state_update(case, tensors, time):
    """The Triton kernel of a decoding step."""
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update as update

    for name in ("D", "dt_bias"):
        if name not in tensors:
            raise Unsupported(f"selective_state_update fails without {name}")
    state, heads = tensors["state"], {}
    if state.dim() == 4:  # Mamba-2's A, dt, D and dt_bias are per head: views of stride 0, as its model makes them
        p, n = state.shape[2:]
        heads["A"] = tensors["A"][:, None, None].expand(-1, p, n)
        heads["dt"] = tensors["dt"][:, :, None].expand(-1, -1, p)
        heads["D"] = tensors["D"][:, None].expand(-1, p)
        heads["dt_bias"] = tensors["dt_bias"][:, None].expand(-1, p)
    elif tensors["B"].dim() == 3:
        raise Unsupported("selective_state_update has no groups of B and C without heads")
    arguments = {**tensors, **heads}
    launch = lambda: update(  # noqa: E731
        *(arguments[name] for name in ("state", "x", "dt", "A", "B", "C", "D")),
        z=arguments.get("z"),
        dt_bias=arguments["dt_bias"],
        dt_softplus=bool(case["dt_softplus"]),
    )
    outputs = {"out": launch(), "state": state.clone()}  # before timing moves the state on
    return outputs, time(launch)


OPERATIONS = {
    "selective_scan_fwd": selective_scan,
    "selective_scan_bwd": selective_scan,
    "ssd_chunk_scan_fwd": ssd_chunk_scan,
    "ssd_chunk_scan_bwd": ssd_chunk_scan,
    "selective_state_update": selective_state_update,
}


def make(options):
    try:
        import mamba_ssm
        import torch
        import torch_tensors
    except ImportError as error:
        raise Rejected(f"mamba_ssm cannot be used: {interchange.one_line(error)}") from None
    if not torch.cuda.is_available():
        raise Rejected("mamba_ssm needs a CUDA device, and PyTorch sees none")
    device = torch.device("cuda", torch.cuda.current_device())

    def compute(case, timed):
        operation = case["op"]
        if operation not in OPERATIONS:
            raise Unsupported(f"mamba_ssm has no {operation}")
        def time(launch):
            return torch_tensors.timing_of(launch, device, graph=True) if timed else {}

        with torch_tensors.own_stream(device):
            tensors = {name: torch_tensors.to_torch(tensor, device) for name, tensor in case.inputs.items()}
            outputs, timing = OPERATIONS[operation](case, tensors, time)
        # The selective scan and the step compute in f32. Triton's matrix products take operands of the tensors'
        # own dtype, f32 ones rounded to tf32, and chunk states are stored in that dtype.
        io = case["dtype"]
        products = operation.startswith("ssd")
        math = {"f32": "tf32"}.get(io, io) if products else "f32"
        dtypes = {name: output_dtype(case, name) for name in outputs}
        stored = {name: torch_tensors.to_tensor(values, dtypes[name]) for name, values in outputs.items()}
        return Outcome(stored, math, state_dtype=io if products else None, timing=timing)

    producer = f"mamba_ssm {mamba_ssm.__version__} (PyTorch {torch.__version__})"
    return producer, torch.cuda.get_device_name(device), compute


def output_dtype(case, name):
    """A gradient is stored like its input, out like the other sequences, states in f32, or c64 where A is."""
    if name == "out":
        return case["dtype"]
    if name in ("last_state", "final_states"):
        return case.inputs["A"].dtype
    return case.inputs[name if name == "state" else name[1:]].dtype


if __name__ == "__main__":
    options = interchange.parser(__doc__, "scripts/export_mamba_ssm.py cases.h5 --time").parse_args()
    sys.exit(interchange.main(options, make))
