#!/usr/bin/env python3
"""Runs a plain PyTorch implementation on the inputs of an interchange file and writes its outputs back.

Step by step, with gradients by autograd, on CPU or GPU, every method, real and complex. It follows the operations'
definitions, and is slow: a second opinion, not a competitor. Needs PyTorch, h5py and NumPy.
"""

import sys

import interchange
from interchange import Outcome, Rejected, Unsupported


def phi(order, z):
    """phi1(z) = (e^z - 1)/z and phi2(z) = (e^z - 1 - z)/z^2, their series where the formulas cancel."""
    import torch

    small = z.abs() < 1
    near = torch.where(small, z, torch.zeros_like(z))  # no branch may make a NaN of the other's gradient
    far = torch.where(small, torch.ones_like(z), z)
    series = torch.zeros_like(z)
    for k in range(16, 0, -1):
        series = (1 + near * series) / (k + order - 1)
    # Horner from the innermost term: 1/order! (1 + z/(order+1) (1 + z/(order+2) (...)))
    formula = (far.exp() - 1) / far if order == 1 else (far.exp() - 1 - far) / (far * far)
    return torch.where(small, series, formula)


def coefficients(method, delta, A):
    """Decay, weight of this step's B u, weight of the step's before it (None: there is none)."""
    z = delta * A
    if method == "bilinear":
        return (1 + z / 2) / (1 - z / 2), delta / (1 - z / 2), None
    if method == "bilinear_flipped":
        return (1 - z / 2) / (1 + z / 2), delta / (1 + z / 2), None
    decay = z.exp()
    d2, d3, d4, A2, A3 = delta**2, delta**3, delta**4, A**2, A**3
    if method == "foh_exact":
        return decay, delta * phi(2, z), delta * (phi(1, z) - phi(2, z))
    if method == "trapezoidal":
        return decay, delta / 2 + 0 * z, delta / 2 * decay
    rules = {
        "zoh": lambda: delta + 0 * z,
        "foh": lambda: delta * phi(1, z),
        "poly": lambda: delta * (1 + z / 2 + z**2 / 6),
        "highorder": lambda: delta * (1 + z / 2),
        "rk4": lambda: delta * (1 + z / 2 + z**2 / 6 + z**3 / 24),
        "vim_foh": lambda: d2 * (1 / 2 + z / 6 + z**2 / 24 + z**3 / 120),
        "vim_poly": lambda: delta + (A / 2 + 1 / 4) * d2 + (A2 / 6 + A / 12) * d3 + (A3 / 24 + A2 / 48) * d4,
        "vim_highorder": lambda: (
            delta + (A / 2 + 1 / 2) * d2 + (A2 / 6 + A / 6 + 1 / 12) * d3 + (A3 / 24 + A2 / 24 + A / 48) * d4
        ),
    }
    if method not in rules:
        raise Unsupported(f"there is no method {method} here")
    return decay, rules[method](), None


def softplus(x):
    import torch

    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))


def silu(z):
    return z * z.sigmoid()


def per_channel(projection, dim, t):
    """B or C of step t for every channel, (batch or 1, dim, dstate): groups are repeated, not tiled."""
    if projection.dim() == 2:
        return projection[None]
    return projection[:, :, :, t].repeat_interleave(dim // projection.shape[1], 1)


def selective_scan(case, x):
    import torch

    u, delta, A = x["u"], x["delta"], x["A"]
    if A.dim() == 3:
        raise Unsupported("takes diagonal A only")
    if "x" in x or case.get("x"):
        raise Unsupported("neither leaves nor takes states on the way")
    if "cu_seqlens" in x:
        return packed_scan(case, x)
    batch, dim, seqlen = u.shape
    if "delta_bias" in x:
        delta = delta + x["delta_bias"][:, None]
    if case["delta_softplus"]:
        delta = softplus(delta)
    state = x.get("initial_state")
    if state is None:
        state = A.new_zeros(batch, dim, A.shape[1])
    before = torch.zeros_like(state)  # B u of the step before
    rows = []
    for t in range(seqlen):
        decay, now, then = coefficients(case["method"], delta[:, :, t, None], A)
        entering = per_channel(x["B"], dim, t) * u[:, :, t, None]
        state = decay * state + now * entering
        if then is not None:
            state = state + then * before
        before = entering
        y = (per_channel(x["C"], dim, t) * state).sum(-1)
        rows.append(2 * y.real if y.is_complex() else y)
    y = torch.stack(rows, -1)
    if "D" in x:
        y = y + x["D"][:, None] * u
    if "z" in x:
        y = y * silu(x["z"])
    return {"out": y, "last_state": state}


def packed_scan(case, x):
    """The sequences of cu_seqlens, each on its own; one without steps passes its state through."""
    import torch

    borders = x["cu_seqlens"].tolist()
    in_time = {name for name in ("u", "delta", "z", "B", "C") if name in x and x[name].dim() > 2}
    out, states = [], []
    for m, (begin, end) in enumerate(zip(borders, borders[1:])):
        one = {name: x[name][..., begin:end] if name in in_time else x[name] for name in x if name != "cu_seqlens"}
        if "initial_state" in x:
            one["initial_state"] = x["initial_state"][m : m + 1]
        if begin == end:
            states.append(one.get("initial_state", x["A"].new_zeros(1, *x["A"].shape)))
            continue
        results = selective_scan(case, one)
        out.append(results["out"])
        states.append(results["last_state"])
    return {"out": torch.cat(out, -1), "last_state": torch.cat(states)}


def ssd_chunk_scan(case, x):
    import torch

    if "cu_seqlens" in x:
        raise Unsupported("takes packed sequences by seq_idx only")
    sequence, dt, A = x["x"], x["dt"], x["A"]
    batch, seqlen, heads, headdim = sequence.shape
    if "dt_bias" in x:
        dt = dt + x["dt_bias"]
    if case["dt_softplus"]:
        dt = softplus(dt)
    low, high = (float(limit) for limit in case["dt_limit"])
    dt = dt.clamp(low, high)
    repeat = heads // x["B"].shape[2]
    state = x.get("initial_states")
    if state is None:
        state = sequence.new_zeros(batch, heads, headdim, x["B"].shape[3])
    rows = []
    for t in range(seqlen):
        if "seq_idx" in x and t > 0:
            same = x["seq_idx"][:, t] == x["seq_idx"][:, t - 1]
            state = torch.where(same[:, None, None, None], state, torch.zeros_like(state))
        B, C = (x[name][:, t].repeat_interleave(repeat, 1)[:, :, None] for name in ("B", "C"))
        step = dt[:, t, :, None, None]
        state = (step * A[:, None, None]).exp() * state + step * sequence[:, t, :, :, None] * B
        rows.append((state * C).sum(-1))
    y = torch.stack(rows, 1)
    if "D" in x:
        y = y + (x["D"][:, None] if x["D"].dim() == 1 else x["D"]) * sequence
    if "z" in x:
        y = y * silu(x["z"])
    return {"out": y, "final_states": state}


def selective_state_update(case, x):
    state, dt, A, B, C = x["state"], x["dt"], x["A"], x["B"], x["C"]
    mamba1 = state.dim() == 3
    if "dt_bias" in x:
        dt = dt + x["dt_bias"]
    if case["dt_softplus"]:
        dt = softplus(dt)
    if B.dim() == 2:
        B, C = B[:, None], C[:, None]
    repeat = state.shape[1] // B.shape[1]
    B, C = B.repeat_interleave(repeat, 1), C.repeat_interleave(repeat, 1)  # (batch, dim or heads, dstate)
    D = x.get("D")
    if mamba1:
        dt = dt[:, :, None]
    else:
        B, C, dt, A = B[:, :, None], C[:, :, None], dt[:, :, None, None], A[:, None, None]
        D = None if D is None else D[:, None]
    state = (dt * A).exp() * state + dt * x["x"][..., None] * B
    y = (state * C).sum(-1)
    if D is not None:
        y = y + D * x["x"]
    if "z" in x:
        y = y * silu(x["z"])
    return {"out": y, "state": state}


def linear_scan(case, x):
    import torch

    h, rows = torch.zeros_like(x["a"][:, 0]), []
    for t in range(x["a"].shape[1]):
        h = x["a"][:, t] * h + x["b"][:, t]
        rows.append(h)
    return {"out": torch.stack(rows, 1)}


def convolved(case, padded, x, numbers=None):
    """What W - 1 steps and those after them give, (batch, dim, steps) of the latter."""
    import torch

    weight = x["weight"]
    width = weight.shape[1]
    steps = padded.shape[2] - width + 1
    sums = torch.zeros_like(padded[:, :, :steps])
    if "bias" in x:
        sums = sums + x["bias"][:, None]
    for tap in range(width):
        term = weight[:, tap, None] * padded[:, :, tap : tap + steps]
        if numbers is not None:
            term = term * (numbers[:, None, tap : tap + steps] == numbers[:, None, width - 1 :])
        sums = sums + term
    if numbers is not None:
        sums = sums * (numbers[:, None, width - 1 :] >= 0)
    return silu(sums) if case["silu"] else sums


def causal_conv1d(case, x):
    import torch

    sequence, taps = x["x"], x["weight"].shape[1] - 1
    before = x.get("initial_states")
    if before is None:
        before = sequence.new_zeros(*sequence.shape[:2], taps)
    padded = torch.cat([before, sequence], 2)
    numbers = None
    if "seq_idx" in x:
        nobody = x["seq_idx"].new_full((sequence.shape[0], taps), -2)
        numbers = torch.cat([nobody, x["seq_idx"]], 1)
    results = {"out": convolved(case, padded, x, numbers)}
    if "seq_idx" not in x:
        results["final_states"] = padded[:, :, padded.shape[2] - taps :]
    return results


def causal_conv1d_update(case, x):
    import torch

    tokens, state, taps = x["x"], x["conv_state"].clone(), x["weight"].shape[1] - 1
    single = tokens.dim() == 2
    new = tokens[:, :, None] if single else tokens.movedim(1, 2)
    rows = torch.arange(new.shape[0], device=state.device)
    source = x.get("source", rows).long()
    destination = x.get("destination", rows).long()
    everything = torch.cat([state[source.clamp(min=0)], new], 2)
    out = convolved(case, everything[:, :, state.shape[2] - taps :], x)
    out = torch.where((source >= 0)[:, None, None], out, torch.zeros_like(out))
    kept = destination >= 0
    state[destination[kept]] = everything[kept][:, :, everything.shape[2] - state.shape[2] :]
    return {"out": out[:, :, 0] if single else out.movedim(2, 1), "conv_state": state}


FORWARD = {
    "causal_conv1d_fwd": causal_conv1d,
    "causal_conv1d_update": causal_conv1d_update,
    "selective_scan_fwd": selective_scan,
    "ssd_chunk_scan_fwd": ssd_chunk_scan,
    "selective_state_update": selective_state_update,
    "linear_scan": linear_scan,
}
BACKWARD = {"causal_conv1d_bwd": causal_conv1d, "selective_scan_bwd": selective_scan, "ssd_chunk_scan_bwd": ssd_chunk_scan}
# Tensors that layout bld stores with time before channels or states; as (b, d, l) and (b, g, n, l) here.
TIME_INNERMOST = {"u": 3, "delta": 3, "z": 3, "dout": 3, "out": 3, "B": 4, "C": 4}


def transposed(case, name):
    """Whether a tensor, or the input whose gradient it is, is stored as (b, l, d), (b, l, g, n) or (s, k, d)."""
    if case["op"] == "causal_conv1d_update":
        return name == "conv_state" and case["layout"] == "skd"
    if case["op"].startswith("causal_conv1d"):
        other = name == "dout" and case["dout_layout"] == "other"
        return name in ("x", "dx", "out", "dout") and (case["layout"] == "bld") != other
    if case["op"] not in ("selective_scan_fwd", "selective_scan_bwd") or case["layout"] != "bld":
        return False
    base = name if name in case.inputs or name == "out" else name[1:]
    return base in TIME_INNERMOST and (base == "out" or case.inputs[base].values.ndim == TIME_INNERMOST[base])


def output_dtype(case, name):
    if name == "out":
        return case["dtype"]
    if case["op"].startswith("causal_conv1d"):
        return "f32" if name in ("dweight", "dbias") else case["dtype"]
    if name in ("last_state", "final_states"):
        return case.inputs["A"].dtype
    return case.inputs[name if name == "state" else name[1:]].dtype


def run(case, device, math, time):
    """What the case's operation gives, in logical order and in the arithmetic `math`, and its times."""
    import torch
    import torch_tensors

    operation = case["op"]
    if operation not in FORWARD and operation not in BACKWARD:
        raise Unsupported(f"there is no {operation} here")
    work = {"f32": (torch.float32, torch.complex64), "f64": (torch.float64, torch.complex128)}[math]
    x = {}
    for name, tensor in case.inputs.items():
        value = torch_tensors.to_torch(tensor, device)
        if value.is_complex() or value.is_floating_point():
            value = value.to(work[value.is_complex()])
        x[name] = value.movedim(1, -1) if transposed(case, name) else value
    if operation in FORWARD:
        with torch.no_grad():
            launch = lambda: FORWARD[operation](case, x)  # noqa: E731
            return launch(), time(launch)

    leaves = [n for n in x if n not in ("dout", "dfinal_states", "dlast_state") and x[n].dtype != torch.int32]
    for name in leaves:
        x[name].requires_grad_()

    def gradients():
        results = BACKWARD[operation](case, x)
        given = {name: x["d" + name] for name in results if "d" + name in x}
        ends, starts = [results[name] for name in given], [x[name] for name in leaves]
        found = torch.autograd.grad(ends, starts, list(given.values()))
        return {"d" + name: gradient for name, gradient in zip(leaves, found)}

    return gradients(), time(gradients)


def make(options):
    try:
        import torch
        import torch_tensors
    except ImportError as error:
        raise Rejected(f"PyTorch cannot be used: {interchange.one_line(error)}") from None
    try:
        device = torch.device(options.device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise Rejected(f"device {options.device}: {interchange.one_line(error)}") from None

    def compute(case, timed):
        def time(launch):
            return torch_tensors.timing_of(launch, device, graph=False) if timed else {}

        with torch_tensors.own_stream(device):
            outputs, timing = run(case, device, options.math, time)
        stored = {}
        for name, values in outputs.items():
            in_file = values.movedim(-1, 1) if transposed(case, name) else values
            stored[name] = torch_tensors.to_tensor(in_file, output_dtype(case, name))
        chunk_states = "f32" if case["op"].startswith("ssd") else None  # it has no chunks, and loses nothing
        return Outcome(stored, options.math, state_dtype=chunk_states, timing=timing)

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"PyTorch {torch.__version__}, step by step", name, compute


if __name__ == "__main__":
    parser = interchange.parser(__doc__, "scripts/export_torch.py cases.h5 --device cuda")
    parser.add_argument("--device", default="cpu", help="as PyTorch names it: cpu (default), cuda, cuda:1")
    parser.add_argument("--math", default="f32", choices=["f32", "f64"], help="what to compute in (default f32)")
    options = parser.parse_args()
    sys.exit(interchange.main(options, make))
