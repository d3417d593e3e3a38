"""How mamba_ssm computes ssmbench's operations: for files (export_mamba_ssm.py), and in process (mamba_ssm_kernels.py).

Axes are an operation's by name, shapes and tensors those of a case, in logical order and PyTorch's.
"""

import mamba3_calls
from backward_pass import backward


def selective_scan_why_not(axes, shapes, is_complex):
    from mamba_ssm.ops.selective_scan_interface import selective_scan_cuda

    if selective_scan_cuda is None:
        return "mamba_ssm was installed without selective_scan_cuda"
    if axes["method"] != "zoh":
        return f"mamba_ssm has no method {axes['method']}"
    if axes["layout"] != "bdl":
        return f"selective_scan_cuda takes layout bdl alone, not {axes['layout']}"
    if "initial_state" in shapes:
        return "selective_scan_cuda takes no initial_state"
    if "cu_seqlens" in shapes:
        return "selective_scan_cuda has one sequence a batch"
    if "dlast_state" in shapes:
        return "selective_scan_cuda ignores dlast_state"
    if "x" in shapes or axes.get("x"):
        return "selective_scan_cuda keeps states of every 2048 steps, not of 8"
    if len(shapes["A"]) == 3:
        return "mamba_ssm has no dense A"
    if is_complex and axes["dtype"] != "f32" and any(len(shapes[name]) == 4 for name in ("B", "C")):
        return f"selective_scan_cuda would round complex B and C per step to {axes['dtype']}"
    return None


def selective_scan(axes, tensors, fresh):
    """selective_scan_cuda, Mamba-1's CUDA kernels."""
    import torch
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    names = [name for name in ("u", "delta", "A", "B", "C", "D", "z", "delta_bias") if name in tensors]
    variable = {name for name in ("B", "C") if tensors[name].dim() == 4}
    interleaved = {name for name in variable if tensors[name].is_complex()}
    leaves = {}
    for name in names:
        # Complex tensors per step go in as (real, imaginary) pairs along time.
        leaves[name] = torch.view_as_real(tensors[name]).flatten(-2) if name in interleaved else tensors[name]
        leaves[name] = leaves[name].contiguous().requires_grad_("dout" in tensors)
    arguments = [leaves.get(name) for name in ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")]
    softplus = bool(axes["delta_softplus"])

    def forward():
        outputs = dict(zip(("out", "last_state"), selective_scan_fn(*arguments, softplus, True)))
        if "B" not in variable:  # mamba_ssm leaves a constant B out of the state
            del outputs["last_state"]
        return outputs

    if "dout" not in tensors:
        return forward

    def name_gradients(found):
        gradients = dict(zip(leaves, found))
        for name in interleaved:
            pairs = gradients[name].unflatten(-1, (-1, 2)).contiguous()
            gradients[name] = torch.view_as_complex(pairs)
        return {"d" + name: gradient for name, gradient in gradients.items()}

    scan = lambda: [selective_scan_fn(*arguments, softplus)]  # noqa: E731
    return backward(scan, list(leaves.values()), [tensors["dout"]], name_gradients, fresh)


def ssd_why_not(axes, shapes, is_complex):
    if "cu_seqlens" in shapes and "initial_states" in shapes:
        return "mamba_chunk_scan_combined takes no initial states of packed sequences"
    chunk = int(axes["chunk_size"])
    if chunk < 16 or chunk & (chunk - 1):
        return f"Triton's blocks need a power of two, at least 16, for chunk_size, not {chunk}"
    return None


def ssd_chunk_scan(axes, tensors, fresh):
    """mamba_chunk_scan_combined, Mamba-2's Triton kernels."""
    import torch
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    names = [n for n in ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states") if n in tensors]
    leaves = {name: tensors[name].requires_grad_("dout" in tensors) for name in names}
    low, high = (float(limit) for limit in axes["dt_limit"])
    numbers, borders = tensors.get("seq_idx"), tensors.get("cu_seqlens")
    if borders is not None:  # sequences are numbered as well, and a state is returned for each
        lengths = (borders[1:] - borders[:-1]).long()
        numbers = torch.arange(len(lengths), dtype=torch.int32, device=borders.device)
        numbers = torch.repeat_interleave(numbers, lengths)[None]
    scan = lambda: mamba_chunk_scan_combined(  # noqa: E731
        *(leaves[name] for name in ("x", "dt", "A", "B", "C")),
        int(axes["chunk_size"]),
        **{name: leaves.get(name) for name in ("D", "z", "dt_bias", "initial_states")},
        seq_idx=numbers,
        cu_seqlens=borders,
        dt_softplus=bool(axes["dt_softplus"]),
        dt_limit=(low, high),
        return_final_states=borders is None,
        return_varlen_states=borders is not None,
    )
    if "dout" not in tensors:
        return lambda: dict(zip(("out", "final_states"), scan()))

    given = [tensors[name] for name in ("dout", "dfinal_states") if name in tensors]
    name_gradients = lambda found: {"d" + name: gradient for name, gradient in zip(leaves, found)}  # noqa: E731
    return backward(lambda: scan()[: len(given)], list(leaves.values()), given, name_gradients, fresh)


def step_why_not(axes, shapes, is_complex):
    for name in ("D", "dt_bias"):
        if name not in shapes:
            return f"selective_state_update fails without {name}"
    if len(shapes["x"]) == len(shapes["state"]):
        return "selective_state_update takes one token"
    if len(shapes["state"]) == 3 and len(shapes["B"]) == 3:
        return "selective_state_update has no groups of B and C without heads"
    if "state_scale" in shapes:
        return "selective_state_update has no states with scales"
    if "seed" in shapes:
        return "selective_state_update rounds to nearest"
    return None


def stores_elsewhere(source, destination):
    """Why destinations (B,) or (B, 1) are not what the kernel does; nothing where they are."""
    if (destination.reshape(-1) != source).any():
        return "selective_state_update stores states where they come from"
    return None


def selective_state_update(axes, tensors, fresh):
    """The Triton kernel of a decoding step. It updates `state` in place."""
    from given_outputs import GivenOutputs
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update as update

    state, heads = tensors["state"], {}
    if state.dim() == 4:  # Mamba-2's A, dt, D and dt_bias are per head: views of stride 0, as its model makes them
        p, n = state.shape[2:]
        heads["A"] = tensors["A"][:, None, None].expand(-1, p, n)
        heads["dt"] = tensors["dt"][:, :, None].expand(-1, -1, p)
        heads["D"] = tensors["D"][:, None].expand(-1, p)
        heads["dt_bias"] = tensors["dt_bias"][:, None].expand(-1, p)
    arguments = {**tensors, **heads}
    indices = {"state_batch_indices": tensors["source"]} if "source" in tensors else {}
    wanted = [tensors["out"]] if "out" in tensors else []  # in process

    def launch():
        with GivenOutputs(wanted):
            out = update(
                *(arguments[name] for name in ("state", "x", "dt", "A", "B", "C", "D")),
                z=arguments.get("z"),
                dt_bias=arguments["dt_bias"],
                dt_softplus=bool(axes["dt_softplus"]),
                **indices,
            )
        return {"out": out, "state": state}

    return launch


# Why not, and the call: given `fresh`, which says that each launch finds other inputs, it returns what launches and
# returns outputs by name.
OPERATIONS = {
    "selective_scan_fwd": (selective_scan_why_not, selective_scan),
    "selective_scan_bwd": (selective_scan_why_not, selective_scan),
    "ssd_chunk_scan_fwd": (ssd_why_not, ssd_chunk_scan),
    "ssd_chunk_scan_bwd": (ssd_why_not, ssd_chunk_scan),
    "selective_state_update": (step_why_not, selective_state_update),
    "mamba3_siso_fwd": (mamba3_calls.siso_why_not, mamba3_calls.siso),
    "mamba3_siso_bwd": (mamba3_calls.siso_why_not, mamba3_calls.siso),
    "mamba3_mimo_fwd": (mamba3_calls.mimo_why_not, mamba3_calls.mimo),
    "mamba3_mimo_bwd": (mamba3_calls.mimo_why_not, mamba3_calls.mimo),
    "mamba3_step": (mamba3_calls.step_why_not, mamba3_calls.step),
}


def math_of(operation, io):
    """The scan and the step compute in f32; Triton's matrix products take operands of `io`, f32 ones as tf32."""
    if operation.startswith("mamba3"):
        return mamba3_calls.MATH
    return {"f32": "tf32"}.get(io, io) if operation.startswith("ssd") else "f32"


def state_dtype_of(operation, io):
    """What chunk states are stored in."""
    if operation.startswith("mamba3"):
        return mamba3_calls.state_dtype_of(operation)
    return io if operation.startswith("ssd") else None
