"""causal_conv1d and the parts of mamba_ssm and FlashInfer that exporters call, step by step in PyTorch on any device.

They take what the real ones take, and complain where these would. They are there to see that exporters pass every
tensor in the right place and layout; what the real kernels compute is for the exporters to find out.
"""

import sys
import types

import torch


def convolved(x, weight, bias, seq_idx, before, silu):
    """out, and the steps that the next would reach, in f32."""
    width, steps = weight.shape[1], x.shape[2]
    if before is None:
        before = x.new_zeros(x.shape[0], x.shape[1], width - 1)
    padded = torch.cat([before, x], 2).float()
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
    return torch.nn.functional.silu(out) if silu else out, padded[:, :, steps:]


def check_sequences(x, weight, seq_idx, *states):
    channels_last = x.stride(1) == 1
    assert 2 <= weight.shape[1] <= 4
    assert channels_last or all(tensor is None for tensor in (seq_idx, *states))
    assert not channels_last or x.shape[1] % 8 == 0
    assert all(tensor is None or tensor.stride(1) == 1 for tensor in states)


def causal_conv1d_fwd(x, weight, bias, seq_idx, initial_states, out, final_states, silu):
    check_sequences(x, weight, seq_idx, initial_states, final_states)
    results, last = convolved(x, weight, bias, seq_idx, initial_states, silu)
    out.copy_(results)
    if final_states is not None:
        final_states.copy_(last)


def causal_conv1d_bwd(x, weight, bias, dout, seq_idx, initial_states, dfinal_states, dx, dweight, dbias,
                      dinitial_states, silu):  # fmt: skip
    check_sequences(x, weight, seq_idx, initial_states, dfinal_states, dinitial_states)
    inputs = [x, weight, bias, initial_states]
    leaves = [None if tensor is None else tensor.detach().float().requires_grad_() for tensor in inputs]
    with torch.enable_grad():
        results = convolved(*leaves[:3], seq_idx, leaves[3], silu)
    given = [dout.float(), torch.zeros_like(results[1]) if dfinal_states is None else dfinal_states.float()]
    wanted = [leaf for leaf in leaves if leaf is not None]
    found = iter(torch.autograd.grad(results, wanted, given, allow_unused=True))
    gradients = [None if leaf is None else next(found) for leaf in leaves]
    dx.copy_(gradients[0])
    for total, gradient in zip((dweight, dbias), gradients[1:3]):  # the kernel adds to them
        if total is not None:
            total += gradient
    if dinitial_states is not None:
        dinitial_states.copy_(gradients[3])


def causal_conv1d_update(x, conv_state, weight, bias, out, silu, cache_seqlens, conv_state_indices):
    assert cache_seqlens is None and x.dim() == out.dim() == 3
    width, kept = weight.shape[1], conv_state.shape[2]
    for b in range(x.shape[0]):
        slot = b if conv_state_indices is None else int(conv_state_indices[b])
        if slot < 0:
            out[b] = 0
            continue
        everything = torch.cat([conv_state[slot], x[b]], 1).float()
        for t in range(x.shape[2]):
            window = everything[:, kept + t - width + 1 : kept + t + 1]
            total = (window * weight.float()).sum(1) + (0 if bias is None else bias.float())
            out[b, :, t] = (torch.nn.functional.silu(total) if silu else total).to(x.dtype)
        conv_state[slot] = everything[:, -kept:].to(x.dtype)


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


def turned(x, angles, interleaved):
    """Pairs of the last axis of x, turned by the angles of its first ones."""
    count, half = angles.shape[-1], x.shape[-1] // 2
    first = torch.arange(count) * 2 if interleaved else torch.arange(count)
    second = first + (1 if interleaved else half)
    result = x.clone()
    result[..., first] = x[..., first] * angles.cos() - x[..., second] * angles.sin()
    result[..., second] = x[..., first] * angles.sin() + x[..., second] * angles.cos()
    return result


def mamba3_sequence(Q, K, V, ADT, DT, Trap, Angles, D, interleaved, states):
    """One sequence of each batch: Q, K (B, L, R, H, N) with biases, V (B, L, R, H, P). y, and the states after it."""
    angles, ssm, k_before, v_before = states
    rows = []
    for t in range(V.shape[1]):
        step, weight, decay = DT[:, :, t], torch.sigmoid(Trap[:, :, t].float()), torch.exp(ADT[:, :, t])
        angles = angles + step[..., None] * torch.pi * torch.tanh(Angles[:, t].float())
        q, k = (turned(x[:, t], angles[:, None], interleaved) for x in (Q, K))
        before = torch.einsum("brhp,brhn->bhpn", v_before, k_before)
        own = torch.einsum("brhp,brhn->bhpn", V[:, t], k)
        of_before = ((1 - weight) * step * decay)[..., None, None] * before
        ssm = decay[..., None, None] * ssm + of_before + (weight * step)[..., None, None] * own
        y = torch.einsum("bhpn,brhn->brhp", ssm, q)
        rows.append(y if D is None else y + D[:, None] * V[:, t])
        k_before, v_before = k, V[:, t]
    return torch.stack(rows, 1), (angles, ssm, k_before, v_before)


def mamba3(Q, K, V, ADT, DT, Trap, Q_bias, K_bias, Angles, D, up, states, borders, interleaved):
    """y (B, L, R, H, P) of Q, K (B, L, R, G, N), and the final states, V's before its projection."""
    heads = V.shape[2]
    repeat = heads // Q.shape[3]
    q, k = (
        x.float().repeat_interleave(repeat, 3) + bias.transpose(0, 1) for x, bias in ((Q, Q_bias), (K, K_bias))
    )
    raised = V.float()[:, :, None] * up.transpose(0, 1)
    if states is None:
        count = V.shape[0] if borders is None else len(borders) - 1
        sizes = (Angles.shape[-1:], (V.shape[-1], Q.shape[-1]), Q.shape[-1:], V.shape[-1:])
        states = [V.new_zeros(count, heads, *size, dtype=torch.float32) for size in sizes]
    states = (states[0], states[1], states[2][:, None], states[3][:, None] * up.transpose(0, 1))
    limits = [0, V.shape[1]] if borders is None else borders.tolist()
    rows, finals = [], []
    for m, (begin, end) in enumerate(zip(limits, limits[1:])):
        here = slice(begin, end)
        own = states if borders is None else tuple(state[m : m + 1] for state in states)
        parts = (q[:, here], k[:, here], raised[:, here], ADT[:, :, here], DT[:, :, here], Trap[:, :, here])
        y, after = mamba3_sequence(*parts, Angles[:, here], D, interleaved, own)
        rows.append(y)
        finals.append((*after[:3], V[:, end - 1]))
    return torch.cat(rows, 1), [torch.cat(state) for state in zip(*finals)]


def mamba3_siso_combined(Q, K, V, ADT, DT, Trap, Q_bias, K_bias, Angles, D=None, Z=None, Input_States=None,
                         chunk_size=64, return_final_states=False, cu_seqlens=None):  # fmt: skip
    assert all(x.dtype == torch.bfloat16 for x in (Q, K, V, Trap, Angles)) and Angles.shape[-1] % 2 == 0
    one = torch.ones(V.shape[2], 1, V.shape[3])
    y, states = mamba3(Q[:, :, None], K[:, :, None], V, ADT, DT, Trap, Q_bias[:, None], K_bias[:, None], Angles, D, one,
                       Input_States, cu_seqlens, True)  # fmt: skip
    out = (y[:, :, 0] if Z is None else y[:, :, 0] * torch.nn.functional.silu(Z.float())).to(V.dtype)
    angles, ssm, k, v = states
    angles = torch.remainder(angles, 2 * torch.pi).to(Angles.dtype)
    return (out, angles, ssm, k[:, 0], v) if return_final_states else out


def mamba3_mimo(Q, K, V, ADT, DT, Trap, Q_bias, K_bias, MIMO_V, MIMO_Z, MIMO_Out, Angles, D, Z, chunk_size,
                rotary_dim_divisor, dtype, return_state=False, cu_seqlens=None,
                fuse_pregate_headwise_rms_norm=False, outproj_norm_weight=None, outproj_norm_eps=1e-5):  # fmt: skip
    assert rotary_dim_divisor in (2, 4) and Angles.shape[-1] * rotary_dim_divisor == Q.shape[-1]
    assert dtype == torch.bfloat16 and chunk_size >= 8
    y, states = mamba3(Q, K, V, ADT, DT, Trap, Q_bias, K_bias, Angles, D, MIMO_V, None, cu_seqlens, False)
    if fuse_pregate_headwise_rms_norm:
        y = y * (y.square().mean(-1, keepdim=True) + outproj_norm_eps).rsqrt() * outproj_norm_weight
    if Z is not None:
        y = y * torch.nn.functional.silu(Z.float()[:, :, None] * MIMO_Z.transpose(0, 1))
    out = (y if MIMO_Out is None else (y * MIMO_Out.transpose(0, 1)).sum(2)).to(V.dtype)
    return (out, torch.remainder(states[0], 2 * torch.pi), *states[1:]) if return_state else out


def mamba3_siso_step(Q, K, V, ADT, DT, Trap, Q_bias, K_bias, Angles, D=None, Z=None, Input_States=None):
    one = torch.ones(V.shape[1], 1, V.shape[2])
    y, states = mamba3(Q[:, None, None], K[:, None, None], V[:, None], ADT[..., None], DT[..., None], Trap[..., None],
                       Q_bias[:, None], K_bias[:, None], Angles[:, None], D, one, Input_States, None, True)  # fmt: skip
    out = y[:, 0, 0] if Z is None else y[:, 0, 0] * torch.nn.functional.silu(Z.float())
    return out.to(V.dtype), [states[0], states[1], states[2][:, 0], V]


def install():
    """As the modules that exporters import."""
    def module(name, **contents):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(contents)

    kernels = (causal_conv1d_fwd, causal_conv1d_bwd, causal_conv1d_update)
    module("causal_conv1d_cuda", **{kernel.__name__: kernel for kernel in kernels})
    for name in ("", ".ops", ".ops.triton", ".ops.triton.mamba3", ".ops.tilelang", ".ops.tilelang.mamba3"):
        module("mamba_ssm" + name, __path__=[])
    module("flashinfer", __path__=[])
    module("flashinfer.mamba", selective_state_update=flashinfer_update)
    module("mamba_ssm.ops.selective_scan_interface", selective_scan_cuda="installed, and not called")
    module("mamba_ssm.ops.triton.selective_state_update", selective_state_update=selective_state_update)
    module("mamba_ssm.ops.triton.ssd_combined", mamba_chunk_scan_combined=mamba_chunk_scan_combined)
    module("mamba_ssm.ops.triton.mamba3.mamba3_siso_combined", mamba3_siso_combined=mamba3_siso_combined)
    module("mamba_ssm.ops.triton.mamba3.mamba3_siso_step", mamba3_siso_step=mamba3_siso_step)
    module("mamba_ssm.ops.tilelang.mamba3.mamba3_mimo", mamba3_mimo=mamba3_mimo)
