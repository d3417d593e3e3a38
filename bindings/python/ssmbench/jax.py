"""ssmbench's kernels in JAX: the functions of ssmbench.torch on JAX arrays, on the CPU and on CUDA devices.

    from ssmbench.jax import selective_scan, mamba_chunk_scan, selective_state_update
    from ssmbench.jax import causal_conv1d, causal_conv1d_update

Each is compiled by jax.jit for the shapes that it meets. Nothing is updated in place: updates return the new state
before out. All but the updates have gradients, once and in reverse mode; vmap computes one element after another.

The handlers that XLA calls are compiled on import, once for each version of jaxlib, which takes a C++17 compiler. pip
cannot do that: it builds packages where there is no jaxlib, and a later jaxlib may refuse what an earlier one's headers
made.
"""

import ctypes
import functools
import hashlib
import os
import pathlib
import subprocess
import tempfile

import jax
import jaxlib
import numpy
from jax import numpy as jnp

from . import _operations
from ._library import INPUT, OUTPUT, PREFIX, Unsupported, library
from ._operations import Shaped

__all__ = ["selective_scan", "mamba_chunk_scan", "selective_state_update", "causal_conv1d", "causal_conv1d_update"]

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "_jax_handlers.cc"
HEADERS = (HERE, HERE.parents[2] / "plugins")  # as installed, and in a checkout
NAMES = {
    numpy.dtype("float32"): "f32",
    numpy.dtype("float16"): "f16",
    numpy.dtype(jnp.bfloat16): "bf16",
    numpy.dtype("complex64"): "c64",
    numpy.dtype("int32"): "i32",
}
F32, I32 = numpy.dtype("float32"), numpy.dtype("int32")
IO_DTYPES = tuple(numpy.dtype(dtype) for dtype in ("float32", "float16", jnp.bfloat16))


# The handlers.


def compiled_handlers():
    """The shared library of SOURCE, from the cache of the user if it is there."""
    header = next(folder / "ssmbench_plugin.h" for folder in HEADERS if (folder / "ssmbench_plugin.h").exists())
    made_from = SOURCE.read_bytes() + header.read_bytes() + jaxlib.__version__.encode()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ssmbench"
    file = cache / f"jax-{hashlib.sha256(made_from).hexdigest()[:16]}.so"
    if file.exists():
        return file
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = os.path.join(folder, "handlers.so")
        command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-fPIC", "-shared"]
        command += ["-I", str(header.parent), "-I", jax.ffi.include_dir(), str(SOURCE), "-o", made]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise ImportError(f"ssmbench.jax needs a C++ compiler: there is no {command[0]}; CXX names one") from None
        except subprocess.CalledProcessError as error:
            raise ImportError(f"ssmbench.jax: {' '.join(command)}:\n{error.stderr}") from None
        os.replace(made, file)  # others who import at the same time find all of it or nothing
    return file


def register():
    handlers = ctypes.CDLL(str(compiled_handlers()))
    names = ("describe", "workspace_bytes", "bind", "launch", "release")
    functions = [getattr(library(), "ssmbench_plugin_" + name) for name in names]
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    handlers.ssmbench_jax_connect((ctypes.c_void_p * len(addresses))(*addresses))
    for device, platform in (("cpu", "cpu"), ("cuda", "CUDA")):
        handler = getattr(handlers, "ssmbench_jax_" + device)
        jax.ffi.register_ffi_target("ssmbench_" + device, jax.ffi.pycapsule(handler), platform=platform)


register()


# Calls.


def shaped(name, array):
    if array is None:
        return None
    if array.dtype not in NAMES:
        raise TypeError(f"{name} is {array.dtype}")
    return Shaped(tuple(array.shape), NAMES[array.dtype])


def like(array, dtype=None):
    return None if array is None else jax.ShapeDtypeStruct(array.shape, dtype or array.dtype)


def launch(device, plan, arguments, results):
    """A function of the arguments' values: a launch on that device. arguments, results: (name, role, shape)."""
    tensors = [name + ("+" if role == INPUT | OUTPUT else "") for name, role, _ in (*arguments, *results)]
    shapes = [shape for _, _, shape in results]
    if plan.workspace_bytes:
        tensors.append("workspace")
        shapes.append(jax.ShapeDtypeStruct((plan.workspace_bytes,), numpy.uint8))
    updated = [i for i, (_, role, _) in enumerate(arguments) if role & OUTPUT]
    run = jax.ffi.ffi_call(
        "ssmbench_" + device,
        shapes,
        vmap_method="sequential",
        input_output_aliases={i: place for place, i in enumerate(updated)},
    )
    options = dict(
        op=plan.problem.op.decode(),
        implementation=PREFIX + plan.name,
        axes="\n".join(f"{a.name.decode()}={a.text.decode()}" for a in plan.attributes),
        dtype=numpy.int32(plan.problem.dtype),
        tensors=" ".join(tensors),
    )
    return lambda *values: run(*values, **options)[: len(results)]


def call(spec, inputs, outputs, options=()):
    """The outputs of an operation, in the order of the specification, with None where there is none.

    outputs: shapes of those that are only written; what is updated comes first.
    """
    described = [(*each[:2], array) for each, array in zip(spec.tensors, (*inputs, *outputs), strict=True)]
    shapes = [shaped(name, array) for name, _, array in described]
    arguments = [each for each in described[: len(inputs)] if each[2] is not None]
    updated = [(name, role, like(array)) for name, role, array in arguments if role & OUTPUT]
    results = [*updated, *[each for each in described[len(inputs) :] if each[2] is not None]]
    # Arrays may be on another device than the usual one: which, is known when the program is compiled.
    usual = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    launches = {}
    for device in ("cpu", "cuda"):
        try:
            plan = spec.plan(device, shapes, options)
        except Unsupported:
            if device == usual:
                raise
        else:
            launches[device] = launch(device, plan, arguments, results)
    values = iter(jax.lax.platform_dependent(*[array for _, _, array in arguments], **launches))
    return [next(values) for _ in updated] + [None if shape is None else next(values) for shape in outputs]


def io_dtype(*arrays):
    """What sequences are computed from: their common dtype, or f32 if they have several."""
    dtypes = {array.dtype for array in arrays if array is not None}
    dtype = dtypes.pop()
    return dtype if not dtypes and dtype in IO_DTYPES else F32


def converted(array, dtype):
    return None if array is None else jnp.asarray(array, dtype)


def function(*options):
    """Compiles a function for each set of shapes and of these arguments."""
    return functools.partial(jax.jit, static_argnames=options)


# Mamba-1's selective scan.


def run_scan(inputs, options):
    u, _, A = inputs[:3]
    state = jax.ShapeDtypeStruct((u.shape[0], *A.shape), A.dtype)
    return tuple(call(_operations.scan_forward, inputs, (like(u), state), options))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def scan(inputs, options):
    return run_scan(inputs, options)


def scan_fwd(inputs, options):
    return run_scan(inputs, options), inputs


def scan_bwd(options, inputs, cotangents):
    outputs = [like(array) for array in inputs]
    gradients = call(_operations.scan_backward, (*inputs, cotangents[0]), outputs, options)
    # The kernels' gradient of a complex number is that of PyTorch: JAX's is its conjugate.
    return (tuple(None if g is None else jnp.conj(g) if jnp.iscomplexobj(g) else g for g in gradients),)


scan.defvjp(scan_fwd, scan_bwd)


def projection(array, dtype, is_complex):
    """B or C as the library has it: (dim, dstate), or (batch, groups, dstate, seqlen)."""
    if array.ndim == 2:
        return converted(array, numpy.complex64 if is_complex else F32)
    if array.ndim == 3:
        array = array[:, None]
    if is_complex:
        array = array.astype(F32)
        return jax.lax.complex(array[..., 0::2], array[..., 1::2])
    return converted(array, dtype)


@function("delta_softplus", "return_last_state")
def selective_scan(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False
):
    """Mamba-1's selective scan; the arguments are those of ssmbench.torch.selective_scan."""
    is_complex = jnp.iscomplexobj(A)
    variable = [] if is_complex else [array for array in (B, C) if array.ndim > 2]
    dtype = io_dtype(u, delta, z, *variable)
    inputs = (
        converted(u, dtype),
        converted(delta, dtype),
        converted(A, numpy.complex64 if is_complex else F32),
        projection(B, dtype, is_complex),
        projection(C, dtype, is_complex),
        converted(D, F32),
        converted(z, dtype),
        converted(delta_bias, F32),
    )
    out, last_state = scan(inputs, (bool(delta_softplus),))
    out = out.astype(u.dtype)
    return (out, jax.lax.stop_gradient(last_state)) if return_last_state else out


# Mamba-2's chunked scan.


def run_ssd(inputs, options):
    """inputs: those of the forward pass but cu_seqlens, which is only there in run_varlen."""
    return run_varlen((*inputs, None), options, inputs[0].shape[0])


def run_varlen(inputs, options, sequences):
    x, B, final_states = inputs[0], inputs[3], options[4]
    states = jax.ShapeDtypeStruct((sequences, *x.shape[2:], B.shape[-1]), F32) if final_states else None
    return tuple(call(_operations.ssd_forward, inputs, (like(x), states), (*options, False)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def ssd(inputs, options):
    return run_ssd(inputs, options)


def ssd_fwd(inputs, options):
    return run_ssd(inputs, options), inputs


def ssd_bwd(options, inputs, cotangents):
    outputs = [like(array) for array in inputs[:-1]]
    gradients = call(_operations.ssd_backward, (*inputs, *cotangents), outputs, (*options, True))
    return ((*gradients, None),)


ssd.defvjp(ssd_fwd, ssd_bwd)


@function("chunk_size", "dt_softplus", "dt_limit", "return_final_states", "return_varlen_states")
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
):
    """Mamba-2's scan (SSD); the arguments are those of ssmbench.torch.mamba_chunk_scan."""
    _operations.check_varlen(return_varlen_states, cu_seqlens, initial_states)
    dtype = io_dtype(x, dt, B, C, z)
    inputs = (
        *[converted(array, dtype) for array in (x, dt)],
        converted(A, F32),
        *[converted(array, dtype) for array in (B, C)],
        converted(D, F32),
        converted(z, dtype),
        *[converted(array, F32) for array in (dt_bias, initial_states)],
    )
    limits = tuple(float(limit) for limit in dt_limit)
    with_states = bool(return_final_states or return_varlen_states)
    options = (min(chunk_size, _operations.MOST_STEPS_OF_A_CHUNK), bool(dt_softplus), *limits, with_states)
    if return_varlen_states:
        inputs = (*inputs, None, converted(cu_seqlens, I32))  # which say what seq_idx says
        out, states = run_varlen(inputs, options, cu_seqlens.shape[0] - 1)
    else:
        out, states = ssd((*inputs, converted(seq_idx, I32)), options)
    results = (out.astype(x.dtype),)
    if return_final_states:
        results += (states[-1:] if return_varlen_states else states,)
    if return_varlen_states:
        results += (states,)
    return results if len(results) > 1 else results[0]


# A decoding step of either.


def as_one_row(x, dt, A, B, C, D, z, dt_bias):
    """Heads whose channels have rates of their own, as the library has them: all channels of all heads in a row."""
    x, dt, z = (None if array is None else array.reshape(array.shape[0], -1) for array in (x, dt, z))
    D, dt_bias = (None if array is None else array.reshape(-1) for array in (D, dt_bias))
    return x, dt, A.reshape(-1, A.shape[-1]), B, C, D, z, dt_bias


@function("dt_softplus")
def selective_state_update(
    state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False, state_batch_indices=None
):
    """A decoding step: (new state, out). The arguments are those of ssmbench.torch.selective_state_update.

    What is one number a head in Mamba-2 is given as such, which is faster: A, D, dt_bias (nheads,), dt (batch, nheads).
    """
    tensors = (x, dt, A, B, C, D, z, dt_bias)
    wide = state.ndim == 4 and A.ndim == 3
    row = as_one_row(*tensors) if wide else tensors
    x_, dt_, A_, B_, C_, D_, z_, dt_bias_ = row
    rows = state.reshape(state.shape[0], -1, state.shape[3]) if wide else state
    if rows.ndim == 3 and B.ndim == 3 and B.shape[1] == 1:
        B_, C_ = B[:, 0], C[:, 0]
    dtype = io_dtype(x, B, C, z)
    source = converted(state_batch_indices, I32)
    inputs = (
        rows,
        converted(x_, dtype),
        converted(dt_, dtype if dt.dtype == dtype else F32),
        converted(A_, F32),
        converted(B_, dtype),
        converted(C_, dtype),
        converted(D_, F32),
        converted(z_, dtype),
        converted(dt_bias_, F32),
        source,
        None if source is None else source[:, None],
    )
    updated, out = call(_operations.step, inputs, (like(inputs[1]),), (bool(dt_softplus),))
    return updated.reshape(state.shape), out.reshape(x.shape).astype(x.dtype)


# The convolution in front of a scan.


def run_conv(inputs, options):
    x, weight = inputs[:2]
    states = jax.ShapeDtypeStruct((*x.shape[:2], weight.shape[-1] - 1), x.dtype) if options[1] else None
    return tuple(call(_operations.conv_forward, inputs, (like(x), states), options))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def conv(inputs, options):
    return run_conv(inputs, options)


def conv_fwd(inputs, options):
    return run_conv(inputs, options), inputs


def conv_bwd(options, inputs, cotangents):
    x, weight, bias, initial_states, _ = inputs
    outputs = (like(x), like(weight, F32), like(bias, F32), like(initial_states))  # sums are in f32
    gradients = call(_operations.conv_backward, (*inputs, *cotangents), outputs, options)
    return ((*[None if g is None else g.astype(t.dtype) for g, t in zip(gradients, inputs)], None),)


conv.defvjp(conv_fwd, conv_bwd)


def conv_weights(x, weight, bias):
    """In the dtype of x where both have it, else in f32."""
    dtype = io_dtype(x, weight, bias)
    return converted(weight, dtype), converted(bias, dtype)


@function("return_final_states", "activation")
def causal_conv1d(
    x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False, activation=None
):
    """Causal depthwise convolution; the arguments are those of ssmbench.torch.causal_conv1d."""
    weight, bias = conv_weights(x, weight, bias)
    inputs = (x, weight, bias, converted(initial_states, x.dtype), converted(seq_idx, I32))
    out, states = conv(inputs, (_operations.is_silu(activation), bool(return_final_states)))
    return (out, states) if return_final_states else out


@function("activation")
def causal_conv1d_update(
    x, conv_state, weight, bias=None, activation=None, cache_seqlens=None, conv_state_indices=None
):
    """Decoding steps of the convolution: (new conv_state, out).

    The arguments are those of ssmbench.torch.causal_conv1d_update.
    """
    weight, bias = conv_weights(x, weight, bias)
    rows = x.swapaxes(1, 2) if x.ndim == 3 else x
    single = x.ndim == 3 and rows.shape[1] == 1
    rows = rows[:, 0] if single else rows
    slots = converted(conv_state_indices, I32)
    options = (_operations.is_silu(activation),)
    if cache_seqlens is None:
        inputs = (conv_state, rows, weight, bias, slots, slots)
        conv_state, out = call(_operations.conv_step, inputs, (like(rows),), options)
    else:
        conv_state, out = update_of_ring(conv_state, rows, weight, bias, slots, cache_seqlens, options)
    if x.ndim == 3:
        out = out[:, :, None] if single else out.swapaxes(1, 2)
    return conv_state, out


def update_of_ring(conv_state, rows, weight, bias, slots, position, options):
    """The newest steps in order, an update of those, and the new ones to their places."""
    chosen = conv_state if slots is None else conv_state[slots]
    length, taps, tokens = chosen.shape[2], weight.shape[1] - 1, rows.shape[1] if rows.ndim == 3 else 1
    places = ((position[:, None] + jnp.arange(-taps, tokens)) % length)[:, None]
    places = jnp.broadcast_to(places, (*chosen.shape[:2], taps + tokens))
    newest = jnp.take_along_axis(chosen, places[..., :taps], 2)
    _, out = call(_operations.conv_step, (newest, rows, weight, bias, None, None), (like(rows),), options)
    new = rows.swapaxes(1, 2) if rows.ndim == 3 else rows[:, :, None]
    updated = jnp.put_along_axis(chosen, places[..., taps:], new, 2, inplace=False)
    return (updated if slots is None else conv_state.at[slots].set(updated)), out
