"""How causal-conv1d computes ssmbench's convolutions: for files (export_causal_conv1d.py), and in process
(causal_conv1d_kernels.py).

Axes are an operation's by name. Shapes and tensors are those of a case, outputs among them, in logical order and
PyTorch's: sequences are (B, D, L), rows (B, D) or (B, T, D), and states of a cache (S, D, K), in either layout.
"""

WIDTHS = (2, 3, 4)
STORES_IN_PLACE = "causal_conv1d_update stores states where they come from"


def sequence_why_not(axes, shapes):
    """Why causal_conv1d_cuda does not do a forward or backward case; None when it does."""
    dim, width = shapes["weight"]
    last = axes["layout"] == "bld"
    if width not in WIDTHS:
        return f"causal_conv1d has widths 2 to 4, not {width}"
    if last and dim % 8:
        return f"causal_conv1d needs a multiple of 8 channels in layout bld, not {dim}"
    states = ("seq_idx", "initial_states", "final_states", "dfinal_states")
    if not last and any(name in shapes for name in states):
        return "causal_conv1d has seq_idx and states in layout bld only"
    return None


def update_why_not(axes, shapes):
    """Why causal_conv1d_update does not do a case; None when it does."""
    width = shapes["weight"][1]
    return None if width in WIDTHS else f"causal_conv1d has widths 2 to 4, not {width}"


def innermost(states):
    """A copy of states of sequences with channels innermost, as the kernels take them; None of None."""
    return None if states is None else states.transpose(1, 2).contiguous().transpose(1, 2)


def forward(axes, tensors):
    """causal_conv1d_fwd, the CUDA kernel of causal_conv1d_fn."""
    import causal_conv1d_cuda

    final_states = innermost(tensors.get("final_states"))

    def launch():
        causal_conv1d_cuda.causal_conv1d_fwd(
            tensors["x"],
            tensors["weight"],
            tensors.get("bias"),
            tensors.get("seq_idx"),
            innermost(tensors.get("initial_states")),
            tensors["out"],
            final_states,
            bool(axes["silu"]),
        )
        if final_states is not None:
            tensors["final_states"].copy_(final_states)

    return launch


def gradients(axes, tensors):
    """causal_conv1d_bwd, the CUDA kernel of causal_conv1d_fn's gradients, and zeros for what it adds to."""
    import causal_conv1d_cuda

    sums = [tensors[name] for name in ("dweight", "dbias") if name in tensors]
    before = innermost(tensors.get("dinitial_states"))

    def launch():
        for gradient in sums:
            gradient.zero_()
        causal_conv1d_cuda.causal_conv1d_bwd(
            tensors["x"],
            tensors["weight"],
            tensors.get("bias"),
            tensors["dout"],
            tensors.get("seq_idx"),
            innermost(tensors.get("initial_states")),
            innermost(tensors.get("dfinal_states")),
            tensors["dx"],
            tensors["dweight"],
            tensors.get("dbias"),
            before,
            bool(axes["silu"]),
        )
        if before is not None:
            tensors["dinitial_states"].copy_(before)

    return launch


def update(axes, tensors):
    """causal_conv1d_update, the CUDA kernel of a decoding step. It updates conv_state in place."""
    import causal_conv1d_cuda

    def steps_last(rows):
        return rows[:, :, None] if rows.dim() == 2 else rows.transpose(1, 2)

    def launch():
        causal_conv1d_cuda.causal_conv1d_update(
            steps_last(tensors["x"]),
            tensors["conv_state"],
            tensors["weight"],
            tensors.get("bias"),
            steps_last(tensors["out"]),
            bool(axes["silu"]),
            None,  # cache_seqlens
            tensors.get("source"),
        )

    return launch


# Why not, and the call, which returns what launches and writes to the outputs among the tensors.
OPERATIONS = {
    "causal_conv1d_fwd": (sequence_why_not, forward),
    "causal_conv1d_bwd": (sequence_why_not, gradients),
    "causal_conv1d_update": (update_why_not, update),
}
