"""Mamba-1's selective scan in Triton, as a plugin: once right, once subtly wrong.

    ssmbench run configs/mamba-370m.json --plugin plugins/example_python/scan_triton.py --impl 'triton-*'

Method zoh, real A, B and C that vary in time, every option and dtype, any layout. A program computes one channel,
step by step, with its states in registers. With TRITON_INTERPRET=1 it runs on the CPU, slowly; Triton truncates to bf16
there, where a GPU rounds, and both fail in bf16. Triton 3.6's interpreter runs with NumPy 2.3, and not with 2.5.
"""

import os

import ssmbench
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x / (1 + tl.exp(-x))


@triton.jit
def scan_kernel(
    u, delta, A, B, C, D, z, delta_bias, initial_state, out, last_state,
    dim, seqlen, dstate, channels_per_group,
    u_batch, u_dim, u_time, B_batch, B_group, B_state, B_time, C_batch, C_group, C_state, C_time,
    HAS_D: tl.constexpr, HAS_Z: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_INITIAL: tl.constexpr,
    SOFTPLUS: tl.constexpr, STATES: tl.constexpr, LOW_STATE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    b, d = row // dim, row % dim
    group = d // channels_per_group
    n = tl.arange(0, STATES)
    mask = n < dstate
    a = tl.load(A + d * dstate + n, mask, 0)
    h = tl.zeros([STATES], tl.float32)
    if HAS_INITIAL:
        h = tl.load(initial_state + row * dstate + n, mask, 0)
    bias = tl.load(delta_bias + d) if HAS_BIAS else 0.0
    skip = tl.load(D + d) if HAS_D else 0.0
    B += b * B_batch + group * B_group + n * B_state
    C += b * C_batch + group * C_group + n * C_state
    at = b * u_batch + d * u_dim
    for _ in range(seqlen):
        x = tl.load(u + at).to(tl.float32)
        step = tl.load(delta + at).to(tl.float32) + bias
        if SOFTPLUS:
            # log(1 + e^x) without overflow; what e^x loses beside 1 is made up for (Goldberg, 1991, theorem 4).
            e = tl.exp(-tl.abs(step))
            w = 1 + e
            step = tl.maximum(step, 0) + tl.where(w == 1, e, tl.log(w) * (e / tl.where(w == 1, 1, w - 1)))
        h = tl.exp(step * a) * h + step * tl.load(B, mask, 0).to(tl.float32) * x
        if LOW_STATE:
            h = h.to(tl.bfloat16).to(tl.float32)
        y = tl.sum(tl.load(C, mask, 0).to(tl.float32) * h, 0) + skip * x
        if HAS_Z:
            y *= silu(tl.load(z + at).to(tl.float32))
        tl.store(out + at, y)
        at += u_time
        B += B_time
        C += C_time
    tl.store(last_state + row * dstate + n, h, mask)


def scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus, initial_state, out, last_state, low_state):
    batch, dim, seqlen = u.shape
    dstate = A.shape[1]
    scan_kernel[(batch * dim,)](
        u, delta, A, B, C, D, z, delta_bias, initial_state, out, last_state,
        dim, seqlen, dstate, dim // B.shape[1], *u.stride(), *B.stride(), *C.stride(),
        HAS_D=D is not None, HAS_Z=z is not None, HAS_BIAS=delta_bias is not None,
        HAS_INITIAL=initial_state is not None, SOFTPLUS=bool(delta_softplus),
        STATES=triton.next_power_of_2(dstate), LOW_STATE=low_state, num_warps=1,
    )  # fmt: skip


def unsupported(case):
    if case.method != "zoh":
        return "has method zoh only"
    if case.A != "real" or case.B != "variable" or case.C != "variable":
        return "has real A and variable B and C only"
    if case.cu_seqlens:
        return "has one sequence a batch"
    if case.x:
        return "leaves no states on the way"
    return None


about = dict(deterministic=True, unsupported=unsupported, framework="torch")
about["device"] = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@ssmbench.kernel("selective_scan_fwd", name="triton-scan", **about)
def right(u, delta, A, B, C, D, z, delta_bias, delta_softplus, initial_state, out, last_state):
    """a Triton program per channel"""
    scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus, initial_state, out, last_state, False)


@ssmbench.kernel("selective_scan_fwd", name="triton-scan-wrong", **about)
def wrong(u, delta, A, B, C, D, z, delta_bias, delta_softplus, initial_state, out, last_state):
    """the same with states rounded to bf16 at each step, though it claims f32"""
    scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus, initial_state, out, last_state, True)
