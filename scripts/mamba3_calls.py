"""How mamba_ssm computes Mamba-3's operations: part of mamba_ssm_calls.py.

Scans are bf16 whatever goes in, so that other dtypes are left out. SISO keeps cumulative angles in bf16; a case has
to allow it with the axis angle_dtype. The results claim operands of products in bf16.
"""

from backward_pass import backward

MATH = "bf16"
STATES = ("Angle_State", "SSM_State", "K_State", "V_State")
SEQUENCES = ("Q", "K", "V", "ADT", "DT", "Trap", "Q_bias", "K_bias")
INPUT_STATES = tuple("Input_" + state for state in STATES)
RANKS = ("MIMO_V", "MIMO_Z", "MIMO_Out")
# What has gradients.
OF_SISO = (*SEQUENCES, "Angles", "D", "Z", *INPUT_STATES)
OF_MIMO = (*SEQUENCES, *RANKS, "Angles", "D", "Z", "outproj_norm_weight")


def shape_why_not(axes, shapes, pairing):
    if axes["rotary_pairing"] != pairing:
        return f"mamba_ssm pairs states {pairing} here, not {axes['rotary_pairing']}"
    sizes = {"headdim": shapes["V"][-1], "dstate": shapes["Q"][-1]}
    for name, size in sizes.items():
        if size < 16 or size & (size - 1):
            return f"Triton's blocks need a power of two, at least 16, for {name}, not {size}"
    return None


def scan_why_not(axes, shapes, pairing, least_chunk):
    if axes["dtype"] != "bf16":
        return f"mamba_ssm's Mamba-3 rounds its inputs to bf16: {axes['dtype']} is not what it computes"
    chunk = int(axes["chunk_size"])
    if chunk < least_chunk or chunk & (chunk - 1):
        return f"its blocks need a power of two, at least {least_chunk}, for chunk_size, not {chunk}"
    return shape_why_not(axes, shapes, pairing)


def siso_why_not(axes, shapes, is_complex):
    if axes["angle_dtype"] != "bf16":
        return "mamba3_siso_combined stores cumulative angles in bf16, which --set angle_dtype=bf16 allows"
    if shapes["Angles"][-1] % 2:
        return f"mamba3_siso_combined turns an even number of pairs, not {shapes['Angles'][-1]}"
    return scan_why_not(axes, shapes, "interleaved", 16)


def mimo_why_not(axes, shapes, is_complex):
    for name in ("Input_SSM_State", "dFinal_SSM_State"):
        if name in shapes:
            return f"mamba3_mimo takes no {name}"
    if shapes["Q"][-1] not in (2 * shapes["Angles"][-1], 4 * shapes["Angles"][-1]):
        return "mamba3_mimo turns all pairs or half of them"
    if "dout" in shapes and "cu_seqlens" not in shapes and shapes["Q"][1] % int(axes["chunk_size"]):
        return "mamba3_mimo's gradients take whole chunks alone"
    return scan_why_not(axes, shapes, "halves", 8)


def step_why_not(axes, shapes, is_complex):
    if len(shapes["Q"]) == 4:
        return "mamba3_siso_step has no ranks"
    if shapes["Angles"][-1] % 2:
        return f"mamba3_siso_step turns an even number of pairs, not {shapes['Angles'][-1]}"
    return shape_why_not(axes, shapes, "interleaved")


def launch_of(scan, tensors, names, fresh):
    """What launches `scan`, of leaves by name, or its backward pass."""
    given = [tensors[name] for name in ("dout", *("dFinal_" + state for state in STATES)) if name in tensors]
    leaves = {name: tensors[name].requires_grad_(bool(given)) for name in names if name in tensors}
    if not given:
        return lambda: dict(zip(("out", *("Final_" + state for state in STATES)), scan(leaves, True)))

    def forward():
        results = scan(leaves, len(given) > 1)
        return results if len(given) > 1 else [results]

    name_gradients = lambda found: {"d" + name: gradient for name, gradient in zip(leaves, found)}  # noqa: E731
    return backward(forward, list(leaves.values()), given, name_gradients, fresh)


def siso(axes, tensors, fresh):
    """mamba3_siso_combined, Mamba-3's Triton kernels."""
    from mamba_ssm.ops.triton.mamba3.mamba3_siso_combined import mamba3_siso_combined

    def scan(leaves, return_states):
        return mamba3_siso_combined(
            *(leaves[name] for name in (*SEQUENCES, "Angles")),
            D=leaves.get("D"),
            Z=leaves.get("Z"),
            Input_States=tuple(leaves[name] for name in INPUT_STATES) if INPUT_STATES[0] in leaves else None,
            chunk_size=int(axes["chunk_size"]),
            return_final_states=return_states,
            cu_seqlens=tensors.get("cu_seqlens"),
        )

    return launch_of(scan, tensors, OF_SISO, fresh)


def mimo(axes, tensors, fresh):
    """mamba3_mimo, Mamba-3's TileLang kernels."""
    import torch
    from mamba_ssm.ops.tilelang.mamba3.mamba3_mimo import mamba3_mimo

    has_norm = "outproj_norm_weight" in tensors

    def scan(leaves, return_states):
        return mamba3_mimo(
            *(leaves.get(name) for name in (*SEQUENCES, *RANKS, "Angles", "D", "Z")),
            chunk_size=int(axes["chunk_size"]),
            rotary_dim_divisor=tensors["Q"].shape[-1] // tensors["Angles"].shape[-1],
            dtype=torch.bfloat16,
            return_state=return_states,
            cu_seqlens=tensors.get("cu_seqlens"),
            fuse_pregate_headwise_rms_norm=has_norm,
            outproj_norm_weight=leaves.get("outproj_norm_weight"),
        )

    return launch_of(scan, tensors, OF_MIMO, fresh)


def step(axes, tensors, fresh):
    """mamba3_siso_step, the Triton kernel of a decoding step. In process SSM_State is updated in place."""
    from given_outputs import GivenOutputs
    from mamba_ssm.ops.triton.mamba3.mamba3_siso_step import mamba3_siso_step

    # It stores K before it reads the K of the step before, and each warp loads all angles, some after another has
    # stored the new ones: these states cannot be one with the old.
    wanted = [tensors[name] for name in ("out", "SSM_State") if "out" in tensors]

    def launch():
        arguments = (tensors.get(name) for name in (*SEQUENCES, "Angles", "D", "Z"))
        with GivenOutputs(wanted):
            out, states = mamba3_siso_step(*arguments, Input_States=tuple(tensors[name] for name in STATES))
        return {"out": out, **dict(zip(STATES, states))}

    return launch


def state_dtype_of(operation):
    """Chunk states are kept in bf16 for the gradients alone."""
    return {"mamba3_step": None}.get(operation, "bf16" if operation.endswith("bwd") else "f32")
