"""A decoding step of Mamba-1 or Mamba-2."""

import torch
from torch import Tensor

from .. import _operations
from ._operation import Operation, call, operator
from ._tensors import converted, empty_like, in_dtypes, in_order, io_dtype

step = Operation(_operations.step)


@operator("selective_state_update", mutates=("state",))
def selective_state_update_(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    dt_bias: Tensor | None,
    slots: Tensor | None,
    dt_softplus: bool,
) -> Tensor:
    out = empty_like(x)
    updated, slots, *inputs = in_order(state, slots, x, dt, A, B, C, D, z, dt_bias)
    step((updated, *inputs, slots, None if slots is None else slots.unsqueeze(1), out), (dt_softplus,))
    if updated is not state:
        state.copy_(updated)
    return out


@selective_state_update_.register_fake
def _(state, x, dt, A, B, C, D, z, dt_bias, slots, dt_softplus):
    return empty_like(x)


def is_one_number(tensor, axes):
    """Whether the last axes are one number that was expanded."""
    strides = tensor.stride()
    for axis in axes:
        if strides[axis] != 0 and tensor.shape[axis] != 1:
            return False
    return True


def as_one_row(state, x, dt, A, B, C, D, z, dt_bias):
    """Heads of Mamba-2 as the library has them: one rate a head; else all channels of all heads in a row."""
    if (
        is_one_number(A, (-1, -2))
        and is_one_number(dt, (-1,))
        and (D is None or is_one_number(D, (-1,)))
        and (dt_bias is None or is_one_number(dt_bias, (-1,)))
    ):
        D, dt_bias = (None if t is None else t.select(-1, 0) for t in (D, dt_bias))
        return state, x, dt.select(-1, 0), A.select(-1, 0).select(-1, 0), B, C, D, z, dt_bias
    x, dt, z = (None if t is None else t.flatten(1) for t in (x, dt, z))
    D, dt_bias = (None if t is None else t.flatten() for t in (D, dt_bias))
    if B.shape[1] == 1:
        B, C = B.squeeze(1), C.squeeze(1)
    return state.view(state.shape[0], -1, state.shape[3]), x, dt, A.flatten(0, 1), B, C, D, z, dt_bias


def selective_state_update(
    state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False, state_batch_indices=None
):
    """A decoding step, as mamba_ssm's selective_state_update: writes the new state in place and returns out.

    Mamba-1: state (batch, dim, dstate); x, dt, z (batch, dim); A (dim, dstate); B, C (batch, dstate) or (batch, groups,
    dstate); D, dt_bias (dim,). Mamba-2: (nheads, headdim) in place of dim. What is one number a head is best expanded,
    which is recognized by strides of 0. state_batch_indices (batch,): the row of state that each row of x has; -1 is
    padding.
    """
    given, softplus = (state, x, dt, A, B, C, D, z, dt_bias, state_batch_indices), bool(dt_softplus)
    results = step.repeated(given, softplus, twice=state_batch_indices)
    if results is None:
        results = (step_of(*given, softplus),)
        step.remember(given, softplus, results, twice=state_batch_indices)
    return results[0]


def step_of(state, x, dt, A, B, C, D, z, dt_bias, state_batch_indices, dt_softplus):
    """out like x."""
    dtype = io_dtype(x, B, C, z)
    f32 = torch.float32
    tensors = in_dtypes(
        (state, x, dt, A, B, C, D, z, dt_bias),
        (state.dtype, dtype, dtype if dt.dtype == dtype else f32, f32, dtype, dtype, f32, dtype, f32),
    )
    if state.dim() == 4:
        tensors = as_one_row(*tensors)
    elif B.dim() == 3 and B.shape[1] == 1:
        tensors = (*tensors[:4], tensors[4].squeeze(1), tensors[5].squeeze(1), *tensors[6:])
    tensors = (*tensors, converted(state_batch_indices, torch.int32))
    out = call(selective_state_update_, tensors, dt_softplus)
    return converted(out if out.dim() == x.dim() else out.view(x.shape), x.dtype)
