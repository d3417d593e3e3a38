"""Mamba-2's chunked scan."""

import torch
from torch import Tensor

from .. import _operations
from ._operation import Operation, call, differentiable, operator
from ._tensors import converted, empty_like, in_dtypes, in_order, io_dtype, spread

ssd_forward = Operation(_operations.ssd_forward)
ssd_backward = Operation(_operations.ssd_backward)


def ssd_outputs(x, B, cu_seqlens, with_final_states):
    """out and final_states, which are empty if they are not asked for."""
    sequences = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    shape = (sequences, *x.shape[2:], B.shape[-1]) if with_final_states else (0,)
    return empty_like(x), torch.empty(shape, dtype=torch.float32, device=x.device)


@operator("ssd_chunk_scan_fwd")
def ssd_chunk_scan_fwd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    dt_bias: Tensor | None,
    initial_states: Tensor | None,
    seq_idx: Tensor | None,
    cu_seqlens: Tensor | None,
    chunk_size: int,
    dt_softplus: bool,
    dt_min: float,
    dt_max: float,
    with_final_states: bool,
) -> tuple[Tensor, Tensor]:
    inputs = in_order(x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens)
    out, final_states = ssd_outputs(x, B, cu_seqlens, with_final_states)
    ssd_forward(
        (*inputs, out, final_states if with_final_states else None),
        (chunk_size, dt_softplus, dt_min, dt_max, with_final_states, False),
    )
    return out, final_states


@ssd_chunk_scan_fwd.register_fake
def _(
    x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens, chunk_size, dt_softplus, dt_min, dt_max, states
):
    return ssd_outputs(x, B, cu_seqlens, states)


@operator("ssd_chunk_scan_bwd")
def ssd_chunk_scan_bwd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    dt_bias: Tensor | None,
    initial_states: Tensor | None,
    seq_idx: Tensor | None,
    dout: Tensor,
    dfinal_states: Tensor | None,
    chunk_size: int,
    dt_softplus: bool,
    dt_min: float,
    dt_max: float,
) -> list[Tensor]:
    inputs = (x, dt, A, B, C, D, z, dt_bias, initial_states)
    gradients = [None if tensor is None else empty_like(tensor) for tensor in inputs]
    ssd_backward(
        (*in_order(*inputs, seq_idx, dout, dfinal_states), *gradients),
        (chunk_size, dt_softplus, dt_min, dt_max, dfinal_states is not None, True),
    )
    return [gradient for gradient in gradients if gradient is not None]


@ssd_chunk_scan_bwd.register_fake
def _(x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, dout, dfinal, chunk_size, dt_softplus, dt_min, dt_max):
    inputs = (x, dt, A, B, C, D, z, dt_bias, initial_states)
    return [empty_like(tensor) for tensor in inputs if tensor is not None]


def save_ssd(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:11])
    ctx.options = inputs[11:15]
    ctx.has_final_states = inputs[15]


def differentiate_ssd(ctx, dout, dfinal_states):
    tensors, cu_seqlens = ctx.saved_tensors[:10], ctx.saved_tensors[10]
    if cu_seqlens is not None:
        raise NotImplementedError("return_varlen_states has no gradients")
    dfinal_states = dfinal_states if ctx.has_final_states else None
    gradients = call(ssd_chunk_scan_bwd, (*tensors, dout, dfinal_states), *ctx.options)
    return *spread(gradients, tensors[:9]), *[None] * 7


differentiable(ssd_chunk_scan_fwd, save_ssd, differentiate_ssd)


def mamba_chunk_scan(
    x,
    dt,
    A,
    B,
    C,
    chunk_size,
    D=None,
    z=None,
    dt_bias=None,
    initial_states=None,
    seq_idx=None,
    cu_seqlens=None,
    dt_softplus=False,
    dt_limit=(0.0, float("inf")),
    return_final_states=False,
    return_varlen_states=False,
    state_dtype=None,
):
    """Mamba-2's scan (SSD), as mamba_ssm's mamba_chunk_scan_combined.

    x, z: (batch, seqlen, nheads, headdim). dt: (batch, seqlen, nheads). A, dt_bias: (nheads,). B, C: (batch, seqlen,
    groups, dstate). D: (nheads,) or (nheads, headdim). initial_states: (batch, nheads, headdim, dstate). seq_idx:
    (batch, seqlen). Returns out like x, and the states that are asked for, (batch or sequences, nheads, headdim,
    dstate) in f32. Varlen states take cu_seqlens, which say where the sequences of seq_idx begin in a batch of 1.
    state_dtype is accepted and ignored: states between chunks are f32 or what the kernel needs.
    """
    _operations.check_varlen(return_varlen_states, cu_seqlens, initial_states)
    if return_varlen_states:
        seq_idx = None  # cu_seqlens say the same
    given = x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens if return_varlen_states else None
    with_states = bool(return_final_states or return_varlen_states)
    chunk_size = min(chunk_size, _operations.MOST_STEPS_OF_A_CHUNK)
    options = chunk_size, bool(dt_softplus), float(dt_limit[0]), float(dt_limit[1]), with_states
    results = ssd_forward.repeated(given, options)
    if results is None:
        results = chunk_scan_of(given, options)
        ssd_forward.remember(given, options, results)
    out, states = results if with_states else (*results, None)
    if return_varlen_states:
        return (out, states[-1:], states) if return_final_states else (out, states)
    return (out, states) if return_final_states else out


def chunk_scan_of(given, options):
    """out in the dtype of x, and the states if they are asked for."""
    x, dt, _, B, C, _, z, *_ = given
    dtype, out_dtype = io_dtype(x, dt, B, C, z), x.dtype
    f32, i32 = torch.float32, torch.int32
    dtypes = (dtype, dtype, f32, dtype, dtype, f32, dtype, f32, f32, i32, i32)
    x, dt, A, B, C, *others = in_dtypes(given, dtypes)
    # Mostly slices of what a convolution returned. Gradients need dense ones, too: as inputs of the operator the
    # copies are kept for them, in place of that result, and not made a second time.
    tensors = x.contiguous(), dt, A, B.contiguous(), C.contiguous(), *others
    out, states = call(ssd_chunk_scan_fwd, tensors, *options)
    out = converted(out, out_dtype)
    return (out, states) if options[-1] else (out,)
