"""How FlashInfer computes ssmbench's decoding steps: for files (export_flashinfer.py), and in process
(flashinfer_kernels.py).

Axes are an operation's by name, shapes and tensors those of a case, in logical order and PyTorch's.
"""

NAME = "flashinfer"
STATES = ("f32", "f16", "bf16", "i16")


def step_why_not(axes, shapes, dtypes, store):
    """Why selective_state_update does not do a case; None when it does. `dtypes`: of tensors by name."""
    if len(shapes["state"]) == 3:
        return "flashinfer's A and dt are one number a head: form mamba1 has one a channel"
    if "D" not in shapes:
        return "flashinfer's selective_state_update needs D"
    if dtypes["state"] not in STATES:
        return f"flashinfer's selective_state_update has no states in {dtypes['state']}"
    if "seed" in shapes and dtypes["state"] != "f16":
        return f"flashinfer rounds f16 states stochastically, not {dtypes['state']}"
    if axes.get("intermediate", False) and store != "none":
        return "flashinfer leaves the states where they are when it is given a buffer for intermediate ones"
    return None


def store_of(source, destination):
    """The axis `store` of indices (B,) and (B, T) or (B,): which of the ways to store does what they say."""
    destination = destination.reshape(len(source), -1)
    if (destination == -1).all():
        return "none"
    if (destination[:, :-1] != -1).any():
        return "each"
    return "last" if (destination[:, -1] == source).all() else "apart"


def selective_state_update(axes, tensors, fresh, store):
    """The CUDA kernel of decoding steps. It updates `state` and `state_scale` in place."""
    import torch
    from flashinfer.mamba import selective_state_update as update

    state, x = tensors["state"], tensors["x"]
    headdim, dstate = state.shape[2:]
    several = x.dim() == state.dim()
    # dt, dt_bias and D have one type there. f32 holds those of dt exactly.
    dt = tensors["dt"]
    converted = dt.dtype != torch.float32
    if converted:
        dt = torch.empty_like(dt, dtype=torch.float32)
        dt.copy_(tensors["dt"])
    per_head = lambda values: values[..., None].expand(*values.shape, headdim)  # noqa: E731
    optional = {}
    if "dt_bias" in tensors:
        optional["dt_bias"] = per_head(tensors["dt_bias"])
    if "source" in tensors:
        optional["state_batch_indices"] = tensors["source"]
    if store in ("apart", "each"):
        destination = tensors["destination"]
        optional["dst_state_batch_indices"] = destination if several else destination.reshape(-1)
    if "out" in tensors:  # in process: where it is wanted
        optional["out"] = tensors["out"]
    if several:
        optional["cache_steps"] = x.shape[1]
    if "state_scale" in tensors:
        optional["state_scale"] = tensors["state_scale"]
    if "seed" in tensors:
        optional["rand_seed"] = tensors["seed"]
    intermediate = None
    if axes.get("intermediate", False):
        intermediate = state.new_empty(*x.shape[:2], *state.shape[1:])
        optional["intermediate_states_buffer"] = intermediate
        rows = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
        optional["intermediate_state_indices"] = rows

    def launch():
        if fresh and converted:
            dt.copy_(tensors["dt"])
        out = update(
            state,
            x,
            per_head(dt),
            tensors["A"][:, None, None].expand(-1, headdim, dstate),
            tensors["B"],
            tensors["C"],
            per_head(tensors["D"]),
            z=tensors.get("z"),
            dt_softplus=bool(axes["dt_softplus"]),
            disable_state_update=store == "none",
            **optional,
        )
        outputs = {"out": out, "state": state}
        if "state_scale" in tensors:
            outputs["state_scale"] = tensors["state_scale"]
        if intermediate is not None:
            outputs["intermediate"] = intermediate
        return outputs

    return launch


# As in mamba_ssm_calls.py, and the calls take `store` besides.
OPERATIONS = {"selective_state_update": (step_why_not, selective_state_update)}
