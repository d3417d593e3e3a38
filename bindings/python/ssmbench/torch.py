"""ssmbench's kernels in PyTorch: mamba_ssm's and causal-conv1d's functions, with their arguments and meaning.

    from ssmbench.torch import selective_scan, mamba_chunk_scan, selective_state_update
    from ssmbench.torch import causal_conv1d, causal_conv1d_update

They take CUDA and CPU tensors, run on the current stream with memory of PyTorch's allocator, and wait for nothing, so
that CUDA graphs capture them. Each is an operator of torch.library (torch.ops.ssmbench), which torch.compile takes as
one node. All but the updates have gradients, once.
"""

import threading

import torch
from torch import Tensor

from . import _operations
from ._library import INPUT
from ._operations import CHANNELS_LAST, SCAN_INPUTS, Shaped, dense_strides

__all__ = ["selective_scan", "mamba_chunk_scan", "selective_state_update", "causal_conv1d", "causal_conv1d_update"]

NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.complex64: "c64",
    torch.int32: "i32",
}
IO_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALIGNMENT = 16  # of CUDA tensors, in bytes: some kernels load vectors only
MOST_PLANS = 1024


def lies(tensor, order):
    """Whether the tensor is dense in that order."""
    return (tensor if order is None else tensor.permute(order)).is_contiguous()


def stored(tensor, order):
    """The tensor, or a copy that is dense in that order."""
    if tensor is None or order is None:
        return tensor if tensor is None else tensor.contiguous()
    inverse = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(order).contiguous().permute(inverse)


def in_order(*tensors):
    """The tensors, copied where they are not dense."""
    return [tensor if tensor is None or tensor.is_contiguous() else tensor.contiguous() for tensor in tensors]


def empty_like(tensor, order=None, dtype=None):
    """Memory of that shape, dense in that order."""
    if order is None:
        return torch.empty_like(tensor, dtype=dtype, memory_format=torch.contiguous_format)
    return torch.empty_strided(
        tensor.shape, dense_strides(tensor.shape, order), dtype=dtype or tensor.dtype, device=tensor.device
    )


def described(tensors, options):
    """All that what becomes of a call depends on, but for values and addresses."""
    return (options, *[None if t is None else (t.shape, t.stride(), t.dtype, t.get_device()) for t in tensors])


class Operation:
    """An operation of the library on tensors: plans by shapes, and launches."""

    def __init__(self, spec):
        self.spec = spec
        self.plans = {}
        self.known = {}  # by description of a call: its plan, and the form of its results
        self.latest = threading.local()

    def __call__(self, tensors, options=(), second_layout=False):
        """Launches on the current stream. tensors: None where there is none, each dense in its order."""
        device = tensors[0].device
        key = (
            options,
            second_layout,
            *[None if tensor is None else (tensor.shape, tensor.dtype, tensor.get_device()) for tensor in tensors],
        )
        plan = self.plans.get(key)
        if plan is None:
            plan = self.make_plan(key, tensors, options, second_layout)
        if device.type == "cuda":
            tensors = [self.aligned(*each) for each in zip(tensors, self.spec.tensors)]
        addresses = [tensor.data_ptr() for tensor in tensors if tensor is not None]
        self.launch(plan, addresses, device)
        self.latest.launch = plan, addresses

    def launch(self, plan, addresses, device):
        scratch = None
        if plan.workspace_bytes:
            workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=device)
            scratch = workspace.data_ptr()
        if device.type == "cpu":
            plan.launch(addresses, scratch, None)
        else:
            with torch.cuda.device(device):
                # As Triton has it: torch.cuda.current_stream() makes an object, which takes 4 us.
                plan.launch(addresses, scratch, torch._C._cuda_getCurrentRawStream(device.index))

    def repeated(self, given, options):
        """The results of a call like one that `remember` was told of; None if there was none."""
        if not is_direct(given):
            return None
        known = self.known.get(described(given, options))
        if known is None:
            return None
        plan, forms = known
        device = given[0].device
        addresses = [tensor.data_ptr() for tensor in given if tensor is not None]
        if device.type == "cuda" and any(address % ALIGNMENT for address in addresses):
            return None
        results = [torch.empty_strided(*form, dtype=dtype, device=device) for *form, dtype in forms]
        self.launch(plan, addresses + [result.data_ptr() for result in results], device)
        return results

    def remember(self, given, options, results):
        """After a call. The next like it goes to the library at once if this one's tensors went there as they were."""
        if not is_direct(given):
            return
        plan, addresses = self.latest.launch
        if addresses != [tensor.data_ptr() for tensor in (*given, *results) if tensor is not None]:
            return  # some were converted or copied
        if len(self.known) >= MOST_PLANS:
            self.known.clear()
        forms = [(result.shape, result.stride(), result.dtype) for result in results]
        self.known[described(given, options)] = plan, forms

    @staticmethod
    def aligned(tensor, described):
        """The tensor, or a copy of an input at an address that vectors may have."""
        if tensor is None or described[1] != INPUT or tensor.data_ptr() % ALIGNMENT == 0:
            return tensor
        return torch.empty_like(tensor).copy_(tensor)

    def make_plan(self, key, tensors, options, second_layout):
        shaped = []
        for (name, _, _), tensor in zip(self.spec.tensors, tensors):
            if tensor is None:
                shaped.append(None)
                continue
            if tensor.device != tensors[0].device:
                raise ValueError(f"{name} is on {tensor.device}, {self.spec.tensors[0][0]} on {tensors[0].device}")
            if tensor.dtype not in NAMES:
                raise TypeError(f"{name} is {tensor.dtype}")
            shaped.append(Shaped(tuple(tensor.shape), NAMES[tensor.dtype]))
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        plan = self.plans[key] = self.spec.plan(tensors[0].device.type, shaped, options, second_layout)
        return plan


scan_forward = Operation(_operations.scan_forward)
scan_backward = Operation(_operations.scan_backward)
ssd_forward = Operation(_operations.ssd_forward)
ssd_backward = Operation(_operations.ssd_backward)
step = Operation(_operations.step)
conv_forward = Operation(_operations.conv_forward)
conv_backward = Operation(_operations.conv_backward)
conv_step = Operation(_operations.conv_step)

PLAIN = frozenset((Tensor, torch.nn.Parameter, type(None)))
dispatch_modes = torch._C._len_torch_dispatch_stack
transforms = torch._C._functorch.peek_interpreter_stack
trace = torch._C._get_tracing_state


def is_direct(tensors):
    """Whether an operator may be left out: nothing records, traces or transforms what is called with these."""
    if torch.compiler.is_compiling() or dispatch_modes() or trace() is not None or transforms() is not None:
        return False
    if not PLAIN.issuperset(map(type, tensors)):
        return False
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return False
    return True


def operator(name, mutates=()):
    """Makes a function an operator of torch.library; its attribute `direct` is the function itself."""

    def register(function):
        made = torch.library.custom_op(f"ssmbench::{name}", function, mutates_args=mutates)
        made.direct = function
        return made

    return register


def call(made, tensors, *options):
    """Calls an operator, or its function itself where nobody sees the difference."""
    return (made.direct if is_direct(tensors) else made)(*tensors, *options)


def io_dtype(*tensors):
    """What sequences are computed from: their common dtype, or f32 if they have several."""
    dtype = tensors[0].dtype
    for tensor in tensors:
        if tensor is not None and tensor.dtype != dtype:
            return torch.float32
    return dtype if dtype in IO_DTYPES else torch.float32


def converted(tensor, dtype):
    return tensor if tensor is None or tensor.dtype == dtype else tensor.to(dtype)


def in_dtypes(tensors, dtypes):
    """The tensors, each converted where it has another dtype."""
    return tuple(
        [t if t is None or t.dtype == dtype else t.to(dtype) for t, dtype in zip(tensors, dtypes, strict=True)]
    )


# Mamba-1's selective scan.

def has_channels_last(tensor):
    return not tensor.is_contiguous() and lies(tensor, CHANNELS_LAST)


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


def scan_outputs(u, A, channels_last):
    out = empty_like(u, CHANNELS_LAST if channels_last else None)
    return out, torch.empty((u.shape[0], *A.shape), dtype=A.dtype, device=A.device)


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
) -> tuple[Tensor, Tensor]:
    channels_last = has_channels_last(u)
    outputs = scan_outputs(u, A, channels_last)
    inputs = scan_stored((u, delta, A, B, C, D, z, delta_bias), channels_last)
    scan_forward((*inputs, *outputs), (delta_softplus,), channels_last)
    return outputs


@selective_scan_fwd.register_fake
def _(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    return scan_outputs(u, A, has_channels_last(u))


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
    delta_softplus: bool,
) -> list[Tensor]:
    inputs = (u, delta, A, B, C, D, z, delta_bias)
    channels_last = has_channels_last(u)
    gradients = scan_gradients(inputs, channels_last)
    inputs = scan_stored((*inputs, dout), channels_last)
    scan_backward((*inputs, *gradients), (delta_softplus,), channels_last)
    return [gradient for gradient in gradients if gradient is not None]


@selective_scan_bwd.register_fake
def _(u, delta, A, B, C, D, z, delta_bias, dout, delta_softplus):
    gradients = scan_gradients((u, delta, A, B, C, D, z, delta_bias), has_channels_last(u))
    return [gradient for gradient in gradients if gradient is not None]


def spread(gradients, inputs):
    """Gradients, with None for the inputs that are not there."""
    gradients = iter(gradients)
    return [None if tensor is None else next(gradients) for tensor in inputs]


def save_scan(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:-1])
    ctx.delta_softplus = inputs[-1]


def differentiate_scan(ctx, dout, _):
    tensors = ctx.saved_tensors
    gradients = call(selective_scan_bwd, (*tensors, dout), ctx.delta_softplus)
    return *spread(gradients, tensors), None


selective_scan_fwd.register_autograd(differentiate_scan, setup_context=save_scan)


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
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False
):
    """Mamba-1's selective scan, as mamba_ssm's selective_scan_fn.

    u, delta, z: (batch, dim, seqlen). A: (dim, dstate), real or complex. B, C: (dim, dstate), (batch, dstate, seqlen)
    or (batch, groups, dstate, seqlen); with a complex A twice as long, real and imaginary parts in turns. D,
    delta_bias: (dim,). Returns out like u, or (out, last_state) with last_state (batch, dim, dstate) in f32 or
    complex64, through which no gradient flows. Transposed (batch, seqlen, dim) tensors are taken without a copy.
    """
    given, softplus = (u, delta, A, B, C, D, z, delta_bias), bool(delta_softplus)
    results = scan_forward.repeated(given, softplus)
    if results is None:
        results = scan_of(*given, softplus)
        scan_forward.remember(given, softplus, results)
    out, last_state = results
    return (out, last_state.detach()) if return_last_state else out


def scan_of(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    """out and last_state, in the dtypes that they are to have."""
    is_complex = A.is_complex()
    dtype = io_dtype(u, delta, z) if is_complex else io_dtype(u, delta, z, *[t for t in (B, C) if t.dim() > 2])
    B, C = projection(B, dtype, is_complex), projection(C, dtype, is_complex)
    rate = torch.complex64 if is_complex else torch.float32
    tensors = in_dtypes(
        (u, delta, A, B, C, D, z, delta_bias),
        (dtype, dtype, rate, B.dtype, C.dtype, torch.float32, dtype, torch.float32),
    )
    out, last_state = call(selective_scan_fwd, tensors, delta_softplus)
    return converted(out, u.dtype), last_state


# Mamba-2's chunked scan.

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


ssd_chunk_scan_fwd.register_autograd(differentiate_ssd, setup_context=save_ssd)


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
    dtype = io_dtype(x, dt, B, C, z)
    f32, i32 = torch.float32, torch.int32
    tensors = in_dtypes(given, (dtype, dtype, f32, dtype, dtype, f32, dtype, f32, f32, i32, i32))
    out, states = call(ssd_chunk_scan_fwd, tensors, *options)
    out = converted(out, x.dtype)
    return (out, states) if options[-1] else (out,)


# A decoding step of either.


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
    rows = state_batch_indices
    given, softplus = (state, x, dt, A, B, C, D, z, dt_bias, rows, rows), bool(dt_softplus)
    results = step.repeated(given, softplus)
    if results is None:
        results = (step_of(*given[:-1], softplus),)
        step.remember(given, softplus, results)
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


# The convolution in front of a scan.


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


causal_conv1d_fwd.register_autograd(differentiate_conv, setup_context=save_conv)


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
    channels_last = has_channels_last(conv_state)
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
    given = conv_state, x, weight, bias, conv_state_indices, conv_state_indices
    results = conv_step.repeated(given, silu)
    if results is None:
        results = (conv_step_of(x, conv_state, weight, bias, silu, None, conv_state_indices),)
        conv_step.remember(given, silu, results)
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
