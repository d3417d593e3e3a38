"""The convolution in front of a scan."""

import torch
from torch import Tensor

from .. import _operations
from .._operations import CHANNELS_LAST
from ._operation import Operation, call, differentiable, operator
from ._tensors import converted, empty_like, has_channels_last, in_order, spread, stored

conv_forward = Operation(_operations.conv_forward)
conv_backward = Operation(_operations.conv_backward)
conv_step = Operation(_operations.conv_step)


def conv_outputs(x, weight, with_final_states, channels_last):
    """out and final_states, which are empty if they are not asked for."""
    shape = (*x.shape[:2], weight.shape[-1] - 1) if with_final_states else (0,)
    out = empty_like(x, CHANNELS_LAST if channels_last else None)
    return out, torch.empty(shape, dtype=x.dtype, device=x.device)


@operator("causal_conv1d_fwd")
def causal_conv1d_fwd(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    initial_states: Tensor | None,
    seq_idx: Tensor | None,
    silu: bool,
    with_final_states: bool,
) -> tuple[Tensor, Tensor]:
    channels_last = has_channels_last(x)
    out, final_states = conv_outputs(x, weight, with_final_states, channels_last)
    x = stored(x, CHANNELS_LAST if channels_last else None)
    inputs = in_order(weight, bias, initial_states, seq_idx)
    conv_forward(
        (x, *inputs, out, final_states if with_final_states else None), (silu, with_final_states), channels_last
    )
    return out, final_states


@causal_conv1d_fwd.register_fake
def _(x, weight, bias, initial_states, seq_idx, silu, with_final_states):
    return conv_outputs(x, weight, with_final_states, has_channels_last(x))


def conv_gradients(x, weight, bias, initial_states):
    """Those of weight and bias are sums, in f32."""
    return [
        empty_like(x, CHANNELS_LAST if has_channels_last(x) else None),
        empty_like(weight, dtype=torch.float32),
        None if bias is None else empty_like(bias, dtype=torch.float32),
        None if initial_states is None else empty_like(initial_states),
    ]


@operator("causal_conv1d_bwd")
def causal_conv1d_bwd(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    initial_states: Tensor | None,
    seq_idx: Tensor | None,
    dout: Tensor,
    dfinal_states: Tensor | None,
    silu: bool,
) -> list[Tensor]:
    channels_last = has_channels_last(x)
    order = CHANNELS_LAST if channels_last else None
    gradients = conv_gradients(x, weight, bias, initial_states)
    *inputs, dfinal_states = in_order(weight, bias, initial_states, seq_idx, dfinal_states)
    conv_backward(
        (stored(x, order), *inputs, stored(dout, order), dfinal_states, *gradients),
        (silu, dfinal_states is not None),
        channels_last,
    )
    return [gradient for gradient in gradients if gradient is not None]


@causal_conv1d_bwd.register_fake
def _(x, weight, bias, initial_states, seq_idx, dout, dfinal_states, silu):
    return [gradient for gradient in conv_gradients(x, weight, bias, initial_states) if gradient is not None]


def save_conv(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:5])
    ctx.silu, ctx.has_final_states = inputs[5:]


def differentiate_conv(ctx, dout, dfinal_states):
    tensors = ctx.saved_tensors
    dfinal_states = dfinal_states if ctx.has_final_states else None
    gradients = call(causal_conv1d_bwd, (*tensors, dout, dfinal_states), ctx.silu)
    gradients = spread(gradients, tensors[:4])
    return *[g if g is None else converted(g, t.dtype) for g, t in zip(gradients, tensors)], None, None, None


differentiable(causal_conv1d_fwd, save_conv, differentiate_conv)


def conv_weights(x, weight, bias):
    """In the dtype of x where both have it, else in f32."""
    dtype = weight.dtype if weight.dtype == x.dtype and (bias is None or bias.dtype == x.dtype) else torch.float32
    return converted(weight, dtype), converted(bias, dtype)


def causal_conv1d(
    x,
    weight,
    bias=None,
    seq_idx=None,
    initial_states=None,
    return_final_states=False,
    final_states_out=None,
    activation=None,
):
    """Causal depthwise convolution, as causal-conv1d's causal_conv1d_fn.

    x: (batch, dim, seqlen), in either layout. weight: (dim, width), width 2 to 8. bias: (dim,). seq_idx: (batch,
    seqlen); taps reach back within a sequence only. initial_states, final_states_out: (batch, dim, width - 1).
    activation: None, "silu" or "swish". Returns out like x, or (out, final_states).
    """
    given, options = (x, weight, bias, initial_states, seq_idx), (_operations.is_silu(activation), return_final_states)
    results = conv_forward.repeated(given, options)
    if results is None:
        weight, bias = conv_weights(x, weight, bias)
        tensors = (x, weight, bias, converted(initial_states, x.dtype), converted(seq_idx, torch.int32))
        results = call(causal_conv1d_fwd, tensors, *options)[: 2 if return_final_states else 1]
        conv_forward.remember(given, options, results)
    if not return_final_states:
        return results[0]
    out, final_states = results
    return out, final_states if final_states_out is None else final_states_out.copy_(final_states)


@operator("causal_conv1d_update", mutates=("conv_state",))
def causal_conv1d_update_(
    conv_state: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, slots: Tensor | None, silu: bool
) -> Tensor:
    channels_last = not conv_state.is_contiguous() and conv_state.transpose(1, 2).is_contiguous()
    updated = conv_state if channels_last else conv_state.contiguous()
    inputs = in_order(x, weight, bias, slots)
    out = empty_like(x)
    conv_step((updated, *inputs, inputs[3], out), (silu,), channels_last)
    if updated is not conv_state:
        conv_state.copy_(updated)
    return out


@causal_conv1d_update_.register_fake
def _(conv_state, x, weight, bias, slots, silu):
    return empty_like(x)


def causal_conv1d_update(
    x, conv_state, weight, bias=None, activation=None, cache_seqlens=None, conv_state_indices=None
):
    """Decoding steps of the convolution, as causal-conv1d's: writes the state in place and returns out.

    x: (batch, dim) or (batch, dim, tokens). conv_state: (batch or slots, dim, state_len), state_len at least width - 1,
    in either layout and of x's dtype. cache_seqlens (batch,): the state is a ring buffer, and x goes in from there on.
    conv_state_indices (batch,): the slot of each row.
    """
    silu = _operations.is_silu(activation)
    if cache_seqlens is not None:
        return conv_step_of(x, conv_state, weight, bias, silu, cache_seqlens, conv_state_indices)
    given = conv_state, x, weight, bias, conv_state_indices
    results = conv_step.repeated(given, silu, twice=conv_state_indices)
    if results is None:
        results = (conv_step_of(x, conv_state, weight, bias, silu, None, conv_state_indices),)
        conv_step.remember(given, silu, results, twice=conv_state_indices)
    return results[0]


def conv_step_of(x, conv_state, weight, bias, silu, cache_seqlens, conv_state_indices):
    """out like x."""
    weight, bias = conv_weights(x, weight, bias)
    rows = x.transpose(1, 2) if x.dim() == 3 else x
    single = x.dim() == 3 and rows.shape[1] == 1
    if single:
        rows = rows.squeeze(1)
    slots = converted(conv_state_indices, torch.int32)
    if cache_seqlens is None:
        out = call(causal_conv1d_update_, (conv_state, rows, weight, bias, slots), silu)
    else:
        out = update_of_ring(conv_state, rows, weight, bias, slots, silu, cache_seqlens)
    if x.dim() == 3:
        out = out.unsqueeze(2) if single else out.transpose(1, 2)
    return out


def update_of_ring(conv_state, rows, weight, bias, slots, silu, position):
    """The newest steps in order, an update of those, and the new ones to their places."""
    chosen = conv_state if slots is None else conv_state[slots.long()]
    batch, dim, length = chosen.shape
    taps, tokens = weight.shape[1] - 1, rows.shape[1] if rows.dim() == 3 else 1
    steps = torch.arange(-taps, tokens, device=rows.device)
    places = ((position.long().unsqueeze(1) + steps) % length).unsqueeze(1).expand(batch, dim, -1)
    newest = chosen.gather(2, places[..., :taps])
    out = call(causal_conv1d_update_, (newest, rows, weight, bias, None), silu)
    new = rows.transpose(1, 2) if rows.dim() == 3 else rows.unsqueeze(2)
    updated = chosen.scatter(2, places[..., taps:], new)
    if slots is None:
        conv_state.copy_(updated)
    else:
        conv_state[slots.long()] = updated
    return out
