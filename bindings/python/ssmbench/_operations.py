"""The operations of libssmbench_kernels.so as calls have them, for any framework: tensors in order, and axes."""

import dataclasses
from collections.abc import Callable

from ._library import INPUT, OUTPUT, Plan

BOTH = INPUT | OUTPUT

# How a tensor may lie in memory: its axes from the outermost to the innermost; None is the order of the shape.
CHANNELS_LAST = (0, 2, 1)  # (batch, channel, time)
STATES_LAST = (0, 3, 1, 2)  # (batch, group, state, time)


def dense_strides(shape, order):
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order or range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return strides


@dataclasses.dataclass(frozen=True)
class Shaped:
    """A tensor, but for its memory; the dtype is a word of the library."""

    shape: tuple
    dtype: str


@dataclasses.dataclass(frozen=True)
class Spec:
    """An operation.

    tensors: (name, role, order or None in the second layout) in the order in which a call has them.
    ranks: how many axes tensors may have, of those that `axes` looks at.
    axes: a function of the tensors by name (Shaped, or None) and the options of a call; the key "second_layout" is
        there if it is so.
    """

    name: str
    tensors: tuple
    ranks: dict
    axes: Callable

    def plan(self, device, shaped, options, second_layout=False):
        """For tensors in this order. Raises ValueError for what no implementation takes."""
        by_name = {name: tensor for (name, _, _), tensor in zip(self.tensors, shaped, strict=True)}
        described = []
        for (name, role, order), tensor in zip(self.tensors, shaped):
            if tensor is None:
                continue
            ranks = self.ranks.get(name, ())
            if ranks and len(tensor.shape) not in ranks:
                raise ValueError(f"{name} has shape {tensor.shape}, not one of {' or '.join(map(str, ranks))} axes")
            if 0 in tensor.shape:
                raise ValueError(f"{name} has no elements: shape {tensor.shape}")
            # Constant projections have another rank, and one layout.
            has_order = second_layout and order is not None and len(order) == len(tensor.shape)
            strides = dense_strides(tensor.shape, order if has_order else None)
            described.append((name, tensor.dtype, tensor.shape, strides, role))
        if second_layout:
            by_name["second_layout"] = True
        return Plan(self.name, device, self.axes(by_name, options), described)


SCAN_RANKS = {"u": (3,), "A": (2,), "B": (2, 4), "C": (2, 4)}
SCAN_INPUTS = (
    ("u", INPUT, CHANNELS_LAST),
    ("delta", INPUT, CHANNELS_LAST),
    ("A", INPUT, None),
    ("B", INPUT, STATES_LAST),
    ("C", INPUT, STATES_LAST),
    ("D", INPUT, None),
    ("z", INPUT, CHANNELS_LAST),
    ("delta_bias", INPUT, None),
)


def scan_axes(t, options):
    B, C = t["B"], t["C"]
    variable = B if len(B.shape) == 4 else C
    return {
        "dtype": t["u"].dtype,
        "layout": "bld" if "second_layout" in t else "bdl",
        "batch": t["u"].shape[0],
        "dim": t["u"].shape[1],
        "seqlen": t["u"].shape[2],
        "dstate": t["A"].shape[1],
        "groups": variable.shape[1] if len(variable.shape) == 4 else 1,
        "A": "complex" if t["A"].dtype == "c64" else "real",
        "B": "variable" if len(B.shape) == 4 else "constant",
        "C": "variable" if len(C.shape) == 4 else "constant",
        "D": t["D"] is not None,
        "z": t["z"] is not None,
        "delta_bias": t["delta_bias"] is not None,
        "delta_softplus": options[0],
    }


scan_forward = Spec(
    "selective_scan_fwd",
    (*SCAN_INPUTS, ("out", OUTPUT, CHANNELS_LAST), ("last_state", OUTPUT, None)),
    SCAN_RANKS,
    scan_axes,
)
SCAN_GRADIENTS = tuple([("d" + name, OUTPUT, order) for name, _, order in SCAN_INPUTS])
scan_backward = Spec(
    "selective_scan_bwd",
    (*SCAN_INPUTS, ("dout", INPUT, CHANNELS_LAST), *SCAN_GRADIENTS),
    SCAN_RANKS,
    scan_axes,
)


# The same with the states on the way, which the one leaves and the other is given.
def scan_axes_with_x(t, options):
    return scan_axes(t, options) | {"x": True}


STEPS_OF_X = 8  # from one state to the next
scan_forward_with_x = Spec(
    "selective_scan_fwd", (*scan_forward.tensors, ("x", OUTPUT, None)), SCAN_RANKS, scan_axes_with_x
)
scan_backward_with_x = Spec(
    "selective_scan_bwd",
    (*SCAN_INPUTS, ("dout", INPUT, CHANNELS_LAST), ("x", INPUT, None), *SCAN_GRADIENTS),
    SCAN_RANKS,
    scan_axes_with_x,
)

MOST_STEPS_OF_A_CHUNK = 256  # the results are the same for every chunk size
SSD_RANKS = {"x": (4,), "B": (4,), "D": (1, 2), "cu_seqlens": (1,)}
SSD_INPUTS = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states")


def ssd_axes(t, options):
    chunk_size, dt_softplus, dt_min, dt_max, final_states, backward = options
    axes = {
        "dtype": t["x"].dtype,
        "batch": t["x"].shape[0],
        "seqlen": t["x"].shape[1],
        "nheads": t["x"].shape[2],
        "headdim": t["x"].shape[3],
        "dstate": t["B"].shape[3],
        "groups": t["B"].shape[2],
        "chunk_size": chunk_size,
        "D": "none" if t["D"] is None else ("head", "headdim")[len(t["D"].shape) - 1],
        "z": t["z"] is not None,
        "dt_bias": t["dt_bias"] is not None,
        "dt_softplus": dt_softplus,
        "dt_limit": (dt_min, dt_max),
        "initial_states": t["initial_states"] is not None,
        "final_states": final_states,
        "seq_idx": t["seq_idx"] is not None,
    }
    if not backward:
        axes["cu_seqlens"] = t["cu_seqlens"] is not None
        if t["cu_seqlens"] is not None:
            axes["sequences"] = t["cu_seqlens"].shape[0] - 1
    return axes


def check_varlen(return_varlen_states, cu_seqlens, initial_states):
    if return_varlen_states and cu_seqlens is None:
        raise ValueError("return_varlen_states needs cu_seqlens")
    if return_varlen_states and initial_states is not None:
        raise NotImplementedError("return_varlen_states with initial_states")


ssd_forward = Spec(
    "ssd_chunk_scan_fwd",
    (
        *[(name, INPUT, None) for name in (*SSD_INPUTS, "seq_idx", "cu_seqlens")],
        ("out", OUTPUT, None),
        ("final_states", OUTPUT, None),
    ),
    SSD_RANKS,
    ssd_axes,
)
ssd_backward = Spec(
    "ssd_chunk_scan_bwd",
    (
        *[(name, INPUT, None) for name in (*SSD_INPUTS, "seq_idx", "dout", "dfinal_states")],
        *[("d" + name, OUTPUT, None) for name in SSD_INPUTS],
    ),
    SSD_RANKS,
    ssd_axes,
)


def update_axes(t, options):
    state = t["state"]
    axes = {
        "form": "mamba1" if len(state.shape) == 3 else "mamba2",
        "dtype": t["x"].dtype,
        "state_dtype": state.dtype,
        "batch": t["x"].shape[0],
        "dstate": state.shape[-1],
        "groups": t["B"].shape[1] if len(t["B"].shape) == 3 else 1,
        "D": t["D"] is not None,
        "z": t["z"] is not None,
        "dt_bias": t["dt_bias"] is not None,
        "dt_softplus": options[0],
        "dt_dtype": "io" if t["dt"].dtype == t["x"].dtype else "f32",
    }
    if len(state.shape) == 3:
        axes["dim"] = state.shape[1]
    else:
        axes["nheads"], axes["headdim"] = state.shape[1:3]
    if t["source"] is not None:
        axes["slots"] = state.shape[0]
    return axes


step = Spec(
    "selective_state_update",
    (
        ("state", BOTH, None),
        *[(name, INPUT, None) for name in ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "source", "destination")],
        ("out", OUTPUT, None),
    ),
    {"state": (3, 4), "x": (2, 3), "B": (2, 3)},
    update_axes,
)


def is_silu(activation):
    if activation not in (None, "silu", "swish"):
        raise NotImplementedError(f"activation {activation!r}: expected None, 'silu' or 'swish'")
    return activation is not None


def conv_axes(t, options):
    silu, final_states = options
    axes = {
        "dtype": t["x"].dtype,
        "weight_dtype": "io" if t["weight"].dtype == t["x"].dtype else "f32",
        "layout": "bld" if "second_layout" in t else "bdl",
        "batch": t["x"].shape[0],
        "dim": t["x"].shape[1],
        "seqlen": t["x"].shape[2],
        "width": t["weight"].shape[1],
        "bias": t["bias"] is not None,
        "silu": silu,
        "initial_states": t["initial_states"] is not None,
        "final_states": final_states,
        "seq_idx": t["seq_idx"] is not None,
    }
    return axes


CONV_RANKS = {"x": (3,), "weight": (2,)}
CONV_INPUTS = (
    ("x", INPUT, CHANNELS_LAST),
    ("weight", INPUT, None),
    ("bias", INPUT, None),
    ("initial_states", INPUT, None),
    ("seq_idx", INPUT, None),
)
conv_forward = Spec(
    "causal_conv1d_fwd",
    (*CONV_INPUTS, ("out", OUTPUT, CHANNELS_LAST), ("final_states", OUTPUT, None)),
    CONV_RANKS,
    conv_axes,
)
conv_backward = Spec(
    "causal_conv1d_bwd",
    (
        *CONV_INPUTS,
        ("dout", INPUT, CHANNELS_LAST),
        ("dfinal_states", INPUT, None),
        ("dx", OUTPUT, CHANNELS_LAST),
        ("dweight", OUTPUT, None),
        ("dbias", OUTPUT, None),
        ("dinitial_states", OUTPUT, None),
    ),
    CONV_RANKS,
    conv_axes,
)


def conv_update_axes(t, options):
    x, state = t["x"], t["conv_state"]
    axes = {
        "dtype": x.dtype,
        "weight_dtype": "io" if t["weight"].dtype == x.dtype else "f32",
        "layout": "skd" if "second_layout" in t else "sdk",
        "batch": x.shape[0],
        "dim": x.shape[-1],
        "width": t["weight"].shape[1],
        "bias": t["bias"] is not None,
        "silu": options[0],
        "tokens": x.shape[1] if len(x.shape) == 3 else 1,
        "state_len": state.shape[2],
    }
    if t["source"] is not None:
        axes["store"], axes["slots"] = "last", state.shape[0]
    return axes


conv_step = Spec(
    "causal_conv1d_update",
    (
        ("conv_state", BOTH, CHANNELS_LAST),
        *[(name, INPUT, None) for name in ("x", "weight", "bias", "source", "destination")],
        ("out", OUTPUT, None),
    ),
    {"conv_state": (3,), "x": (2, 3), "weight": (2,)},
    conv_update_axes,
)
