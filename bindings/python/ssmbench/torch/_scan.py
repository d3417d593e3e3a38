"""Mamba-1's selective scan."""

import torch
from torch import Tensor

from .. import _operations
from .._operations import CHANNELS_LAST, SCAN_INPUTS, STEPS_OF_X
from ._operation import Operation, call, differentiable, needs_gradients, operator
from ._tensors import converted, empty_like, has_channels_last, in_dtypes, in_order, io_dtype, spread, stored

scan_forward = Operation(_operations.scan_forward)
scan_backward = Operation(_operations.scan_backward)
scan_forward_with_x = Operation(_operations.scan_forward_with_x)
scan_backward_with_x = Operation(_operations.scan_backward_with_x)


def order_of(kind, tensor, second_layout):
    """In which order a tensor of SCAN_INPUTS has to be; constant projections have rank 2."""
    return kind if second_layout and kind is not None and tensor.dim() == len(kind) else None


def scan_stored(tensors, second_layout):
    if not second_layout:
        return in_order(*tensors)
    kinds = (*[kind for _, _, kind in SCAN_INPUTS], CHANNELS_LAST)
    return [
        None if tensor is None else stored(tensor, order_of(kind, tensor, True))
        for kind, tensor in zip(kinds, tensors)
    ]


def scan_outputs(u, A, channels_last, keeps_x):
    """out, last_state, and x, which is empty unless it is kept."""
    out = empty_like(u, CHANNELS_LAST if channels_last else None)
    x_size = (u.shape[0], -(-u.shape[2] // STEPS_OF_X), *A.shape) if keeps_x else (0,)
    return out, *[torch.empty(size, dtype=A.dtype, device=A.device) for size in ((u.shape[0], *A.shape), x_size)]


@operator("selective_scan_fwd")
def selective_scan_fwd(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    delta_softplus: bool,
    keeps_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    channels_last = has_channels_last(u)
    outputs = scan_outputs(u, A, channels_last, keeps_x)
    inputs = scan_stored((u, delta, A, B, C, D, z, delta_bias), channels_last)
    if keeps_x:
        scan_forward_with_x((*inputs, *outputs), (delta_softplus,), channels_last)
    else:
        scan_forward((*inputs, *outputs[:2]), (delta_softplus,), channels_last)
    return outputs


@selective_scan_fwd.register_fake
def _(u, delta, A, B, C, D, z, delta_bias, delta_softplus, keeps_x):
    return scan_outputs(u, A, has_channels_last(u), keeps_x)


def scan_gradients(tensors, second_layout):
    return [
        None if tensor is None else empty_like(tensor, order_of(kind, tensor, second_layout))
        for (_, _, kind), tensor in zip(SCAN_INPUTS, tensors)
    ]


@operator("selective_scan_bwd")
def selective_scan_bwd(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    dout: Tensor,
    x: Tensor | None,
    delta_softplus: bool,
) -> list[Tensor]:
    inputs = (u, delta, A, B, C, D, z, delta_bias)
    channels_last = has_channels_last(u)
    gradients = scan_gradients(inputs, channels_last)
    inputs = scan_stored((*inputs, dout), channels_last)
    if x is None:
        scan_backward((*inputs, *gradients), (delta_softplus,), channels_last)
    else:
        scan_backward_with_x((*inputs, x, *gradients), (delta_softplus,), channels_last)
    return [gradient for gradient in gradients if gradient is not None]


@selective_scan_bwd.register_fake
def _(u, delta, A, B, C, D, z, delta_bias, dout, x, delta_softplus):
    gradients = scan_gradients((u, delta, A, B, C, D, z, delta_bias), has_channels_last(u))
    return [gradient for gradient in gradients if gradient is not None]


def save_scan(ctx, inputs, output):
    *tensors, ctx.delta_softplus, keeps_x = inputs
    ctx.set_materialize_grads(False)  # zeros in place of the gradient of x, which nobody sees
    ctx.save_for_backward(*tensors, output[2] if keeps_x else None)


def differentiate_scan(ctx, dout, *_):
    *tensors, x = ctx.saved_tensors
    gradients = call(selective_scan_bwd, (*tensors, dout, x), ctx.delta_softplus)
    return *spread(gradients, tensors), None, None


differentiable(selective_scan_fwd, save_scan, differentiate_scan)


def projection(tensor, dtype, is_complex):
    """B or C as the library has it: (dim, dstate), or (batch, groups, dstate, seqlen)."""
    if tensor.dim() == 2:
        return converted(tensor, torch.complex64 if is_complex else torch.float32)
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(1)
    if is_complex:
        return torch.view_as_complex(tensor.float().unflatten(-1, (-1, 2)).contiguous())
    return converted(tensor, dtype)


def selective_scan(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False, keep_states=False
):
    """Mamba-1's selective scan, as mamba_ssm's selective_scan_fn.

    u, delta, z: (batch, dim, seqlen). A: (dim, dstate), real or complex. B, C: (dim, dstate), (batch, dstate, seqlen)
    or (batch, groups, dstate, seqlen); with a complex A twice as long, real and imaginary parts in turns. D,
    delta_bias: (dim,). Returns out like u, or (out, last_state) with last_state (batch, dim, dstate) in f32 or
    complex64, through which no gradient flows. Transposed (batch, seqlen, dim) tensors are taken without a copy.
    With keep_states the states of every 8 steps are kept for the gradients, which then need not compute them again:
    dstate/2 floats an element of u. On GPUs that takes Hopper, a real A, B and C per step, dstate 8 or 16, and seqlen
    (transposed: dim over groups) a multiple of 8.
    """
    given, softplus = (u, delta, A, B, C, D, z, delta_bias), bool(delta_softplus)
    keeps_x = keep_states and needs_gradients(given)
    results = None if keeps_x else scan_forward.repeated(given, softplus)
    if results is None:
        results = scan_of(*given, softplus, keeps_x)
        if not keeps_x:
            scan_forward.remember(given, softplus, results)
    out, last_state = results
    return (out, last_state.detach()) if return_last_state else out


def scan_of(u, delta, A, B, C, D, z, delta_bias, delta_softplus, keeps_x=False):
    """out and last_state, in the dtypes that they are to have."""
    is_complex = A.is_complex()
    dtype = io_dtype(u, delta, z) if is_complex else io_dtype(u, delta, z, *[t for t in (B, C) if t.dim() > 2])
    B, C = projection(B, dtype, is_complex), projection(C, dtype, is_complex)
    rate = torch.complex64 if is_complex else torch.float32
    tensors = in_dtypes(
        (u, delta, A, B, C, D, z, delta_bias),
        (dtype, dtype, rate, B.dtype, C.dtype, torch.float32, dtype, torch.float32),
    )
    out, last_state, _ = call(selective_scan_fwd, tensors, delta_softplus, keeps_x)
    return converted(out, u.dtype), last_state
