"""The definitions of what ssmbench.torch computes, step by step in plain PyTorch."""

import torch
import torch.nn.functional as F


def per_channel(projection, dim):
    """(batch, dim, dstate, seqlen) of B or C, complex if they hold pairs; constant ones have rank 2."""
    if projection.dim() == 2:
        return projection[None, :, :, None]
    grouped = projection if projection.dim() == 4 else projection.unsqueeze(1)
    return grouped.repeat_interleave(dim // grouped.shape[1], dim=1)


def selective_scan(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False):
    """h = exp(delta A) h + delta B u, y = C h (twice the real part of complex states), and the last h."""
    if A.is_complex():
        B, C = (
            t if t.dim() == 2 else torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous()) for t in (B, C)
        )
    if delta_bias is not None:
        delta = delta + delta_bias[:, None]
    if delta_softplus:
        delta = F.softplus(delta)
    batch, dim, seqlen = u.shape
    B, C = (per_channel(t, dim).expand(batch, dim, -1, seqlen) for t in (B, C))
    h, outputs = A.new_zeros(batch, *A.shape), []
    for t in range(seqlen):
        d = delta[:, :, t, None]
        h = torch.exp(d * A) * h + d * B[..., t] * u[:, :, t, None]
        y = (C[..., t] * h).sum(-1)
        outputs.append(2 * y.real if A.is_complex() else y)
    out = torch.stack(outputs, 2)
    if D is not None:
        out = out + u * D[:, None]
    return (out if z is None else out * F.silu(z)), h


def chunk_scan(
    x,
    dt,
    A,
    B,
    C,
    D=None,
    z=None,
    dt_bias=None,
    initial_states=None,
    seq_idx=None,
    dt_softplus=False,
    dt_limit=(0.0, float("inf")),
):
    """The same recurrence with one rate a head; the state begins anew where seq_idx changes."""
    if dt_bias is not None:
        dt = dt + dt_bias
    if dt_softplus:
        dt = F.softplus(dt)
    dt = dt.clamp(*dt_limit)
    batch, seqlen, heads, headdim = x.shape
    B, C = (t.repeat_interleave(heads // t.shape[2], dim=2) for t in (B, C))
    h = x.new_zeros(batch, heads, headdim, B.shape[3]) if initial_states is None else initial_states
    outputs = []
    for t in range(seqlen):
        if seq_idx is not None and t > 0:
            h = h * (seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None]
        decay = torch.exp(dt[:, t] * A)[..., None, None]
        h = decay * h + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None, :]
        outputs.append((h * C[:, t, :, None, :]).sum(-1))
    out = torch.stack(outputs, 1)
    if D is not None:
        out = out + x * (D[:, None] if D.dim() == 1 else D)
    return (out if z is None else out * F.silu(z)), h


def state_update(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False):
    """A step, all with a head axis: state (batch, heads, dim, dstate); returns the state and out."""
    if dt_bias is not None:
        dt = dt + dt_bias
    if dt_softplus:
        dt = F.softplus(dt)
    B, C = (t.repeat_interleave(x.shape[1] // t.shape[1], dim=1)[:, :, None, :] for t in (B, C))
    state = torch.exp(dt[..., None] * A) * state + (dt * x)[..., None] * B
    out = (state * C).sum(-1)
    if D is not None:
        out = out + x * D
    return state, (out if z is None else out * F.silu(z))


def convolution(x, weight, bias=None, initial_states=None, seq_idx=None, silu=False):
    """Each channel with its weights; taps of another sequence count 0."""
    width, seqlen = weight.shape[1], x.shape[2]
    before = x.new_zeros(*x.shape[:2], width - 1) if initial_states is None else initial_states
    padded = torch.cat([before, x], 2)
    out = 0 if bias is None else bias[:, None]
    for j in range(width):
        tap = padded[:, :, j : j + seqlen]
        if seq_idx is not None:
            numbers = F.pad(seq_idx, (width - 1, 0), value=-1)[:, j : j + seqlen]
            tap = tap * (numbers == seq_idx)[:, None]
        out = out + weight[:, j, None] * tap
    return (F.silu(out) if silu else out), padded[:, :, seqlen:]
