"""causal_conv1d and the parts of mamba_ssm and FlashInfer that exporters call, step by step in PyTorch on any device.

They take what the real ones take, and complain where these would. They are there to see that exporters pass every
tensor in the right place and layout; what the real kernels compute is for the exporters to find out.
"""

import sys
import types

import torch


def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False,
                     final_states_out=None, activation=None):  # fmt: skip
    width = weight.shape[1]
    channels_last = x.stride(1) == 1
    assert 2 <= width <= 4 and activation in (None, "silu")
    assert channels_last or (seq_idx is None and initial_states is None and not return_final_states)
    assert not channels_last or x.shape[1] % 8 == 0
    assert initial_states is None or initial_states.stride(1) == 1
    before = x.new_zeros(x.shape[0], x.shape[1], width - 1) if initial_states is None else initial_states
    padded = torch.cat([before, x], 2).float()
    steps = x.shape[2]
    numbers = None
    if seq_idx is not None:
        nobody = seq_idx.new_full((x.shape[0], width - 1), -2)
        numbers = torch.cat([nobody, seq_idx], 1)
    out = torch.zeros_like(padded[:, :, :steps]) if bias is None else bias.float()[None, :, None].expand(*x.shape)
    for tap in range(width):
        term = weight.float()[:, tap, None] * padded[:, :, tap : tap + steps]
        if numbers is not None:
            term = term * (numbers[:, None, tap : tap + steps] == seq_idx[:, None])
        out = out + term
    if numbers is not None:
        out = out * (seq_idx[:, None] >= 0)
    out = (torch.nn.functional.silu(out) if activation else out).to(x.dtype)
    return (out, padded[:, :, steps:].to(x.dtype)) if return_final_states else out


def causal_conv1d_update(x, conv_state, weight, bias=None, activation=None, cache_seqlens=None,
                         conv_state_indices=None):  # fmt: skip
    single = x.dim() == 2
    new = x[:, :, None] if single else x
    width, kept = weight.shape[1], conv_state.shape[2]
    out = torch.zeros_like(new)
    for b in range(new.shape[0]):
        slot = b if conv_state_indices is None else int(conv_state_indices[b])
        if slot < 0:
            continue
        everything = torch.cat([conv_state[slot], new[b]], 1).float()
        for t in range(new.shape[2]):
            window = everything[:, kept + t - width + 1 : kept + t + 1]
            total = (window * weight.float()).sum(1) + (0 if bias is None else bias.float())
            out[b, :, t] = (torch.nn.functional.silu(total) if activation else total).to(x.dtype)
        conv_state[slot] = everything[:, -kept:].to(x.dtype)
    return out[:, :, 0] if single else out


def selective_state_update(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False,
                           state_batch_indices=None):  # fmt: skip
    assert x.dim() == state.dim() - 1
    out = torch.zeros_like(x)
    for b in range(x.shape[0]):
        slot = b if state_batch_indices is None else int(state_batch_indices[b])
        if slot < 0:
            continue
        step = dt[b].float() + dt_bias
        step = torch.nn.functional.softplus(step, threshold=50) if dt_softplus else step
        before, after = (tensor[b].float() for tensor in (B, C))
        if state.dim() == 4:
            before, after = (t.repeat_interleave(x.shape[1] // t.shape[0], 0)[:, None] for t in (before, after))
        h = torch.exp(step[..., None] * A) * state[slot].float() + (step * x[b].float())[..., None] * before
        state[slot] = h.to(state.dtype)
        y = (h * after).sum(-1) + D * x[b].float()
        out[b] = (y if z is None else y * torch.nn.functional.silu(z[b].float())).to(x.dtype)
    return out


def quantized(h, state_dtype):
    """Rows of states in a dtype with scales: what is stored, and the scales."""
    most = {torch.int16: 32767}[state_dtype]
    largest = h.abs().amax(-1)
    scale = torch.where(largest == 0, torch.ones_like(largest), largest / most)
    return (h / scale[..., None]).round().clamp(-most, most).to(state_dtype), scale


def flashinfer_update(state, x, dt, A, B, C, D, z=None, dt_bias=None, dt_softplus=False, state_batch_indices=None,
                      pad_slot_id=-1, state_scale=None, out=None, disable_state_update=False,
                      intermediate_states_buffer=None, intermediate_state_indices=None,
                      intermediate_state_scales=None, rand_seed=None, philox_rounds=10, cache_steps=0,
                      algorithm="auto", dst_state_batch_indices=None, cu_seqlens=None,
                      num_accepted_tokens=None):  # fmt: skip
    several = x.dim() == 4
    assert state.dim() == 4 and several == (cache_steps > 0) and (not several or x.shape[1] == cache_steps)
    assert all(tensor.stride(-1) == 0 for tensor in (dt, A, D)) and A.stride(-2) == 0
    assert dt_bias is None or (dt_bias.stride(-1) == 0 and dt_bias.dtype == dt.dtype)
    assert D.dtype == dt.dtype and A.dtype == torch.float32
    assert B.dtype == C.dtype == x.dtype and (z is None or z.dtype == x.dtype)
    assert (state.dtype == torch.int16) == (state_scale is not None)
    assert rand_seed is None or (rand_seed.dtype == torch.int64 and state.dtype == torch.float16)
    assert intermediate_states_buffer is None or dst_state_batch_indices is None
    assert state.shape[0] >= x.shape[0]
    rows = [tensor if several or tensor is None else tensor[:, None] for tensor in (x, dt, B, C, z)]
    output = torch.empty_like(rows[0])
    repeat = state.shape[1] // B.shape[-2]
    for b in range(x.shape[0]):
        slot = b if state_batch_indices is None else int(state_batch_indices[b])
        h = torch.zeros_like(state[0], dtype=torch.float32) if slot == pad_slot_id else state[slot].float()
        if state_scale is not None and slot != pad_slot_id:
            h = h * state_scale[slot][..., None]
        for t in range(rows[0].shape[1]):
            x_t, dt_t, B_t, C_t, z_t = (None if row is None else row[b, t].float() for row in rows)
            B_t, C_t = (value.repeat_interleave(repeat, 0)[:, None] for value in (B_t, C_t))
            step = dt_t if dt_bias is None else dt_t + dt_bias
            step = torch.nn.functional.softplus(step, threshold=20) if dt_softplus else step
            h = torch.exp(step[..., None] * A) * h + (step * x_t)[..., None] * B_t
            y = (h * C_t).sum(-1) + D * x_t
            output[b, t] = (y if z_t is None else y * torch.nn.functional.silu(z_t)).to(x.dtype)
            if intermediate_states_buffer is not None:
                intermediate_states_buffer[int(intermediate_state_indices[b]), t] = h.to(state.dtype)
            to = slot
            if dst_state_batch_indices is not None:
                to = int(dst_state_batch_indices[b, t] if several else dst_state_batch_indices[b])
            elif disable_state_update or intermediate_states_buffer is not None or t + 1 < rows[0].shape[1]:
                to = pad_slot_id
            if pad_slot_id in (slot, to):
                continue
            if state_scale is None:
                state[to] = h.to(state.dtype)
            else:
                state[to], state_scale[to] = quantized(h, state.dtype)
    return output if several else output[:, 0]


def mamba_chunk_scan_combined(x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None,
                              seq_idx=None, cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, float("inf")),
                              return_final_states=False, return_varlen_states=False):  # fmt: skip
    batch, length, heads, headdim = x.shape
    repeat = heads // B.shape[2]
    step = dt.float() if dt_bias is None else dt.float() + dt_bias
    step = torch.nn.functional.softplus(step, threshold=50) if dt_softplus else step
    step = step.clamp(*dt_limit)
    h = x.new_zeros(batch, heads, headdim, B.shape[3], dtype=torch.float32)
    if initial_states is not None:
        h = initial_states.float()
    before, after = (t.float().repeat_interleave(repeat, 2) for t in (B, C))
    states, out = [], []
    for t in range(length):
        if seq_idx is not None and t > 0:
            h = h * (seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None]
        decay = torch.exp(step[:, t] * A)[..., None, None]
        h = decay * h + (step[:, t, :, None] * x[:, t].float())[..., None] * before[:, t, :, None]
        states.append(h)
        y = (h * after[:, t, :, None]).sum(-1)
        if D is not None:
            y = y + (D if D.dim() == 2 else D[:, None]) * x[:, t].float()
        out.append(y if z is None else y * torch.nn.functional.silu(z[:, t].float()))
    results = [torch.stack(out, 1).to(x.dtype)]
    if return_final_states:
        results.append(h)
    if return_varlen_states:
        results.append(torch.stack([states[end - 1][0] for end in cu_seqlens[1:].tolist()]))
    return results[0] if len(results) == 1 else tuple(results)


def install():
    """As the modules that exporters import."""
    def module(name, **contents):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(contents)

    module("causal_conv1d", causal_conv1d_fn=causal_conv1d_fn, causal_conv1d_update=causal_conv1d_update)
    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "flashinfer"):
        module(name, __path__=[])
    module("flashinfer.mamba", selective_state_update=flashinfer_update)
    module("mamba_ssm.ops.selective_scan_interface", selective_scan_cuda="installed, and not called")
    module("mamba_ssm.ops.triton.selective_state_update", selective_state_update=selective_state_update)
    module("mamba_ssm.ops.triton.ssd_combined", mamba_chunk_scan_combined=mamba_chunk_scan_combined)
